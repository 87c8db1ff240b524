// SPDX-License-Identifier: GPL-2.0

//! Datagrams with any bytes, and any completion of them.

#![no_main]

use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::Qpn;
use ipoib_proto::mgid::{self, Scope};
use ipoib_proto::pkey::PKey;
use ipoib_proto::rx::{classify, classify_known, Local, Network, Route, RxMeta, PAYLOAD_OFFSET};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u32, u16, u8, u8, u8)| {
    let (bytes, src_qp, slid, network, at, change) = input;
    let network = match network % 5 {
        0 => Some(Network::Grh),
        1 => Some(Network::Ipv4),
        2 => Some(Network::Ipv6),
        3 => Some(Network::Unknown),
        _ => None,
    };
    let meta = RxMeta {
        src_qp,
        slid,
        network,
    };
    let local = Local {
        gid: Gid([0xfe; 16]),
        qpn: Qpn::new(0x11).unwrap_or(Qpn::MULTICAST),
        broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
    };
    let mut route = Route::NONE;
    if let Ok(frame) = classify(bytes, meta, &local, &mut route) {
        assert!(frame.payload_len > 0);
        assert_eq!(PAYLOAD_OFFSET + frame.payload_len, bytes.len());
        assert!(frame.ether_type.is_supported());
        assert!(frame.source.is_none_or(|source| source.qpn().is_unicast()));
    }
    // What went before changes no verdict, be it the same packet or one that differs in one byte.
    let mut other = bytes.to_vec();
    if let Some(byte) = other.get_mut(usize::from(at)) {
        *byte ^= change;
    }
    for next in [bytes, &other] {
        let mut fresh = Route::NONE;
        let expected = classify(next, meta, &local, &mut fresh);
        let known = classify_known(next, || meta, &route).map(Ok);
        assert!(known.is_none_or(|known| known == expected));
        assert_eq!(classify(next, meta, &local, &mut route), expected);
    }
});
