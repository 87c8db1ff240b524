# SPDX-License-Identifier: GPL-2.0

# Asks a listener of the RDMA CM on a RoCE port for connections: one between IPv6 addresses, then one between those of IPv4
# that the two ends have. Argument after those of request.py, which it follows: the listener's number.

ip6 = lambda name: socket.inet_pton(socket.AF_INET6, name)
for version, addresses in (
    (6, ip6("fd00::1") + ip6("fd00::2")),
    (4, bytes(12) + own_gid[12:] + bytes(12) + gid[12:]),
):
    # The CM's own header: its version, that of IP, the port of the client, and both addresses.
    header = struct.pack("!BBH", 0, version << 4, 4000) + addresses
    request(header, sender=own_gid, service=0x106 << 16 | int(sys.argv[3]))
