# SPDX-License-Identifier: GPL-2.0

random.seed(4391)
types = [0x0800, 0x0806, 0x86dd, 0x8035, 0x88ca, 0x0101, 0, 0xffff, 0x8100]
for to in (gid, group):
    # Nothing, less than a header, a header and nothing behind it.
    for n in range(0, 5):
        send(bytes(n), to=to)
    for t in types:
        for n in (0, 1, 3, 7, 19, 20, 27, 28, 39, 40, 47, 55, 56, 1000, 4092):
            send(struct.pack("!HH", t, 0) + bytes(n), to=to)
            send(struct.pack("!HH", t, random.getrandbits(16)) + os.urandom(n), to=to)
    # The largest that the wire carries, and from QPs that nobody has.
    for qp in (0, 1, 0xfffffe, 0xffffff):
        send(struct.pack("!HH", 0x0800, 0) + os.urandom(100), to=to, source_qpn=qp)
    for key in (0, 0x0b1b, 0xffffffff):
        send(struct.pack("!HH", 0x0800, 0) + os.urandom(100), to=to, key=key)
    # IPv4 and IPv6 headers that lie about their length.
    for length in (0, 19, 20, 21, 60, 65535):
        ip4 = struct.pack("!BBHHHBBH", 0x45, 0, length, 1, 0, 64, 1, 0) + socket.inet_aton("10.1.0.1") + socket.inet_aton("10.1.0.2")
        send(struct.pack("!HH", 0x0800, 0) + ip4 + bytes(8), to=to)
        ip6 = struct.pack("!IHBB", 6 << 28, length, 58, 64) + bytes(32)
        send(struct.pack("!HH", 0x86dd, 0) + ip6 + bytes(8), to=to)
    # Our own multicast, as it seems: the receiver's own GID and QPN.
    send(struct.pack("!HH", 0x0806, 0) + bytes(56), to=to, source=gid, source_qpn=qpn)
for _ in range(2000):
    send(os.urandom(random.randrange(0, 4097)), to=random.choice((gid, group)), source_qpn=random.getrandbits(24))
print("sent", psn)
