# SPDX-License-Identifier: GPL-2.0

# Sends numbered datagrams. Arguments: to whom, how many, of how many bytes, and IP_MTU_DISCOVER.
# Prints the error numbers that sending ended with.

import socket, struct, sys, time
target, count, size, discover = sys.argv[1], *(int(a) for a in sys.argv[2:5])
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
index = socket.if_nametoindex("ib0")
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, struct.pack("4s4si", bytes(4), bytes(4), index))
s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, 4)
# IP_MTU_DISCOVER
s.setsockopt(socket.IPPROTO_IP, 10, discover)
errors = []
for n in range(count):
    try:
        s.sendto(struct.pack("!I", n) + b"x" * (size - 4), (target, 4000))
    except OSError as error:
        errors.append(error.errno)
    time.sleep(0.02)
print(*errors)
