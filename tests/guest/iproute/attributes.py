# SPDX-License-Identifier: GPL-2.0

# Asks for an interface of the type ipoib_rs on the RDMA device that argument 1 names, by requests whose attributes
# no ip would send. Prints what is answered, and fails where that is not as expected.

import errno, os, socket, struct, sys
RTM_NEWLINK, ACK, CREATE, EXCL = 16, 4, 0x400, 0x200
IFNAME, LINKINFO, KIND, DATA = 3, 18, 1, 2
PKEY, MODE, DEVICE, PORT = 1, 2, 32, 33
name = sys.argv[1].encode()


def attribute(number, payload):
    return struct.pack("HH", 4 + len(payload), number) + payload + bytes(-len(payload) % 4)


def ask(data):
    """Returns the error number that a request for an interface is answered with, or 0."""
    info = attribute(KIND, b"ipoib_rs\0") + attribute(DATA, data)
    body = struct.pack("BxHiII", 0, 0, 0, 0, 0) + attribute(IFNAME, b"ib7\0") + attribute(LINKINFO, info)
    header = struct.pack("IHHII", 16 + len(body), RTM_NEWLINK, 1 | ACK | CREATE | EXCL, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0) as s:
        s.send(header + body)
        return -struct.unpack_from("i", s.recv(4096), 16)[0]


device, one = attribute(DEVICE, name + b"\0"), attribute(PORT, struct.pack("I", 1))
requests = [
    ("without an end", attribute(DEVICE, name), errno.EINVAL),
    ("an empty payload", attribute(DEVICE, b""), errno.EINVAL),
    ("an empty name", attribute(DEVICE, b"\0"), errno.ENODEV),
    ("64 bytes and no end", attribute(DEVICE, b"x" * 64), errno.EINVAL),
    ("64 bytes and an end", attribute(DEVICE, b"x" * 64 + b"\0"), errno.EINVAL),
    ("4000 bytes", attribute(DEVICE, b"x" * 4000 + b"\0"), errno.EINVAL),
    ("no UTF-8", attribute(DEVICE, b"\xff\xfe\0"), errno.ENODEV),
    ("a port of no bytes", device + attribute(PORT, b""), errno.ERANGE),
    ("a port of 2 bytes", device + attribute(PORT, b"\1\0"), errno.ERANGE),
    ("port 0", device + attribute(PORT, bytes(4)), errno.ENODEV),
    ("the highest port", device + attribute(PORT, b"\xff" * 4), errno.ENODEV),
    ("a P_Key of 1 byte", device + attribute(PKEY, b"\1"), errno.ERANGE),
    ("P_Key 0", device + attribute(PKEY, bytes(2)), errno.EINVAL),
    ("mode 2", device + attribute(MODE, b"\2\0"), errno.EINVAL),
    ("an attribute in the gap", device + attribute(17, bytes(4)), errno.EINVAL),
    ("nothing", b"", errno.EINVAL),
]
for what, data, expected in requests:
    got = ask(data)
    if got != expected:
        sys.exit(f"{what}: {os.strerror(got)}, not {os.strerror(expected)}")
# The same with nothing wrong.
if ask(device + one):
    sys.exit("refused what is right")
os.system("ip link del ib7")
print(len(requests), "requests answered")
