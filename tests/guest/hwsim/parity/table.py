# SPDX-License-Identifier: GPL-2.0

# Puts an IPoIB driver through a table: every attribute with good and bad values, in every state of an interface. Arguments:
# the kind of link, the parent, and the file for the results, which say for each entry the error and what has changed.

import errno, fcntl, itertools, json, os, socket, struct, subprocess, sys, time

kind, parent, path = sys.argv[1:]
rtnl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
rtnl.bind((0, 0))
plain = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
results = {}

NEWLINK, DELLINK, GETLINK, SETLINK = 16, 17, 18, 19
ADDRESS, BROADCAST, IFNAME, MTU, LINK, TXQLEN, LINKMODE, LINKINFO, ALIAS, AF_SPEC, GROUP = 1, 2, 3, 4, 5, 13, 17, 18, 20, 26, 27
PROMISCUITY, TX_QUEUES, RX_QUEUES, CARRIER, PROTO_DOWN, GSO_SEGS, GSO_SIZE, GRO_SIZE = 30, 31, 32, 33, 39, 40, 41, 58
UP, NOARP, PROMISC, ALLMULTI, MULTICAST = 1, 0x80, 0x100, 0x200, 0x1000
FLAGS = UP | NOARP | PROMISC | ALLMULTI | MULTICAST
PKEY, MODE, UMCAST = 1, 2, 3

def attribute(number, data):
    return struct.pack("=HH", 4 + len(data), number) + data + bytes(-len(data) % 4)

def u32(number, value):
    return attribute(number, struct.pack("=I", value))

def u16(number, value):
    return attribute(number, struct.pack("=H", value))

def name(text):
    return attribute(IFNAME, text.encode() + b"\0")

def info(data=b""):
    return attribute(LINKINFO, attribute(1, kind.encode()) + attribute(2, data))

def call(number, flags=0, index=0, attributes=b"", value=0, mask=0):
    body = struct.pack("=BxHiII", 0, 0, index, value, mask) + attributes
    rtnl.send(struct.pack("=IHHII", 16 + len(body), number, flags | 5, 1, 0) + body)
    answer = rtnl.recv(65536)
    while struct.unpack_from("=H", answer, 4)[0] != 2:
        answer = rtnl.recv(65536)
    code = -struct.unpack_from("=i", answer, 16)[0]
    return errno.errorcode[code] if code else ""

def nested(data):
    found = {}
    while len(data) >= 4:
        length, number = struct.unpack_from("=HH", data)
        found[number & 0x3fff] = data[4:length]
        data = data[length + 3 & ~3:]
    return found

# All that is compared of an interface. The queue pair is the device's, and the flags of the address are the driver's.
def state(device):
    body = struct.pack("=BxHiII", 0, 0, socket.if_nametoindex(device), 0, 0)
    rtnl.send(struct.pack("=IHHII", 16 + len(body), GETLINK, 1, 1, 0) + body)
    answer = rtnl.recv(65536)
    flags, = struct.unpack_from("=I", answer, 24)
    found = nested(answer[32:])
    word = lambda number: struct.unpack("=I", found[number])[0]
    data = nested(nested(found[LINKINFO])[2])
    half = lambda number: struct.unpack("=H", data[number][:2])[0]
    inet6 = nested(nested(found[AF_SPEC]).get(10, b""))
    return {
        "flags": hex(flags & FLAGS), "mtu": word(MTU), "txqlen": word(TXQLEN), "group": word(GROUP),
        "alias": found.get(ALIAS, b"").decode(), "promiscuity": word(PROMISCUITY), "gid": found[ADDRESS][4:].hex(),
        "broadcast": found[BROADCAST].hex(), "linkmode": found[LINKMODE][0], "gso": word(GSO_SIZE), "segs": word(GSO_SEGS),
        "gro": word(GRO_SIZE), "pkey": hex(half(PKEY)), "mode": half(MODE), "umcast": half(UMCAST),
        "addrgen": inet6.get(8, b"\xff")[0],
    }

def write(device, file, text):
    try:
        with open(f"/sys/class/net/{device}/{file}", "wb", 0) as opened:
            opened.write(text.encode())
        return ""
    except OSError as error:
        return errno.errorcode[error.errno]

# Waits until an interface that is up has its group and the MTU that goes with it.
def settle(device):
    end = time.monotonic() + 60
    while open(f"/sys/class/net/{device}/carrier").read().strip() != "1":
        assert time.monotonic() < end, device
        time.sleep(0.01)

def up(device, yes=True):
    done = call(SETLINK, index=socket.if_nametoindex(device), value=UP if yes else 0, mask=UP)
    if yes and not done:
        settle(device)
    return done

