# SPDX-License-Identifier: GPL-2.0

# Sends UDP datagrams of 500 bytes, a hundred to each call, which the kernel makes of one packet where it can. Arguments: to
# whom, and how many calls.

import socket, sys
target, calls = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
# UDP_SEGMENT
s.setsockopt(socket.IPPROTO_UDP, 103, 500)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
for _ in range(calls):
    s.sendto(bytes(50000), (target, 4000))
