# SPDX-License-Identifier: GPL-2.0

# Sends datagrams, not too fast. Arguments: to whom, bytes of each, how many.

import socket, sys, time
target, size, count = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(count):
    s.sendto((bytes(range(255)) * 257)[:size], (target, 4200))
    if n % 8 == 7:
        time.sleep(0.005)
time.sleep(0.2)
s.sendto(b".", (target, 4201))
