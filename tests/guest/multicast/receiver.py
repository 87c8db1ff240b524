# SPDX-License-Identifier: GPL-2.0

# Joins the group in argument 1 on ib0, says so, prints how many numbered datagrams came, and that others did.

import socket, struct, sys
group, wanted = sys.argv[1], int(sys.argv[2])
index = socket.if_nametoindex("ib0")
if ":" in group:
    s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    s.bind(("::", 4000))
    s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_JOIN_GROUP, socket.inet_pton(socket.AF_INET6, group) + struct.pack("@I", index))
else:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.bind(("", 4000))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, struct.pack("4s4si", socket.inet_aton(group), b"\0" * 4, index))
# Another interface may have joined the group, too: take nothing that it receives.
s.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"ib0")
print("joined")
s.settimeout(60)
seen = set()
try:
    while len(seen) < wanted:
        number = s.recvfrom(9000)[0][:4]
        if number == b"warm":
            print("warm")
        else:
            seen.add(number)
except TimeoutError:
    pass
print("received", len(seen))
