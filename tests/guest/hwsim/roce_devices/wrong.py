# SPDX-License-Identifier: GPL-2.0

# Sends a UDP datagram with a wrong checksum to argument 1.

import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP)
for _ in range(10):
    s.sendto(struct.pack("!HHHH", 4000, 4000, 12, 0x1234) + b"data", (sys.argv[1], 0))
