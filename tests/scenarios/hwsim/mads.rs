// SPDX-License-Identifier: GPL-2.0

//! MADs that no honest program sends, written to umad: to the own agents, and over the cable to the other HCA's.

use super::manager::Manager;
use super::{EXCLUSIVE, Port, active, hca, ipoib_up};
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

/// Opens the umad device of an HCA, with an agent on QP0 and one on QP1 (`<rdma/ib_user_mad.h>`).
pub(super) const UMAD: &str = r#"
import fcntl, glob, os, random, select, struct, sys

def open_umad(hca):
    for path in glob.glob("/sys/class/infiniband_mad/umad*"):
        if open(path + "/ibdev").read().strip() == hca:
            fd = os.open("/dev/infiniband/" + os.path.basename(path), os.O_RDWR | os.O_NONBLOCK)
            # IB_USER_MAD_ENABLE_PKEY: headers have a P_Key index.
            fcntl.ioctl(fd, 0x1b03)
            return fd
    sys.exit("no umad device of " + hca)

def register(fd, qpn):
    # For no class: it gets the answers to what it sends, and nothing else.
    request = bytearray(struct.pack("=I16sBBB3sB", 0, bytes(16), qpn, 0, 0, bytes(3), 0) + bytes(1))
    # IB_USER_MAD_REGISTER_AGENT
    fcntl.ioctl(fd, 0xc01c1b01, request, True)
    return struct.unpack_from("=I", request)[0]

def envelope(agent, qpn=0, qkey=0, lid=0xffff, sl=0, bits=0, grh=0, index=0, gid=bytes(16), pkey=0, timeout=0, retries=0):
    return (struct.pack("=5I", agent, 0, timeout, retries, 0)
            + struct.pack("!IIHBBBBBB16sI", qpn, qkey, lid, sl, bits, grh, index, 64, 0, gid, 0)
            + struct.pack("=H6x", pkey))

tid = 0
def mad(cls, method, attribute, modifier=0, body=b"", version=1, base=1, status=0, specific=0):
    global tid
    tid += 1
    head = struct.pack("!BBBBHHQHHI", base, cls, version, method, status, specific, tid, attribute, 0, modifier)
    return head + body.ljust(232, b"\0")

def directed(data, path=(1,), key=0, slid=0xffff, dlid=0xffff):
    initial = bytes([0, *path]).ljust(64, b"\0")[:64]
    return struct.pack("!QHH28x", key, slid, dlid) + data.ljust(64, b"\0") + initial + bytes(64)

def exchange(fd, request, limit):
    os.write(fd, request)
    if not select.select([fd], [], [], limit)[0]:
        sys.exit("no answer")
    answer = os.read(fd, 1024)
    return struct.unpack_from("=5I", answer)[1], answer[64:]

def node_guid(fd, agent, hops, limit):
    """NodeInfo of the HCA at the end of a directed route of so many hops."""
    request = mad(0x81, 1, 0x11, body=directed(b"", [1] * hops), specific=hops)
    status, answer = exchange(fd, envelope(agent, timeout=2000, retries=3) + request, limit)
    if status or len(answer) != 256:
        sys.exit("NodeInfo: status %d, %d bytes" % (status, len(answer)))
    return struct.unpack_from("!Q", answer, 64 + 12)[0]

fd = open_umad(sys.argv[1])
smi, gsi = register(fd, 0), register(fd, 1)
"#;

/// Sends what is malformed; prints how many were taken and refused, and both node GUIDs, before and after. Arguments:
/// HCA, how many rounds, limit for an answer in seconds, and the LIDs of this port and the other.
const MALFORMED: &str = r#"
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
"#;

scenario! {
    /// Malformed MADs are answered with a status, dropped or refused, on both HCAs; then opensm brings
    /// the ports to Active as ever, and packets pass.
    fn malformed_mads_do_no_harm(bed) {
        let rounds = if bed.kernel().is_checked() { 300 } else { 1500 };
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let manager = ipoib_up(&bed, "pair")?;
        a.ok(&format!("ping -q -c 3 -i 0.2 -W 5 {}", b.ip4()))?;
        let ports = [Port::of(a, &hca(a))?, Port::of(b, &hca(b))?];
        // It could be told to hand over to another SM, and would.
        manager.end()?;

        let [rounds, lid, peer_lid] = [rounds, ports[0].lid, ports[1].lid].map(|n| n.to_string());
        let limit = a.scaled(Duration::from_secs(15)).as_secs().to_string();
        let arguments = [&*hca(a), &rounds, &limit, &lid, &peer_lid];
        let limit = a.scaled(Duration::from_secs(60));
        let text = a.spawn_python(&format!("{UMAD}{MALFORMED}"), &arguments)?.wait(limit)?.ok()?;
        let words: Vec<&str> = text.split_whitespace().collect();
        ensure!(words.len() == 6, "{text}");
        let guids = ports.map(|port| format!("{:#x}", port.node_guid));
        ensure!(words[2..4] == guids && words[4..] == guids, "{text}");
        for count in &words[..2] {
            ensure!(count.parse::<u32>()? > 100, "taken or refused: {text}");
        }

        let manager = Manager::start(a, &hca(a), "")?;
        for (host, other) in [(a, b), (b, a)] {
            active(host, &hca(host))?;
            host.wait_until(&format!("ping -q -c 1 -W 1 {}", other.ip4()), Duration::from_secs(30))?;
            host.ok(&format!("ping -6 -q -c 3 -i 0.2 -W 5 {}", other.ip6()))?;
        }
        manager.kill()?;
        bed.finish()
    }
}
