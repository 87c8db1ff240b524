# SPDX-License-Identifier: GPL-2.0

# Has a socket take what it can of the datagrams of so many bytes each that are sent to it while nobody
# reads, and prints how many those were. Two arguments: the bytes, and how large its buffer is.

import socket, sys
size, room = int(sys.argv[1]), int(sys.argv[2])
s, end = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2))
# The kernel doubles it.
s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, room // 2)
s.bind(("", 4200))
end.bind(("", 4201))
print("ready", flush=True)
end.recv(1)
s.setblocking(False)
count = 0
try:
    while True:
        assert s.recv(65536) == (bytes(range(255)) * 257)[:size]
        count += 1
except BlockingIOError:
    print(count)
