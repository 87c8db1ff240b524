# SPDX-License-Identifier: GPL-2.0

# Asks a listener of the RDMA CM on a RoCE port for a connection between two IPv6 addresses. Arguments after those of
# request.py, which it follows: the listener's number.

ip6 = lambda name: socket.inet_pton(socket.AF_INET6, name)
# The CM's own header: its version, that of IP, the port of the client, and both addresses.
header = struct.pack("!BBH16s16s", 0, 0x60, 4000, ip6("fd00::1"), ip6("fd00::2"))
request(header, sender=own_gid, service=0x106 << 16 | int(sys.argv[3]))
