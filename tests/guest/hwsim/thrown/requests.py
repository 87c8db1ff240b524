# SPDX-License-Identifier: GPL-2.0

# Makes random requests of ib0 and its children, or, if a third argument names the directory of fabrics in configfs, of a
# fabric of its own. Arguments: seed, number of requests, directory. Prints how many requests of each kind were taken and
# refused. Without a directory, the files in sysfs and the sysctls have the contents afterwards that they had before.

import ctypes, fcntl, glob, os, random, socket, struct, sys
from pathlib import Path

seed, count, fabrics = int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]) if len(sys.argv) > 3 else None
chance = random.Random(seed)
rtnl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)

NEWLINK, DELLINK, REQUEST, ACK, EXCL, CREATE = 16, 17, 1, 4, 0x200, 0x400
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

def call(number, flags, index, attributes, state=0, mask=0):
    body = struct.pack("=BxHiII", 0, 0, index, state, mask) + attributes
    rtnl.send(struct.pack("=IHHII", 16 + len(body), number, flags | REQUEST | ACK, 1, 0) + body)
    answer = rtnl.recv(65536)
    while struct.unpack_from("=H", answer, 4)[0] != 2:
        answer = rtnl.recv(65536)
    code = -struct.unpack_from("=i", answer, 16)[0]
    if code:
        raise OSError(code, os.strerror(code))

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
    kinds = [change, add, delete, ethtool, sysfs, sysctl]
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
