# SPDX-License-Identifier: GPL-2.0

"""Sends one datagram to each of the addresses fd00:9::1, fd00:9::2, …, of which there are so many (argument 1), at once."""

import socket
import sys

sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)
for number in range(1, int(sys.argv[1]) + 1):
    sender.sendto(str(number).encode(), (f"fd00:9::{number:x}", 4001))
