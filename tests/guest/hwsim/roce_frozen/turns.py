# SPDX-License-Identifier: GPL-2.0
# Sends small datagrams by turns to address 2, and from address 1 to all hosts.

import socket
import sys

own, peer = sys.argv[1:]
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(own))
for _ in range(15):
    for address in (peer, "224.0.0.1"):
        s.sendto(bytes(500), (address, 9))
