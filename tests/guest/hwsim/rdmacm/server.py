# SPDX-License-Identifier: GPL-2.0

# Accepts all connections to an address and a port; its name is the private data of each answer. Follows ucm.py.

ip, port, name = sys.argv[1], int(sys.argv[2]), sys.argv[3]
listener = create()
command(BIND_IP, struct.pack("=Q", 0) + address(ip, port) + struct.pack("=I", listener))
command(LISTEN, struct.pack("=II", listener, 8))
print("listening")
while True:
    number, what, _ = event(1000, "request")
    print(what)
    if what == "request":
        command(ACCEPT, struct.pack("=Q", number) + parameters(name.encode()) + struct.pack("=II8x", number, 0))
