# SPDX-License-Identifier: GPL-2.0

# Asks for a mode by its number; prints the error number and the kernel's words.

import socket, struct, sys
s = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
# NETLINK_CAP_ACK and NETLINK_EXT_ACK of SOL_NETLINK.
s.setsockopt(270, 10, 1)
s.setsockopt(270, 11, 1)

def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

mode = attribute(2, struct.pack("=H", int(sys.argv[1])))
info = attribute(18, attribute(1, b"ipoib_rs") + attribute(2, mode))
body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex("ib0"), 0, 0) + info
s.send(struct.pack("=IHHII", 16 + len(body), 16, 5, 1, 0) + body)
answer = s.recv(65536)
error, = struct.unpack_from("=i", answer, 16)
words = ""
at = 36
while at + 4 <= len(answer):
    length, kind = struct.unpack_from("=HH", answer, at)
    if kind == 1:
        words = answer[at + 4:at + length].rstrip(b"\0").decode()
    at += (length + 3) & ~3
print(-error, words)