# The attributes. Each entry: a name, and what does it to an interface and returns the error.
def setter(attributes, value=0, mask=0):
    return lambda device: call(SETLINK, index=socket.if_nametoindex(device), attributes=attributes, value=value, mask=mask)

# ib_ipoib drops RTNL while it changes its mode. If another task takes RTNL then, the request fails with EBUSY half way, and
# is repeated.
def change(device, attributes):
    for _ in range(100):
        error = call(NEWLINK, index=socket.if_nametoindex(device), attributes=attributes)
        if kind != "ipoib" or error != "EBUSY":
            break
    return error

def changer(data):
    return lambda device: change(device, info(data))

def writer(file, text):
    return lambda device: write(device, file, text)

def ethtool(arguments):
    option, rest = arguments.split(" ", 1)
    def run(device):
        return "" if subprocess.run(["ethtool", option, device, *rest.split()], capture_output=True).returncode == 0 else "refused"
    return run

def address_of(change):
    def run(device):
        known = bytes.fromhex(open(f"/sys/class/net/{device}/address").read().replace(":", ""))
        return call(SETLINK, index=socket.if_nametoindex(device), attributes=attribute(ADDRESS, change(known)))
    return run

MTUS = [0, 1, 67, 68, 71, 72, 1279, 1280, 1500, 2043, 2044, 2045, 4091, 4092, 4093, 65519, 65520, 65521, 0x7fffffff, 0xffffffff]
GUID = bytes.fromhex("02005efffe005399")
SCOPE5 = bytes.fromhex("00ffffffff15401bffff000000000000ffffffff")

def entries():
    for mtu in MTUS:
        yield f"mtu {mtu}", setter(u32(MTU, mtu))
    for mtu in 68, 2044, 4092, 65520, 65521:
        yield f"file mtu {mtu}", writer("mtu", str(mtu))
    for mode in 0, 1, 2, 0xffff:
        yield f"mode {mode}", changer(u16(MODE, mode))
    for umcast in 0, 1, 2, 0xffff:
        yield f"umcast {umcast}", changer(u16(UMCAST, umcast))
    for mode, umcast in itertools.product((1, 2), (1, 2)):
        yield f"mode {mode} umcast {umcast}", changer(u16(MODE, mode) + u16(UMCAST, umcast))
    for mode in 0, 1:
        for mtu in 2044, 4092, 65520:
            both = info(u16(MODE, mode)) + u32(MTU, mtu)
            yield f"mode {mode} mtu {mtu}", lambda device, both=both: change(device, both)
    for pkey in 0, 0x8000, 0x7fff, 0x8001, 0xffff:
        yield f"pkey {pkey:#x}", changer(u16(PKEY, pkey))
    for length in 0, 1, 128, 1000, 1 << 31:
        yield f"txqlen {length}", setter(u32(TXQLEN, length))
    for flag in PROMISC, ALLMULTI, NOARP:
        yield f"flag {flag:#x}", setter(b"", flag, flag)
    yield "no multicast", setter(b"", 0, MULTICAST)
    yield "alias", setter(attribute(ALIAS, b"name"))
    yield "group", setter(u32(GROUP, 7))
    for mode in range(5):
        yield f"addrgen {mode}", setter(attribute(AF_SPEC, attribute(10, attribute(8, bytes([mode])))))
    for size in 0, 1000, 65535, 65536, 65537, 524280, 524281:
        yield f"gso {size}", setter(u32(GSO_SIZE, size))
        yield f"gro {size}", setter(u32(GRO_SIZE, size))
    for segments in 0, 1, 65535, 65536:
        yield f"segs {segments}", setter(u32(GSO_SEGS, segments))
    for mode in 0, 1, 2:
        yield f"linkmode {mode}", setter(attribute(LINKMODE, bytes([mode])))
    for yes in 0, 1:
        yield f"carrier {yes}", setter(attribute(CARRIER, bytes([yes])))
        yield f"proto_down {yes}", setter(attribute(PROTO_DOWN, bytes([yes])))
        yield f"file threaded {yes}", writer("threaded", str(yes))
    yield "address same", address_of(lambda known: known)
    yield "address guid", address_of(lambda known: known[:12] + GUID)
    yield "address no guid", address_of(lambda known: known[:12] + bytes(8))
    yield "address prefix", address_of(lambda known: known[:4] + b"\xfe\x81" + known[6:])
    yield "address qpn", address_of(lambda known: known[:1] + b"\0\0\x99" + known[4:])
    for length in 0, 6, 19, 32:
        yield f"address {length}", address_of(lambda known, length=length: (known + bytes(12))[:length])
    for label, address in ("same", None), ("scope", SCOPE5), ("unicast", bytes(20)), ("short", bytes(6)):
        def brd(device, address=address):
            own = bytes.fromhex(state(device)["broadcast"])
            return call(SETLINK, index=socket.if_nametoindex(device), attributes=attribute(BROADCAST, address or own))
        yield f"broadcast {label}", brd
    for text in "datagram", "datagram\n", "connected", "connected\n", "Connected", "0", "":
        yield f"file mode {text!r}", writer("mode", text)
    for text in "0", "1", "1\n", "2", "0x1", "-1", "x", "":
        yield f"file umcast {text!r}", writer("umcast", text)
    for what in "tso on", "tso off", "tx on", "tx off", "rx on", "rx off", "sg off", "gso off", "gro off", "lro on", "rxvlan on":
        yield f"ethtool -K {what}", ethtool(f"-K {what}")
    for what in "rx-usecs 0", "rx-usecs 16 rx-frames 16", "rx-usecs 65535", "rx-usecs 65536", "rx-frames 65536", "tx-usecs 16", "adaptive-rx on":
        yield f"ethtool -C {what}", ethtool(f"-C {what}")
    yield "ethtool -G", ethtool("-G rx 256")

