# SPDX-License-Identifier: GPL-2.0

# Prints how many datagrams came until none has for three seconds.

import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.bind(("", 4000))
print("ready", flush=True)
s.settimeout(20)
seen = set()
try:
    while True:
        seen.add(s.recv(65536)[:4])
        s.settimeout(3)
except TimeoutError:
    print("received", len(seen))
