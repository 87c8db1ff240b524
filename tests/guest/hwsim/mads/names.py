# SPDX-License-Identifier: GPL-2.0

# Asks an interface on RoCE for connections as another driver does, each time in another name, and confirms none. Arguments: HCA,
# GID and QPN of the interface that is asked, the index of the own GID, and how many. Follows umad.py.

import socket
gid = socket.inet_pton(socket.AF_INET6, sys.argv[2])
qpn, index, count = (int(word, 0) for word in sys.argv[3:6])

def request(number, name):
    """A REQ (IBA volume 1, section 12.6.5), of MTU 256, for an interface's service as Linux has it."""
    body = bytearray(232)
    struct.pack_into("!I4xQQ", body, 0, number, 1 << 60 | qpn, number)
    struct.pack_into("!IIII", body, 32, (0x1000 + number) << 8 | 1, 1, 16 << 3, number << 8 | 16 << 3 | 6)
    struct.pack_into("!HBBHH", body, 48, 0xffff, 1 << 4 | 7, 1 << 4, 0, 0)
    body[56:88] = name + gid
    struct.pack_into("!IBBBB", body, 88, 3, 0, 64, 1 << 3, 14 << 3)
    struct.pack_into("!II", body, 140, 0x1000 + number, 65524)
    return mad(7, 3, 0x10, body=bytes(body), version=2)

for number in range(1, count + 1):
    name = socket.inet_pton(socket.AF_INET6, "fe80::bad:%x" % number)
    os.write(fd, envelope(gsi, 1, 0x80010000, lid=0, grh=1, index=index, gid=gid) + request(number, name))
