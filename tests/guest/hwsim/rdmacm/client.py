# SPDX-License-Identifier: GPL-2.0

# Connects from an address to another one and a port, and prints the name of the server that accepts, or the event that
# comes instead. Follows ucm.py.

own, ip, port, limit = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
number = create()
steps = [
    ("address-resolved", RESOLVE_IP, address(own) + address(ip, port) + struct.pack("=II", number, 2000)),
    ("route-resolved", RESOLVE_ROUTE, struct.pack("=II", number, 2000)),
    ("response", CONNECT, parameters(b"") + struct.pack("=II8x", number, 0)),
]
for expected, step, body in steps:
    command(step, body)
    _, what, data = event(limit, expected)
    if what != expected:
        print(what)
        sys.exit()
# Without parameters this confirms the answer.
command(ACCEPT, struct.pack("=Q", 1) + bytes(272) + struct.pack("=II8x", number, 0))
print("by", data.rstrip(b"\0").decode())
