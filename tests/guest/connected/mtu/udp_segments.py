# SPDX-License-Identifier: GPL-2.0

# Sends numbered UDP datagrams of 500 bytes, a hundred to each call, which the kernel makes of one packet where it can.
# Arguments: to whom, how many calls, and seconds between two of them, if there are to be any.

import socket, struct, sys, time
target, calls, pause = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]) if len(sys.argv) > 3 else 0
s = socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM)
# UDP_SEGMENT
s.setsockopt(socket.IPPROTO_UDP, 103, 500)
s.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 200000)
for call in range(calls):
    s.sendto(b"".join(struct.pack("!I", call * 100 + n) + bytes(496) for n in range(100)), (target, 4000))
    if pause:
        time.sleep(pause)
