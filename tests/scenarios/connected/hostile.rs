// SPDX-License-Identifier: GPL-2.0

//! A peer that has a connection and keeps to nothing else, made by hand.

use super::forged::REQUEST;
use super::{connect, story, up};
use crate::inspect::identity;
use crate::order::counter;
use crate::transfer::{Transfer, transfer};
use anyhow::{Result, bail, ensure};
use lab::{forge, scenario};

/// Whom it takes itself for: nobody else answers in this name.
const NAME: &str = "fe80::bad";

/// Asks for a connection as one of ours does, and confirms it; acknowledges whatever comes by it. The third
/// argument is its name.
const CONNECTION: &str = r#"
import select, time
me = socket.inet_pton(socket.AF_INET6, sys.argv[3])
tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(0x86dd))
tap.bind(("eth0", 0x86dd))

def receive(wait):
    end = time.monotonic() + wait
    while select.select([tap], [], [], max(0, end - time.monotonic()))[0]:
        data = tap.recv(65536)
        if data[20] == 17 and data[38:54] == me and data[56:58] == struct.pack("!H", 4791):
            opcode, _, _, _, number = struct.unpack_from("!BBHII", data, 62)
            return opcode, number & 0xffffff, data[74:-4]
    return None, 0, b""

def management(attribute, data):
    head = struct.pack("!BBBBHHQHHI", 1, 7, 2, 3, 0, 0, count, attribute, 0, 0)
    send(head + data + bytes(232 - len(data)), source=me, source_qpn=1, to_qpn=1, key=0x80010000)

request(private(qpn=0x777), sender=me)
while True:
    opcode, _, body = receive(10)
    if opcode is None:
        sys.exit("no answer")
    # Behind DETH and the header of the datagram: REP, or REJ.
    if opcode == 0x64 and body[24:26] == b"\0\x13":
        break
    if opcode == 0x64 and body[24:26] == b"\0\x12":
        sys.exit("refused")
answer = body[32:]
other_id, = struct.unpack_from("!I", answer)
other_qpn = struct.unpack_from("!I", answer, 12)[0] >> 8
# With which its receiver wants to begin (section 12.7.31).
number = struct.unpack_from("!I", answer, 20)[0] >> 8
magic, window = struct.unpack_from("!8x4s2xH", answer, 36)
assert magic == b"iprs", answer
management(0x14, struct.pack("!II", count, other_id))
acknowledged = 0

def acknowledge(wait):
    global acknowledged
    while True:
        opcode, at, _ = receive(wait)
        if opcode is None:
            return
        if opcode < 6:
            acknowledged += 1
            aeth = struct.pack("!I", 0x1f << 24 | acknowledged)
            s.send(packet(0x11, other_qpn, at, aeth, b"", gid, me))

def post(message):
    global number
    s.send(packet(0x04, other_qpn, number, b"", message, gid, me, ask=True))
    number = (number + 1) & 0xffffff

ip = struct.pack("!BBHHHBBH", 0x45, 0, 28, 1, 0, 64, 253, 0) + socket.inet_aton("10.1.0.99") + socket.inet_aton("10.1.0.2")
good = struct.pack("!HH", 0x0800, 0) + ip + bytes(8)
"#;

/// Messages that make no sense, fewer than it may send: prints how many are too short, of a type that
/// there is not, extended and wrong. Between them, grants of anything, which take no room.
const NONSENSE: &str = r#"
extended = struct.pack("!HH", 0x0101, 0)
short = [bytes(n) for n in range(4)] + [good[:4], extended, extended + bytes(11)]
unknown = [struct.pack("!HH", t, 0) + bytes(40) for t in (0, 0x88cc, 0xffff)]
tcp = bytes((1, 1, 5, 168, 0, 20, 0, 16, 8, 0, 0, 0))
wrong = [extended + bytes(12) + b"\0", extended + tcp + ip, extended + b"\xff" + tcp[1:] + ip + bytes(40)]
wrong += [extended + os.urandom(n) for n in (12, 60, 1000, 4000)]
messages = short + unknown + wrong
random.shuffle(messages)
assert len(messages) + 1 < window, window
for message in messages:
    post(message)
    for _ in range(3):
        post(extended + bytes(10) + os.urandom(2))
    acknowledge(0)
post(good)
acknowledge(0.5)
print(len(short), len(unknown), len(wrong))
"#;

/// Far more messages than it may send, as fast as they go.
const FLOOD: &str = r#"
for n in range(5000):
    post(good)
    if n % 16 == 0:
        acknowledge(0)
acknowledge(0.5)
"#;

scenario! {
    /// What makes no sense is dropped and counted, message by message, and the connection stays. One that
    /// sends without minding what it may send harms nobody else.
    fn a_peer_that_keeps_to_nothing(bed) {
        let bed = bed.hosts(3).up()?;
        up(&bed)?;
        let [a, b, c] = bed.hosts.as_slice() else {
            bail!("no three hosts");
        };
        connect(a, b)?;
        let mac = c.ok("cat /sys/class/net/eth0/address")?;
        b.ok(&format!("ip neigh replace {NAME} lladdr {} dev eth0 nud permanent", mac.trim()))?;
        let act = |what: &str| -> Result<String> {
            let program = forge::program(c, b, &format!("{REQUEST}{CONNECTION}{what}"))?;
            let (gid, qpn) = identity(a)?;
            c.python(&program, &[&gid, &qpn, NAME])?.ok()
        };
        let names = ["rx_drop_short", "rx_drop_ether_type", "rx_drop_bad_extended", "rc_rx_frames"];
        let counts = || -> Result<Vec<u64>> { names.iter().map(|name| counter(b, name)).collect() };

        let before = counts()?;
        let mut sent: Vec<u64> = act(NONSENSE)?
            .split_whitespace()
            .map(str::parse)
            .collect::<Result<_, _>>()?;
        sent.push(1);
        for (((name, before), after), sent) in names.iter().zip(before).zip(counts()?).zip(sent) {
            ensure!(after - before == sent, "{name}: {before}, {after} after {sent}: {}", story(b));
        }
        ensure!(counter(b, "rc_failed")? == 0 && counter(b, "rc_stuck")? == 0, "{}", story(b));

        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 3)?,
            Transfer::start(b, a, &a.ip4(), 1, 3)?,
        ];
        let before = counter(b, "rc_rx_frames")?;
        act(FLOOD)?;
        ensure!(counter(b, "rc_rx_frames")? - before > 1000, "it sends nothing: {}", story(b));
        for flow in flows {
            flow.finish()?;
        }
        ensure!(counter(a, "rc_connected")? == 1 && counter(a, "rc_stuck")? == 0, "{}", story(a));
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
