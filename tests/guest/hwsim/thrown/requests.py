# SPDX-License-Identifier: GPL-2.0

# Makes random requests of ib0 and its children, or, if a third argument names the directory of fabrics in configfs, of a
# fabric of its own. Arguments: seed, number of requests, directory. Prints how many requests of each kind were taken and
# refused. Without a directory, the files in sysfs and the sysctls have the contents afterwards that they had before.

import ctypes, fcntl, glob, os, random, socket, struct, sys
from pathlib import Path

seed, count, fabrics = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None
chance = random.Random(seed)
rtnl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
genl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 16)
# SOL_NETLINK, NETLINK_EXT_ACK: refusals are told in words.
genl.setsockopt(270, 11, 1)
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

ERROR, DONE, NEWLINK, DELLINK, REQUEST, ACK, DUMP, EXCL, CREATE = 2, 3, 16, 17, 1, 4, 0x300, 0x200, 0x400
ADDRESS, BROADCAST, IFNAME, MTU, LINK, TXQLEN, LINKINFO, GROUP, PROTO_DOWN = 1, 2, 3, 4, 5, 13, 18, 27, 39
UP = 1
TEXTS = ["\n", "0", "1", "-1", "2", "4096", "65520", "65535", "4294967296", "datagram", "connected", "0x8001", "0x8002",
         "0x7fff", "0x0000", "up", "down", "x" * 300, "\0", "1 2", "9" * 30, "é", " ", "%s%n", "../.."]
NUMBERS = [0, 1, 2, 3, 44, 67, 68, 512, 2044, 4092, 65520, 0x7fff, 0x8001, 0xffff, 0x7fffffff, 0xffffffff]

def number():
    return chance.choice(NUMBERS) if chance.random() < 0.8 else chance.getrandbits(32)

def text():
    return chance.choice(TEXTS) if chance.random() < 0.8 else chance.randbytes(chance.randrange(1, 64)).hex()

# A value, mostly of the right length.
def value(length):
    data = struct.pack("=I", number())[:length].ljust(length, b"\0")
    return data if chance.random() < 0.8 else chance.randbytes(chance.randrange(24))

def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

# Sends a request, and returns the bodies of the messages that answer it.
def exchange(netlink, number, flags, body):
    netlink.send(struct.pack("=IHHII", 16 + len(body), number, flags | REQUEST | ACK, 1, 0) + body)
    answers = []
    while True:
        data = netlink.recv(65536)
        while data:
            length, kind = struct.unpack_from("=IH", data)
            if kind in (ERROR, DONE):
                code = -struct.unpack_from("=i", data, 16)[0]
                if code:
                    raise OSError(code, os.strerror(code))
                return answers
            answers.append(data[16:length])
            data = data[length + 3 & ~3:]

def call(number, flags, index, attributes, state=0, mask=0):
    exchange(rtnl, number, flags, struct.pack("=BxHiII", 0, 0, index, state, mask) + attributes)

# Attributes of "ip link ... type ipoib_rs", some of which do not exist.
def link_info():
    lengths = {1: 2, 2: 2, 3: 2, 32: 4, 33: 4, 4: 4, 0: 1, 99: 8}
    data = b"".join(attribute(kind, value(lengths[kind])) for kind in chance.sample(sorted(lengths), chance.randrange(4)))
    if chance.random() < 0.1:
        data += chance.randbytes(chance.randrange(12))
    return attribute(LINKINFO, attribute(1, b"ipoib_rs\0") + attribute(2, data))

def children():
    return sorted(Path(path).name for path in glob.glob("/sys/class/net/ib0?*"))

def index():
    return socket.if_nametoindex(chance.choice(["ib0"] + children()))

def change():
    kinds = {ADDRESS: 20, BROADCAST: 20, MTU: 4, TXQLEN: 4, GROUP: 4, PROTO_DOWN: 1}
    attributes = b"".join(attribute(kind, value(kinds[kind])) for kind in chance.sample(sorted(kinds), chance.randrange(3)))
    if chance.random() < 0.6:
        attributes += link_info()
    call(NEWLINK, 0, index(), attributes, chance.choice([0, UP]), chance.choice([0, UP]))

