# SPDX-License-Identifier: GPL-2.0

# Datagrams to soft-RoCE's port, by eth0, that it drops before it knows a QP. Arguments: a kind, and to which address.

import os, socket, sys

kind, address = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
to = (address, 4791, 0, socket.if_nametoindex("eth0")) if family == socket.AF_INET6 else (address, 4791)
s = socket.socket(family, socket.SOCK_DGRAM)
if kind == "short":
    for n in range(12):
        s.sendto(bytes(n), to)
        s.sendto(os.urandom(n), to)
elif kind == "options":
    s.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, b"\1\1\1\0")
    s.sendto(bytes(4), to)
elif kind == "long":
    s.sendto(bytes(100), to)
elif kind == "longer":
    for n in range(12, 64):
        s.sendto(bytes(n), to)
        s.sendto(os.urandom(n), to)
else:
    sys.exit(kind)
