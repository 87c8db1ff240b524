// SPDX-License-Identifier: GPL-2.0

//! Packets that no honest peer sends, put on the wire by hand with a valid ICRC.

use crate::bed::Host;
use anyhow::{Result, ensure};

/// Forges UD datagrams, and whatever else has a BTH: RoCEv2 over IPv6 in an Ethernet frame, ICRC by IBA
/// annex A17.
const FORGE: &str = r#"
import os, random, socket, struct, sys, zlib
own_mac, own_gid, own_qpn = own
mac, gid, qpn = other
hexed = lambda s: bytes.fromhex(s.replace(":", ""))
own_mac, mac = hexed(own_mac), hexed(mac)
own_gid, gid = socket.inet_pton(socket.AF_INET6, own_gid), socket.inet_pton(socket.AF_INET6, gid)
qpn, own_qpn, qkey = int(qpn, 0), int(own_qpn, 0), 0x80010b1b
group = socket.inet_pton(socket.AF_INET6, "ff12:401b:ffff::ffff:ffff")
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind(("eth0", 0))
psn = 0

def packet(opcode, to_qpn, number, headers, payload, to, source, ask=False):
    pad = -len(payload) % 4
    bth = struct.pack("!BBHII", opcode, 0x40 | pad << 4, 0xffff, to_qpn, ask << 31 | number)
    body = headers + payload + bytes(pad)
    length = 8 + len(bth) + len(body) + 4
    ip = struct.pack("!IHBB", 6 << 28, length, 17, 64) + source + to
    masked_ip = struct.pack("!IHBB", 0x6fffffff, length, 17, 255) + source + to
    udp = struct.pack("!HHH", 0xc000, 4791, length)
    masked_bth = bth[:4] + b"\xff" + bth[5:]
    icrc = zlib.crc32(b"\xff" * 8 + masked_ip + udp + b"\xff\xff" + masked_bth + body)
    datagram = udp + b"\0\0" + bth + body + struct.pack("<I", icrc)
    # The UDP checksum is wanted over IPv6.
    summed = source + to + struct.pack("!II", length, 17) + datagram + bytes(len(datagram) % 2)
    total = sum(struct.unpack("!%dH" % (len(summed) // 2), summed))
    while total >> 16:
        total = (total & 0xffff) + (total >> 16)
    datagram = udp + struct.pack("!H", ~total & 0xffff or 0xffff) + datagram[8:]
    ether = (b"\x33\x33" + to[12:] if to[0] == 0xff else mac) + own_mac + b"\x86\xdd"
    return ether + ip + datagram

def frame(payload, to=None, source=None, source_qpn=None, to_qpn=None, key=None):
    global psn
    psn = (psn + 1) & 0xffffff
    to = to or gid
    source_qpn = own_qpn if source_qpn is None else source_qpn
    to_qpn = (0xffffff if to == group else qpn) if to_qpn is None else to_qpn
    deth = struct.pack("!II", qkey if key is None else key, source_qpn)
    return packet(0x64, to_qpn, psn, deth, payload, to, source or own_gid)

def send(payload, **fields):
    s.send(frame(payload, **fields))
"#;

/// Numbered frames, each from a source of its own and with something that is no packet in it. Two
/// arguments: how many, and how many a second; 0 for as many as go.
pub const SOURCES: &str = r#"
import time
count, rate = int(sys.argv[1]), float(sys.argv[2])
prefix = socket.inet_pton(socket.AF_INET6, "fe80::")[:8]
frames = [
    frame(struct.pack("!HH", 0x0800, 1 + n % 65535) + b"\0" * 20, source=prefix + os.urandom(8), source_qpn=2 + n)
    for n in range(count)
]
print("ready", flush=True)
start = time.monotonic()
for n, ready in enumerate(frames):
    if rate and n % 16 == 0:
        wait = start + n / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
    s.send(ready)
print("done", flush=True)
"#;

/// A program for `own` that forges frames to `other`, and then does `what`.
pub fn program(own: &Host, other: &Host, what: &str) -> Result<String> {
    let (own, other) = (identity(own)?, identity(other)?);
    Ok(format!("own, other = {own:?}, {other:?}\n{FORGE}{what}"))
}

/// A host's Ethernet address, GID and QPN.
fn identity(host: &Host) -> Result<(String, String, String)> {
    let mac = host
        .ok("cat /sys/class/net/eth0/address")?
        .trim()
        .to_owned();
    let address = host.ok("cat /sys/class/net/ib0/address")?;
    let octets: Vec<&str> = address.trim().split(':').collect();
    ensure!(octets.len() == 20, "{address}");
    let gid: Vec<String> = octets[4..].chunks(2).map(|c| c.concat()).collect();
    Ok((mac, gid.join(":"), format!("0x{}", octets[1..4].concat())))
}
