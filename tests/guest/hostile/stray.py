# SPDX-License-Identifier: GPL-2.0

# Datagrams of 0 to 63 bytes to soft-RoCE's port. One argument: to which GID.

import os, socket, sys
s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
to = (sys.argv[1], 4791, 0, socket.if_nametoindex("eth0"))
for n in range(64):
    s.sendto(bytes(n), to)
    s.sendto(os.urandom(n), to)