def add():
    name = attribute(IFNAME, b"ib0%d\0" % chance.randrange(4))
    link = attribute(LINK, struct.pack("=I", socket.if_nametoindex("ib0"))) if chance.random() < 0.9 else b""
    pkey = attribute(1, struct.pack("=H", chance.choice([0x8001, 0x8002, 0x8003, 1, 0, 0xffff])))
    known = attribute(LINKINFO, attribute(1, b"ipoib_rs\0") + attribute(2, pkey))
    call(NEWLINK, CREATE | EXCL, 0, name + link + chance.choice([known, link_info()]))

def delete():
    call(DELLINK, 0, socket.if_nametoindex(chance.choice(children() or ["none"])), b"")

# Reads a setting by ethtool, changes some numbers, and writes it back: wake on LAN, the level of messages, coalescing,
# rings, pauses, private flags, channels, EEE, and a command that does not exist.
def ethtool():
    get = chance.choice([0x5, 0x7, 0xe, 0x10, 0x12, 0x27, 0x3c, 0x44, 0x7ffe])
    memory = ctypes.create_string_buffer(512)
    asked = struct.pack("16sQ16x", b"ib0", ctypes.addressof(memory))
    struct.pack_into("=I", memory, 0, get)
    fcntl.ioctl(plain, 0x8946, asked)
    for _ in range(chance.randrange(3)):
        value = chance.choice([0, 1, 64, 256, 1024]) if chance.random() < 0.7 else number()
        struct.pack_into("=I", memory, 4 * chance.randrange(1, 24), value)
    struct.pack_into("=I", memory, 0, get + 1)
    fcntl.ioctl(plain, 0x8946, asked)

# CTRL_CMD_GETFAMILY with CTRL_ATTR_FAMILY_NAME: what comes has the name, too, and then the number.
answer, = exchange(genl, 16, 0, struct.pack("=BBH", 3, 1, 0) + attribute(2, b"ethtool\0"))
family, = struct.unpack_from("=H", answer, answer.index(struct.pack("=HH", 6, 1)) + 4)

NESTED = 0x8000
# What is in a nested attribute: a set of bits, or something else.
BITS, OTHER = "bits", "other"
# Messages of ethtool's generic netlink (linux/ethtool_netlink_generated.h), with the lengths of their attributes, less the
# first one, which is the header. Those that change something:
SETS = {
    3: {2: 1, 3: 1, 5: 1},                                           # LINKINFO
    5: {2: 1, 3: BITS, 5: 4, 6: 1, 7: 1, 9: 4},                      # LINKMODES
    8: {2: BITS},                                                    # DEBUG
    10: {2: BITS, 3: 6},                                             # WOL
    12: {3: BITS},                                                   # FEATURES
    14: {2: BITS},                                                   # PRIVFLAGS
    16: {6: 4, 7: 4, 8: 4, 9: 4, 10: 4, 11: 1, 12: 4, 13: 1, 17: 4}, # RINGS
    18: {6: 4, 7: 4, 8: 4, 9: 4},                                    # CHANNELS
    20: {2: 4, 3: 4, 4: 4, 6: 4, 11: 1, 17: 4, 24: 1, 29: OTHER},    # COALESCE
    22: {2: 1, 3: 1, 4: 1},                                          # PAUSE
    24: {2: BITS, 5: 1, 6: 1, 7: 4},                                 # EEE
    26: {},                                                          # CABLE_TEST
    27: {2: OTHER},                                                  # CABLE_TEST_TDR
    30: {2: BITS, 3: 1},                                             # FEC
    35: {2: 1},                                                      # MODULE
    37: {3: 4, 6: 4, 14: 4},                                         # PSE
    40: {3: 1, 5: 4, 6: 4},                                          # PLCA
    43: {2: 1, 3: 1, 7: 1, 9: 4},                                    # MM
    44: {2: 8, 3: 4},                                                # MODULE_FW_FLASH
    47: {2: OTHER, 3: BITS, 4: BITS, 5: 4},                          # TSCONFIG
    48: {2: 4, 3: 4, 4: 64, 5: 40, 6: 4, 8: OTHER},                  # RSS
    49: {2: 4, 3: 4, 4: 64, 5: 40},                                  # RSS_CREATE
    50: {2: 4},                                                      # RSS_DELETE
}
# Those that ask.
GETS = {number: {} for number in (2, 4, 6, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 28, 29, 33, 34, 36, 39, 41, 42, 45, 46, 51)}
GETS |= {1: {2: OTHER, 3: 0}, 31: {2: 4, 3: 4, 4: 1, 5: 1, 6: 1}, 32: {3: BITS, 5: 4}, 38: {2: 4, 7: 4}}
FEATURES = ["rx-gro", "tx-scatter-gather", "tx-generic-segmentation", "tx-tcp-segmentation", "tx-checksum-ipv4", "rx-checksum",
            "highdma", "hw-tc-offload", "loopback", "none", ""]

