# SPDX-License-Identifier: GPL-2.0

# Sends what is malformed; prints how many were taken and refused, and both node GUIDs, before and after. Arguments:
# HCA, how many rounds, limit for an answer in seconds, and the LIDs of this port and the other.

random.seed(1415)
rounds, limit, lids = int(sys.argv[2]), float(sys.argv[3]), [int(lid) for lid in sys.argv[4:6]]
taken, refused = 0, 0

def send(data):
    global taken, refused
    try:
        os.write(fd, data)
        taken += 1
    except OSError:
        refused += 1
    while select.select([fd], [], [], 0)[0]:
        os.read(fd, 1024)

def settle():
    while select.select([fd], [], [], 0.5)[0]:
        os.read(fd, 1024)

def port_info():
    """Random, but for what makes a port unmanageable or takes it down for good: that is what it would be for."""
    data = bytearray(random.randbytes(64))
    data[0:8] = bytes(8)                                   # M_Key
    data[29] = random.choice((0, 0xff))                    # LinkWidthEnabled
    data[33] = random.choice((0, 2, 4, 5, 6, 7, 8, 15)) << 4 | 2  # PortPhysicalState, LinkDownDefaultState
    data[35] = random.choice((0, 15))                      # LinkSpeedEnabled
    data[63] = 0                                           # LinkSpeedExtEnabled
    return bytes(data)

ATTRIBUTES = [0, 1, 2, 0x10, 0x11, 0x12, 0x14, 0x15, 0x16, 0x17, 0x18, 0x19, 0x1a, 0x1b, 0x20, 0x30, 0x31, 0xff90, 0xffff]
METHODS = [0, 1, 2, 3, 5, 6, 7, 0x12, 0x54, 0x7f, 0x81, 0x82, 0x87, 0xff]
MODIFIERS = [0, 1, 2, 0xff, 0x100, 0xffff, 0x10000, 0x80000000, 0xffffffff]

def subnet_management(routed_by_lid):
    method, attribute, modifier = random.choice(METHODS), random.choice(ATTRIBUTES), random.choice(MODIFIERS)
    data = random.randbytes(64)
    if method == 2 and attribute == 0x15:
        data = port_info()
    elif method == 2 and attribute == 0x16:
        # Without its P_Keys nothing can talk to a port: a block that there is not.
        modifier |= 0x100
    elif method == 2 and attribute in (0x17, 0x18):
        # Without a VL that is served, nothing passes.
        method = 1
    if routed_by_lid:
        body = struct.pack("!Q32x", random.choice((0, 0, random.getrandbits(64)))) + data
        return mad(1, method, attribute, modifier, body, status=random.choice((0, 0xffff)))
    hops = random.choice((0, 0, 1, 1, 1, 2, 63, 64, 255))
    path = [random.choice((1, 1, 1, 1, 0, 2, 255)) for _ in range(min(hops, 63))]
    pointer = random.choice((0, 0, 0, 0, 1, 2, 63, 64, 255))
    body = directed(data, path, slid=random.choice((0xffff, 0xffff, *lids, 0)), dlid=random.choice((0xffff, 0xffff, *lids, 0)))
    return mad(0x81, method, attribute, modifier, body, specific=pointer << 8 | hops, status=random.choice((0, 0, 0x8000, 0x1c)))

def general_services():
    # Performance, board, device and vendors' management; not the kernel's own SA client and CM.
    cls = random.choice((4, 4, 4, 5, 6, 8, 9, 0x30, 0xff))
    return mad(cls, random.choice(METHODS), random.choice((1, 2, 0x10, 0x12, 0x13, 0x15, 0x1d, 0xffff)),
               random.choice(MODIFIERS), random.randbytes(232), version=random.choice((1, 1, 1, 0, 2, 255)))

def strange_envelope(agent):
    return envelope(agent, qpn=random.choice((0, 1, 2, 0xffffff, random.getrandbits(32))),
                    qkey=random.choice((0, 0x80010000, random.getrandbits(32))),
                    lid=random.choice((0, *lids, 0xbfff, 0xc000, 0xfffe, 0xffff)),
                    sl=random.getrandbits(8), bits=random.getrandbits(8), grh=random.getrandbits(1),
                    index=random.getrandbits(8), gid=random.randbytes(16), pkey=random.choice((0, 1, 127, 0xffff)),
                    timeout=random.choice((0, 0, 10)), retries=random.getrandbits(1))

before = [node_guid(fd, smi, hops, limit) for hops in (0, 1)]
# Bytes that are no header at all, and headers with too little or too much behind them.
for length in range(0, 700, 7):
    send(random.randbytes(length))
    for agent in (smi, gsi):
        send(envelope(agent, qpn=agent == gsi) + subnet_management(False)[:length].ljust(length, b"\0"))
for _ in range(rounds):
    send(envelope(smi) + subnet_management(False))
    send(envelope(smi, lid=random.choice(lids)) + subnet_management(True))
    send(envelope(gsi, qpn=1, qkey=0x80010000, lid=random.choice(lids)) + general_services())
    agent, data = random.choice(((smi, subnet_management(False)), (smi, subnet_management(True)), (gsi, general_services())))
    send(strange_envelope(agent) + data)
    # A well-formed request that was damaged on its way here.
    data = bytearray(mad(0x81, 1, random.choice((0x10, 0x11, 0x15)), body=directed(b"", (1,)), specific=1))
    data[random.choice([*range(0, 8), *range(16, 68)])] ^= 1 << random.randrange(8)
    send(envelope(smi) + data)
settle()
after = [node_guid(fd, smi, hops, limit) for hops in (0, 1)]
print(taken, refused, *["%#x" % guid for guid in before + after])
