# SPDX-License-Identifier: GPL-2.0

# Prints how long each of those behind a gap took, in seconds, until none has come for two.

import socket, struct, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
s.bind(("", 5003))
print("ready", flush=True)
s.settimeout(20)
waits = []
try:
    while True:
        n, sent = struct.unpack("!Id", s.recv(100))
        s.settimeout(2)
        if n == 102:
            waits.append(time.monotonic() - sent)
except socket.timeout:
    print(*waits)
