# SPDX-License-Identifier: GPL-2.0

# Binds an ID of the RDMA CM to an IPv6 address, and prints the error. Follows ucm.py.

try:
    command(BIND_IP, struct.pack("=Q", 0) + address("fd00::1", 4000) + struct.pack("=I", create()))
except OSError as error:
    print(error.strerror)
