# SPDX-License-Identifier: GPL-2.0

# Sends numbered datagrams whose content follows from the number, at a steady pace. When it is late, it catches up by at most 20
# datagrams: in a longer burst, one could overtake more than the reorder window holds.

import hashlib, socket, sys, time
target, count, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
start = time.monotonic()
for n in range(count):
    body = n.to_bytes(8, 'big') + hashlib.sha256(n.to_bytes(8, 'big')).digest() * 20
    s.sendto(body, (target, 5001))
    start = max(start, time.monotonic() - (n + 1 + 20) * pause)
    wait = start + (n + 1) * pause - time.monotonic()
    if wait > 0:
        time.sleep(wait)
