# SPDX-License-Identifier: GPL-2.0

# Asks a listener of the RDMA CM for a connection between two IPv6 addresses, whatever the hosts know of IPv6. Arguments:
# the own GID, that of the listener's port, the listener's number, and a time limit in seconds. Prints the event that comes
# of it. Follows ucm.py.

own, gid = (socket.inet_pton(socket.AF_INET6, name) for name in sys.argv[1:3])
port, limit = int(sys.argv[3]), float(sys.argv[4])
# The CM's own header: its version, that of IP, the port of the client, and both addresses.
private = struct.pack("!BBH16s16s", 0, 0x60, 4000, own, gid)
addresses = ib(own) + ib(gid, 0x106 << 16 | port, 2**64 - 1)
number = create(0x13f)
for step, body in (
    (RESOLVE_ADDRESS, struct.pack("=IIHHI", number, 2000, 48, 48, 0) + addresses),
    (RESOLVE_ROUTE, struct.pack("=II", number, 2000)),
    (CONNECT, parameters(private) + struct.pack("=II8x", number, 0)),
):
    command(step, body)
    _, what, _ = event(limit, "resolved, or an answer")
print(what)
