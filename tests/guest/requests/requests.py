# SPDX-License-Identifier: GPL-2.0

# Sends requests to a host, its first argument, for as many seconds as the second says. Prints
# answers per second.

import socket, sys, time
s = socket.create_connection((sys.argv[1], 5002))
start, n = time.monotonic(), 0
while time.monotonic() < start + float(sys.argv[2]):
    s.send(b"x" * 50)
    s.send(b"y" * 50)
    s.recv(1)
    n += 1
print(n / (time.monotonic() - start))
