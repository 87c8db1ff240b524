# SPDX-License-Identifier: GPL-2.0

# Sends one datagram from ib0 to each of the addresses from PREFIX::N on, at once. Arguments: prefix, N, and the number of
# addresses.

import socket
import sys

sender = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
sender.setsockopt(socket.SOL_SOCKET, 32, 1 << 24)
sender.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, socket.if_nametoindex("ib0"))
prefix, first, peers = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
for number in range(first, first + peers):
    sender.sendto(str(number).encode(), (f"{prefix}::{number:x}", 4001))