# Setters by which an interface is what it was before; the mode goes first, since it has a say in the MTU.
RESTORERS = {
    "mode": lambda device, value: changer(u16(MODE, value))(device),
    "mtu": lambda device, value: setter(u32(MTU, value))(device),
    "umcast": lambda device, value: changer(u16(UMCAST, value))(device),
    "txqlen": lambda device, value: setter(u32(TXQLEN, value))(device),
    "flags": lambda device, value: setter(b"", int(value, 16), FLAGS)(device),
    "alias": lambda device, value: setter(attribute(ALIAS, b"\0"))(device),
    "group": lambda device, value: setter(u32(GROUP, value))(device),
    "addrgen": lambda device, value: setter(attribute(AF_SPEC, attribute(10, attribute(8, bytes([value])))))(device),
    "gso": lambda device, value: setter(u32(GSO_SIZE, value))(device),
    "gro": lambda device, value: setter(u32(GRO_SIZE, value))(device),
    "segs": lambda device, value: setter(u32(GSO_SEGS, value))(device),
    "linkmode": lambda device, value: setter(attribute(LINKMODE, bytes([value])))(device),
    "broadcast": lambda device, value: setter(attribute(BROADCAST, bytes.fromhex(value)))(device),
    "gid": lambda device, value: address_of(lambda known: known[:4] + bytes.fromhex(value))(device),
}

def changes(before, after):
    return {key: value for key, value in after.items() if value != before[key]}

def run(key, entry, device, before):
    error = entry(device)
    changed = changes(before, state(device))
    if "gid" in changed:
        # The port's is the device's.
        changed["gid"] = changed["gid"][16:] if changed["gid"].endswith(GUID.hex()) else "another"
    results[key] = [error, changed]
    if "mtu" in key:
        # One that was asked for and is not in force is forgotten then.
        setter(u32(MTU, 1280))(device)
    for attribute_name, restore in RESTORERS.items():
        now = state(device)
        if now[attribute_name] != before[attribute_name]:
            restore(device, before[attribute_name])
    left = changes(before, state(device))
    assert not left, (key, left)

def every_entry(label, device):
    before = state(device)
    for text, entry in entries():
        run(f"{label}: {text}", entry, device, before)

def make(device, data=b"", others=b"", link=None):
    index = socket.if_nametoindex(parent if link is None else link)
    return call(NEWLINK, 0x600, attributes=name(device) + u32(LINK, index) + info(data) + others)

def delete(device):
    return call(DELLINK, attributes=name(device))

plain_state = {}

def created(key, *arguments):
    error = make("made", *arguments)
    shown = {}
    if not error:
        shown = changes(plain_state, state("made"))
        if "gid" in shown:
            shown["gid"] = shown["gid"][16:]
        delete("made")
    results[key] = [error, shown]

