# SPDX-License-Identifier: GPL-2.0

# Sends to the group the kind of datagrams that argument 1 is, as many as argument 2 says.

import socket, struct, sys, time
kind, count = sys.argv[1].encode(), int(sys.argv[2])
index = socket.if_nametoindex("ib0")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("4s4si", b"\0" * 4, b"\0" * 4, index))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 0)
for n in range(count):
    s.sendto(kind + struct.pack("!I", n) + bytes(1000), ("239.1.2.3", 4000))
    time.sleep(0.005)
