# SPDX-License-Identifier: GPL-2.0

# Sends an interface connection requests, many of them malformed, confirms most of its replies, and prints what became of each.
# Follows ucm.py. Arguments: GID and QPN of the interface that is asked, those of the local one, its P_Key, a seed, and the number
# of requests, of which no more are sent after some seconds.

import time
gid, own_gid = (socket.inet_pton(socket.AF_INET6, name) for name in sys.argv[1:5:2])
qpn, own_qpn = (int(sys.argv[n], 0) for n in (2, 4))
pkey, chance = int(sys.argv[5], 0), random.Random(int(sys.argv[6]))
end = time.monotonic() + 8
random.seed(chance.random())

def private():
    """Private data: as this driver sends it, as others do, damaged, and none at all."""
    mtu = chance.choice([65524, 65524, 65524, 65535, 2048, 1, 0, 2**32 - 1])
    own = chance.choice([own_qpn, own_qpn, own_qpn, qpn, 0, 1, 2**24, 2**32 - 1])
    data = bytearray(struct.pack("!II", own, mtu))
    if chance.random() < 0.7:
        version, flags = chance.choice([3, 3, 3, 0, 1, 2, 255]), chance.choice([0x30, 0x30, 0, 0xff])
        window, longest = chance.choice([64, 64, 0, 1, 65535]), chance.choice([65551, 0, 68, 2**32 - 1])
        data += struct.pack("!4sBBHIB3x", b"iprs", version, flags, window, longest, chance.choice([0, 0, 1, 7, 255]))
    if chance.random() < 0.2:
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    if chance.random() < 0.1:
        data = data[:chance.randrange(len(data))]
    if chance.random() < 0.1:
        data += chance.randbytes(56 - len(data))
    return bytes(data)

def ask():
    number = create(0x13f)
    service = chance.choice([0x10 << 56, 0x10 << 56, 0x01 << 56, 0x02 << 56]) | chance.choice([qpn] * 7 + [qpn ^ 1])
    addresses = b"".join(name[:2] + struct.pack("!H", pkey) + name[4:] for name in (ib(own_gid), ib(gid, service, 2**64 - 1)))
    for step, body in (
        (RESOLVE_ADDRESS, struct.pack("=IIHHI", number, 2000, 48, 48, 0) + addresses),
        (RESOLVE_ROUTE, struct.pack("=II", number, 2000)),
        (CONNECT, parameters(private()) + struct.pack("=II8x", number, 0)),
    ):
        command(step, body)
        about = None
        # Events of earlier requests come, too.
        while about != number:
            about, what, _ = event(1, "")
    if what == "response" and chance.random() < 0.8:
        # Without parameters this confirms the answer.
        command(ACCEPT, struct.pack("=Q", 1) + bytes(272) + struct.pack("=II8x", number, 0))
        return "confirmed"
    return what

for _ in range(int(sys.argv[7])):
    if time.monotonic() > end:
        break
    try:
        said = ask()
    except (OSError, SystemExit) as error:
        # The device may be gone, the target unreachable, or no reply may come.
        said = error
    print(said, flush=True)
    time.sleep(chance.choice([0, 0, 0.01, 0.3]))
