# SPDX-License-Identifier: GPL-2.0

# Joins a group on the Ethernet, as somebody who uses the port from user space would.

import socket, struct, time
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
group = socket.inet_pton(socket.AF_INET6, "ff12:401b:ffff::f01:203")
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, group + struct.pack("@I", socket.if_nametoindex("eth0")))
print("joined", flush=True)
time.sleep(1000)
