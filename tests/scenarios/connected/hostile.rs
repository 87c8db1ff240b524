// SPDX-License-Identifier: GPL-2.0

//! A peer that has a connection and keeps to nothing else, made by hand.

use super::forged::REQUEST;
use super::{connect, story, up};
use crate::inspect::{directory, identity, table};
use crate::order::{counter, set};
use crate::transfer::{Transfer, transfer};
use anyhow::{Result, bail, ensure};
use lab::machine::Task;
use lab::{forge, scenario};
use std::time::{Duration, Instant};

/// Whom it takes itself for: nobody else answers in this name.
const NAME: &str = "fe80::bad";

/// Asks for a connection as one of ours does, and confirms it; acknowledges whatever comes by it, and sends
/// again what did not get through. The third argument is its name.
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
    global acknowledged, number
    while True:
        opcode, at, body = receive(wait)
        if opcode is None:
            return
        # Not ready, or something is missing.
        if opcode == 0x11 and body[0] >> 5 in (1, 3):
            number = at
        elif opcode < 6:
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

/// Messages that make no sense, and a good one, fewer than it may send: prints how many are too short, of a
/// type that there is not, extended and wrong. Between them, grants of anything, which take no room.
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
print("sent", len(short), len(unknown), len(wrong), flush=True)
acknowledge(5)
"#;

/// Far more messages than it may send, as fast as they go, for some seconds.
const FLOOD: &str = r#"
print("ready", flush=True)
end = time.monotonic() + 4
while time.monotonic() < end:
    for n in range(16):
        post(good)
    acknowledge(0)
acknowledge(5)
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
        // Where all is slow, what the forger does takes longer than a connection may be idle.
        for host in [a, b] {
            set(host, "rc_idle_s", 3600)?;
        }
        connect(a, b)?;
        let mac = c.ok("cat /sys/class/net/eth0/address")?;
        b.ok(&format!("ip neigh replace {NAME} lladdr {} dev eth0 nud permanent", mac.trim()))?;
        let act = |what: &str| -> Result<Task> {
            let program = forge::program(c, b, &format!("{REQUEST}{CONNECTION}{what}"))?;
            let (gid, qpn) = identity(a)?;
            c.spawn_python(&program, &[&gid, &qpn, NAME])
        };
        let limit = b.scaled(Duration::from_secs(30));
        // What came by its connection, which is up.
        let came = || -> Result<u64> {
            let rows = table(b, &format!("{}/connections", directory(b, "ib0")?))?;
            let its = rows.iter().filter(|row| row["gid"] == NAME && row["state"] == "up");
            let counts = its.map(|row| row["rx_frames"].parse());
            Ok(counts.collect::<Result<Vec<u64>, _>>()?.into_iter().max().unwrap_or(0))
        };

        let names = ["rx_drop_short", "rx_drop_ether_type", "rx_drop_bad_extended"];
        let before: Vec<u64> = names.iter().map(|name| counter(b, name)).collect::<Result<_>>()?;
        let forger = act(NONSENSE)?;
        forger.wait_for("sent", limit)?;
        let begun = Instant::now();
        while came()? != 1 {
            ensure!(begun.elapsed() < b.scaled(Duration::from_secs(4)), "{} came: {}", came()?, story(b));
        }
        let text = forger.wait(limit)?.ok()?;
        let sent = text.split_whitespace().filter_map(|word| word.parse::<u64>().ok());
        for ((name, before), sent) in names.iter().zip(before).zip(sent) {
            let dropped = counter(b, name)? - before;
            ensure!(dropped == sent && sent > 0, "{name}: {dropped} of {sent}: {}", story(b));
        }

        let forger = act(FLOOD)?;
        forger.wait_for("ready", limit)?;
        let flows = [
            Transfer::start(a, b, &b.ip4(), 1, 3)?,
            Transfer::start(b, a, &a.ip4(), 1, 3)?,
        ];
        for flow in flows {
            flow.finish()?;
        }
        let flood = came()?;
        ensure!(flood > 200, "{flood} came: {}", story(b));
        forger.wait(limit)?.ok()?;
        ensure!(counter(a, "rc_connected")? == 1 && counter(a, "rc_stuck")? == 0, "{}{}", story(a), story(b));
        transfer(a, b, &b.ip4(), 1)?;
        bed.finish()
    }
}
