# SPDX-License-Identifier: GPL-2.0

# Waits for a datagram whose bytes count on from 0, and prints what its socket is charged for it.

import socket, struct

SO_MEMINFO = 55

s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("", 5004))
print("ready", flush=True)
s.settimeout(20)
s.recv(1, socket.MSG_PEEK)
cost = struct.unpack_from("=I", s.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 64))[0]
data = s.recv(65536)
assert data == bytes(n & 255 for n in range(len(data))), data
print(cost)
