# SPDX-License-Identifier: GPL-2.0

# Takes one stream, IPv4 or IPv6; prints its length and digest.

import hashlib, socket
s = socket.create_server(("::", 5010), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
c, _ = s.accept()
length, digest = 0, hashlib.sha256()
while data := c.recv(1 << 18):
    length += len(data)
    digest.update(data)
print(length, digest.hexdigest())