# A set of bits, as words or one by one.
def bits():
    if chance.random() < 0.5:
        data = attribute(2, value(4))
        for kind in chance.sample([1, 4, 5], chance.randrange(4)):
            data += attribute(kind, b"" if kind == 1 else chance.randbytes(4 * chance.randrange(4)))
        return data
    data = b""
    for _ in range(chance.randrange(3)):
        name = attribute(2, chance.choice(FEATURES).encode() + b"\0")
        bit = chance.choice([name, name, attribute(1, value(4))])
        data += attribute(1 | NESTED, bit + (attribute(3, b"") if chance.random() < 0.5 else b""))
    return attribute(3 | NESTED, data)

# Attributes in attributes, of which most are no good.
def nest(depth=3):
    data = b""
    for _ in range(chance.randrange(3)):
        inner = nest(depth - 1) if depth and chance.random() < 0.5 else value(4)
        data += attribute(chance.randrange(4) | chance.choice([0, NESTED]), inner)
    return data

# The header: which interface, by its number or its name or both, and flags.
def header():
    name = chance.choice(["ib0"] * 12 + children() + ["none", "", "x" * 40])
    known = name == "ib0" or name in children()
    number = socket.if_nametoindex(name) if known else chance.choice([0, 0x7fffffff, 0xffffffff])
    data = b""
    if chance.random() < 0.5:
        data += attribute(1, struct.pack("=I", number))
    if not data or chance.random() < 0.2:
        data += attribute(2, name.encode() + b"\0")
    if chance.random() < 0.3:
        data += attribute(3, struct.pack("=I", chance.choice([1, 2, 3, 4, 7, 0xffffffff])))
    if chance.random() < 0.05:
        data += nest()
    return data

def ask_ethtool(number, kinds, chosen, flags=0):
    # Only statistics have it elsewhere.
    data = b"" if chance.random() < 0.03 else attribute((2 if number == 32 else 1) | NESTED, header())
    for kind in chosen:
        length = kinds.get(kind, 4)
        if length == BITS:
            data += attribute(kind | NESTED, bits())
        elif length == OTHER:
            data += attribute(kind | NESTED, nest())
        else:
            data += attribute(kind, value(length) if length else b"")
    if chance.random() < 0.05:
        data += chance.randbytes(chance.randrange(12))
    if chance.random() < 0.03:
        data = data[:chance.randrange(len(data) + 1)]
    exchange(genl, family, flags, struct.pack("=BBH", number, 1, 0) + data)

# Some of a message's attributes, and now and then one that it does not have.
def some(kinds):
    chosen = chance.sample(sorted(kinds), min(chance.randrange(4), len(kinds)))
    return chosen + [chance.randrange(64)] * (chance.random() < 0.1)

def ethtool_get():
    number = chance.choice(sorted(GETS))
    ask_ethtool(number, GETS[number], some(GETS[number]), chance.choice([0, 0, DUMP]))

