# SPDX-License-Identifier: GPL-2.0

# A hundred datagrams from one source, and one behind a gap that never fills; all of that from
# several sources, since a flood makes losses, too. Each says who it is and when it was sent.
# Arguments: from and to which address, and how many sources.

import time
source, to = (socket.inet_aton(a) for a in sys.argv[1:3])

def numbered(peer, n):
    body = struct.pack("!HHHHId", 5003, 5003, 20, 0, n, time.monotonic())
    ip = bytearray(struct.pack("!BBHHHBBH", 0x45, 0, 40, 1, 0, 64, 17, 0) + source + to)
    total = sum(struct.unpack("!10H", ip))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    ip[10:12] = struct.pack("!H", ~total & 0xffff)
    send(struct.pack("!HH", 0x0800, n) + ip + body, source_qpn=peer)

for peer in range(0x4711, 0x4711 + int(sys.argv[3])):
    for n in range(1, 101):
        numbered(peer, n)
        if n % 5 == 0:
            time.sleep(0.001)
    time.sleep(0.3)
    numbered(peer, 102)
    time.sleep(0.5)
