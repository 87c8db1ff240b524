# SPDX-License-Identifier: GPL-2.0

# Prints how many datagrams came until none has for three seconds, or as many as argument 1 says, if there is one.

import socket, sys
wanted = int(sys.argv[1]) if len(sys.argv) > 1 else None
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
# SO_RCVBUFFORCE: room for all, however late this reads.
s.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
s.bind(("::", 4000))
print("ready", flush=True)
s.settimeout(20)
seen = set()
try:
    while len(seen) != wanted:
        seen.add(s.recv(65536)[:4])
        s.settimeout(3)
except TimeoutError:
    pass
print("received", len(seen))