def creations():
    assert not make("made")
    plain_state.update(state("made"))
    delete("made")
    pkeys, modes, umcasts = [None, 0x8001, 0x7fff, 0, 0x8000], [None, 1, 2], [None, 1, 2]
    for pkey, mode, umcast in itertools.product(pkeys, modes, umcasts):
        data = b"".join(u16(number, value) for number, value in ((PKEY, pkey), (MODE, mode), (UMCAST, umcast)) if value is not None)
        created(f"add: pkey {pkey} mode {mode} umcast {umcast}", data)
    for mtu in MTUS:
        created(f"add: mtu {mtu}", b"", u32(MTU, mtu))
        created(f"add: mtu {mtu} connected", u16(MODE, 1), u32(MTU, mtu))
    own = bytes.fromhex(open(f"/sys/class/net/{parent}/address").read().replace(":", ""))
    for label, address in ("own", own), ("guid", own[:12] + GUID), ("qpn", own[:1] + b"\0\0\x99" + own[4:]), ("no guid", own[:12] + bytes(8)), ("short", own[:6]), ("long", own + bytes(12)):
        created(f"add: address {label}", b"", attribute(ADDRESS, address))
    for label, address in ("scope", SCOPE5), ("unicast", bytes(20)), ("short", bytes(6)):
        created(f"add: broadcast {label}", b"", attribute(BROADCAST, address))
    for count in 0, 1, 2, 4096, 4097:
        created(f"add: tx queues {count}", b"", u32(TX_QUEUES, count))
        created(f"add: rx queues {count}", b"", u32(RX_QUEUES, count))
    created("add: txqlen", b"", u32(TXQLEN, 7))
    created("add: group", b"", u32(GROUP, 7))
    created("add: addrgen", b"", attribute(AF_SPEC, attribute(10, attribute(8, b"\1"))))
    created("add: on lo", b"", b"", "lo")
    make("child", u16(PKEY, 0x8001))
    created("add: on a child", b"", b"", "child")
    results["add: the same name"] = [make("child", u16(PKEY, 0x8001)), {}]
    delete("child")

CHILDREN = ["0x8001", "0x0001", "1", "32769", "010", "8", "0x1", "0x8002\n", "0x8003 x", " 0x8004", "0", "0x8000", "-1", "65536", "0x18001", "x", "0x", "", "0xffff", "0x7fff"]

# ib_ipoib's children are in the first namespace.
NETWORK = ("/proc/1/root" if kind == "ipoib" else "") + "/sys/class/net"

def children_by_file():
    known = set(os.listdir(NETWORK))
    def new():
        return sorted(set(os.listdir(NETWORK)) - known)
    def delete_all():
        for device in new():
            try:
                pkey = open(f"{NETWORK}/{device}/pkey").read().strip()
            except OSError:
                # It is being deleted.
                continue
            write(parent, "delete_child", pkey)
        end = time.monotonic() + 60
        while new():
            assert time.monotonic() < end, new()
            time.sleep(0.01)
    for text in CHILDREN:
        error = write(parent, "create_child", text)
        shown = {device.replace(parent, ""): open(f"{NETWORK}/{device}/pkey").read().strip() for device in new()}
        results[f"create_child {text!r}"] = [error, shown]
        results[f"create_child {text!r} again"] = [write(parent, "create_child", text), {}]
        delete_all()
    for text in CHILDREN:
        write(parent, "create_child", "0x8001")
        results[f"delete_child {text!r}"] = [write(parent, "delete_child", text), {}]
        delete_all()

# Whatever follows whatever of what has a say in the MTU, before the interface goes up and while it is.
def orders(label, device, finish):
    alphabet = {f"mtu {mtu}": setter(u32(MTU, mtu)) for mtu in (1280, 2044, 2045, 4092, 65520)}
    alphabet["connected"] = changer(u16(MODE, 1))
    alphabet["datagram"] = changer(u16(MODE, 0))
    for first, second in itertools.product(alphabet, repeat=2):
        errors = [alphabet[first](device), alphabet[second](device)]
        now = state(device)
        shown = {"mtu": now["mtu"], "mode": now["mode"]}
        finish(device, shown)
        results[f"{label}: {first}, {second}"] = [" ".join(errors).strip(), shown]
        changer(u16(MODE, 1))(device)
        setter(u32(MTU, 65520))(device)
        changer(u16(MODE, 0))(device)

def and_up(device, shown):
    up(device)
    shown["up"] = state(device)["mtu"]
    up(device, False)

every_entry("down", parent)
up(parent)
every_entry("up", parent)
orders("up", parent, lambda device, shown: None)
changer(u16(MODE, 1))(parent)
setter(u32(MTU, 65520))(parent)
every_entry("connected", parent)
changer(u16(MODE, 0))(parent)
make("child", u16(PKEY, 0x8001))
orders("down", "child", and_up)
every_entry("child", "child")
up("child")
every_entry("child up", "child")
delete("child")
creations()
children_by_file()
with open(path, "w") as file:
    json.dump(results, file)
print(len(results), "entries")
