# SPDX-License-Identifier: GPL-2.0

# Sends datagrams of so many bytes at once, each whole whatever is known of its path. Arguments: to whom, and the lengths.

import socket, sys
target, *sizes = sys.argv[1:]
s = socket.socket(socket.AF_INET6 if ":" in target else socket.AF_INET, socket.SOCK_DGRAM)
# IP_MTU_DISCOVER and IPV6_MTU_DISCOVER: PROBE
if ":" in target:
    s.setsockopt(socket.IPPROTO_IPV6, 23, 3)
else:
    s.setsockopt(socket.IPPROTO_IP, 10, 3)
for size in sizes:
    s.sendto(bytes(int(size)), (target, 4000))
