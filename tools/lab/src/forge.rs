// SPDX-License-Identifier: GPL-2.0

//! Packets that no honest peer sends, put on the wire by hand with a valid ICRC.

use crate::bed::Host;
use anyhow::{Result, ensure};

const FORGE: &str = include_str!("../../../tests/guest/forge/forge.py");

/// Numbered frames, each from a source of its own and with something that is no packet in it. Two
/// arguments: how many, and how many a second; 0 for as many as go.
pub const SOURCES: &str = include_str!("../../../tests/guest/forge/sources.py");

/// A program for `own` that forges frames to `other`, and then does `what`.
pub fn program(own: &Host, other: &Host, what: &str) -> Result<String> {
    Ok(between(&identity(own)?, &identity(other)?, what))
}

/// A program that forges frames between ends of which Ethernet address, GID and QPN are given.
#[must_use]
pub fn between(own: &[String; 3], other: &[String; 3], what: &str) -> String {
    format!("own, other = {own:?}, {other:?}\n{FORGE}{what}")
}

/// A host's Ethernet address, GID and QPN.
fn identity(host: &Host) -> Result<[String; 3]> {
    let mac = host
        .ok("cat /sys/class/net/eth0/address")?
        .trim()
        .to_owned();
    let address = host.ok("cat /sys/class/net/ib0/address")?;
    let bytes: Vec<&str> = address.trim().split(':').collect();
    ensure!(bytes.len() == 20, "{address}");
    let gid: Vec<String> = bytes[4..].chunks(2).map(|c| c.concat()).collect();
    Ok([mac, gid.join(":"), format!("0x{}", bytes[1..4].concat())])
}
