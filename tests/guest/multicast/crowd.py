# SPDX-License-Identifier: GPL-2.0

"""Joins so many groups (first argument) on ib0, and stays in them until it is ended."""

import signal
import socket
import struct
import sys

index = socket.if_nametoindex("ib0")
listeners = []
for number in range(int(sys.argv[1])):
    # One has memory for some thousand (net.core.optmem_max).
    if number % 1000 == 0:
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listeners.append(listener)
    group = struct.pack("!I", 0xEF010000 + number)
    listener.setsockopt(
        socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, group + struct.pack("=4si", b"", index)
    )
print("joined", flush=True)
signal.pause()
