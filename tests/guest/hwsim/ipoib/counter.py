# SPDX-License-Identifier: GPL-2.0

# Counts what comes to a group, by content; prints how much, and how much of that was different, when the sender
# says that it was all.

import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 4000))
index = socket.if_nametoindex("ib0")
s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4si", socket.inet_aton("239.1.2.3"), b"\0" * 4, index))
print("joined")
seen = []
while True:
    data = s.recv(9000)
    if data[:1] == b"W":
        print("warm")
    elif data[:1] == b"E":
        break
    else:
        seen.append(data)
print("received", len(seen), len(set(seen)))
