# SPDX-License-Identifier: GPL-2.0

# Requests to make an interface, to delete it, and to take it up and down. Follows a line that sets device: the name of the
# RDMA device, or "" for that of eth0.

rtnl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
rtnl.bind((0, 0))

def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

def message(kind, flags, index=0, up=0, change=0, attributes=b""):
    body = struct.pack("=BxHiII", 0, 0, index, up, change) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body

def answer():
    return -struct.unpack_from("=i", rtnl.recv(65536), 16)[0]

def call(what):
    try:
        rtnl.send(what)
        return answer()
    except OSError as error:
        return error.errno

kind = attribute(1, b"ipoib_rs")
if device:
    place = attribute(18, kind + attribute(2, attribute(32, device.encode() + b"\0")))
else:
    place = attribute(5, struct.pack("=I", socket.if_nametoindex("eth0"))) + attribute(18, kind)
add = message(16, 0x600, attributes=attribute(3, b"ib0\0") + place)
delete = message(17, 0, attributes=attribute(3, b"ib0\0"))
up = lambda: message(16, 0, socket.if_nametoindex("ib0"), 1, 1)
down = lambda: message(16, 0, socket.if_nametoindex("ib0"), 0, 1)