# Half of them are what the driver knows, its rings and its coalescing, mostly with numbers that it takes.
def ethtool_set():
    if chance.random() < 0.5:
        number = chance.choice(sorted(SETS))
        return ask_ethtool(number, SETS[number], some(SETS[number]), DUMP * (chance.random() < 0.05))
    number, kinds, numbers = chance.choice([(16, [6, 9], [64, 128, 256, 1024]), (20, [2, 3], [0, 1, 8, 100])])
    data = attribute(1 | NESTED, attribute(2, b"ib0\0"))
    for kind in chance.sample(kinds, chance.randrange(3)):
        data += attribute(kind, struct.pack("=I", chance.choice(numbers)) if chance.random() < 0.7 else value(4))
    exchange(genl, family, 0, struct.pack("=BBH", number, 1, 0) + data)

def write(path, data):
    with open(path, "wb", buffering=0) as file:
        file.write(data.encode())

# Writable files.
def files(pattern):
    return sorted(path for path in glob.glob(pattern) if os.path.isfile(path) and os.stat(path).st_mode & 0o200)

def sysfs():
    write(chance.choice(files("/sys/class/net/ib0/*") + files("/sys/class/net/ib0/queues/*/*")), text())

def sysctl():
    write(chance.choice(files("/proc/sys/net/*/ib0/*") + files("/proc/sys/net/*/neigh/ib0/*")), text())

def read(path):
    try:
        return Path(path).read_text()
    except OSError:
        return None

# The carrier and the flags are state, not settings.
def settings():
    found = files("/sys/class/net/ib0/*") + files("/sys/class/net/ib0/queues/*/*")
    found += files("/proc/sys/net/*/ib0/*") + files("/proc/sys/net/*/neigh/ib0/*")
    return {path: read(path) for path in found if Path(path).name not in ("carrier", "flags")}

def directory():
    below = [path for path in fabrics.rglob("*") if path.is_dir() and "thrown" in path.parts] or [fabrics]
    return chance.choice(sorted(below))

def configfs():
    what = chance.randrange(4)
    if what == 0:
        if (fabrics / "thrown").exists():
            (directory() / chance.choice(["a", "b", "c", "x" * 200, "é"])).mkdir()
        else:
            (fabrics / "thrown").mkdir()
    elif what == 1:
        directory().rmdir()
    else:
        files = [path for path in (fabrics / "thrown").rglob("*") if path.is_file() and os.stat(path).st_mode & 0o200]
        ends = ["a 1", "b 2", "c 1", "a 0", "a 256", "roce", "infiniband", "0x1122334455667788", "100", "4x", "HDR"]
        write(chance.choice(sorted(files) or [fabrics / "none"]), chance.choice(ends) if chance.random() < 0.5 else text())

if fabrics:
    kinds = [configfs]
else:
    kinds = [change, add, delete, ethtool, ethtool_get, ethtool_set, sysfs, sysctl]
    before = settings()
results = {kind.__name__: [0, 0] for kind in kinds}
for _ in range(count):
    kind = chance.choice(kinds)
    try:
        kind()
        results[kind.__name__][0] += 1
    except OSError:
        results[kind.__name__][1] += 1
if fabrics:
    # Inner directories first. The kernel removes its own with their parents.
    for path in sorted((fabrics / "thrown").rglob("*"), key=lambda path: -len(path.parts)):
        try:
            path.rmdir()
        except OSError:
            pass
    if (fabrics / "thrown").exists():
        (fabrics / "thrown").rmdir()
else:
    for child in children():
        call(DELLINK, 0, socket.if_nametoindex(child), b"")
    call(NEWLINK, 0, socket.if_nametoindex("ib0"), b"", 0, UP)
    for path, content in before.items():
        if content is not None and read(path) != content:
            write(path, content or "\n")
    assert settings() == before, set(settings().items()) ^ set(before.items())
for name, (taken, refused) in results.items():
    print("thrown:", name, taken, refused)
