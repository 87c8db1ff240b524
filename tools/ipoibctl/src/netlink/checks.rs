// SPDX-License-Identifier: GPL-2.0

//! Checks of answers of rtnetlink.

use super::{ADDRESS, LINK, NEIGHBOUR, address, attributes, link, messages, neighbour};

/// Checks a datagram: what is read of it is in it.
pub fn datagram(bytes: &[u8]) {
    let mut total = 0;
    let _ = messages(bytes, &mut |body| {
        total += body.len();
        message(body);
    });
    assert!(total <= bytes.len());
}

/// Checks a message, taken for one of each kind.
fn message(body: &[u8]) {
    for length in [LINK, ADDRESS, NEIGHBOUR] {
        let rest = body.get(length..).unwrap_or_default();
        let values = attributes(rest);
        let read: usize = values.iter().map(|(_, value)| value.len() + 4).sum();
        assert!(read <= rest.len());
    }
    if let Some(found) = link(body) {
        let texts = [
            &found.link.name,
            &found.link.kind,
            &found.link.qdisc,
            &found.device,
        ];
        assert!(texts.iter().all(|text| !text.contains('\0')));
        assert!(found.hardware.len() < body.len());
        assert!(!found.link.bound_elsewhere || found.link.below.is_none());
    }
    if let Some((_, found)) = address(body) {
        assert_eq!(found.prefix, body[1]);
    }
    if let Some((_, found)) = neighbour(body) {
        assert!(!found.ip.is_multicast() && found.state != "noarp");
        assert!(found.qpn < 1 << 24);
        assert!(found.gid.is_empty() || found.gid.parse::<std::net::Ipv6Addr>().is_ok());
    }
}
