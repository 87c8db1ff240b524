# SPDX-License-Identifier: GPL-2.0

# ARP requests: so many, so many a second (0: no limit), each from another GID that no neighbour has.

import time
count, rate = int(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
begun = time.monotonic()
for n in range(count):
    who = n % 60000
    sender = struct.pack("!I", 0x1000 + who) + socket.inet_pton(socket.AF_INET6, "fe80::1:%x" % (who + 1))
    arp = struct.pack("!HHBBH", 32, 0x0800, 20, 4, 1) + sender + socket.inet_aton("10.1.0.%d" % (10 + n % 200))
    send(struct.pack("!HH", 0x0806, 0) + arp + bytes(20) + socket.inet_aton("10.1.0.2"), to=group)
    # A sleep may take a whole tick: send more to catch up.
    ahead = n / rate - (time.monotonic() - begun) if rate else 0
    if ahead > 0:
        time.sleep(ahead)
print("done", flush=True)
