# SPDX-License-Identifier: GPL-2.0

# Sends numbered datagrams to the group, as many as argument 2 says, or a few without a number if that is "warm".

import socket, struct, sys, time
group, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
index = socket.if_nametoindex("ib0")
if ":" in group:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, 4)
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("4s4si", b"\0" * 4, b"\0" * 4, index))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
numbers = [b"warm"] * 5 if count == "warm" else [struct.pack("!I", n) for n in range(int(count))]
for number in numbers:
    s.sendto(number + b"x" * (size - 4), (group, 4000))
    time.sleep(0.005)
