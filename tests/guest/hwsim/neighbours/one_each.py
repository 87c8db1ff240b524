# SPDX-License-Identifier: GPL-2.0
# Sends a datagram to each of COUNT addresses from 10.9.4.0 on.
import ipaddress
import socket
import sys

first, sock = ipaddress.ip_address("10.9.4.0"), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for n in range(int(sys.argv[1])):
    sock.sendto(b"x", (str(first + n), 9))
