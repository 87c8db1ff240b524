# SPDX-License-Identifier: GPL-2.0

# Asks an interface for connections in the name of this host's own interface, as any user of the host may, and confirms
# the answers. Arguments: GID and QPN of the interface that is asked, those of the own one, how many, and the service that is
# asked for, less the QPN. Follows ucm.py, after what makes a user of it.

import time
gid, own_gid = (socket.inet_pton(socket.AF_INET6, name) for name in sys.argv[1:5:2])
qpn, own_qpn, rounds, service = (int(sys.argv[n], 0) for n in (2, 4, 5, 6))
addresses = ib(own_gid) + ib(gid, service | qpn, 2**64 - 1)
private = struct.pack("!II4sBBHIB3x", own_qpn, 65524, b"iprs", 3, 0x30, 0, 65551, 0)

def ask():
    number = create(0x13f)
    for expected, step, body in (
        ("address-resolved", RESOLVE_ADDRESS, struct.pack("=IIHHI", number, 2000, 48, 48, 0) + addresses),
        ("route-resolved", RESOLVE_ROUTE, struct.pack("=II", number, 2000)),
        ("response", CONNECT, parameters(private) + struct.pack("=II8x", number, 0)),
    ):
        command(step, body)
        about = None
        # Earlier ones come to an end meanwhile.
        while about != number:
            about, what, data = event(30, expected)
        if what != expected:
            return f"{what} {data[:13].hex()}"
    # Without parameters this confirms the answer.
    command(ACCEPT, struct.pack("=Q", 1) + bytes(272) + struct.pack("=II8x", number, 0))
    return "confirmed"

for _ in range(rounds):
    # One that crosses the other end's own request is refused, at first.
    while (said := ask()) != "confirmed":
        print(said, flush=True)
        time.sleep(0.3)
    print(said, flush=True)
print("done", flush=True)
# They stay as long as this does.
while True:
    event(1000, "end")
