// SPDX-License-Identifier: GPL-2.0

//! What the wire and the device say of a datagram: any octets, any completion.

#![no_main]

use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::Qpn;
use ipoib_proto::mgid::{self, Scope};
use ipoib_proto::pkey::PKey;
use ipoib_proto::rx::{classify, Local, Network, Route, RxMeta, PAYLOAD_OFFSET};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&[u8], u32, u32, bool, u8, u8, u8)| {
    let (bytes, byte_len, src_qp, has_grh, network, at, change) = input;
    let network = match network % 4 {
        0 => Network::Grh,
        1 => Network::Ipv4,
        2 => Network::Ipv6,
        _ => Network::Unknown,
    };
    let meta = RxMeta {
        byte_len,
        src_qp,
        has_grh,
        network,
    };
    let local = Local {
        gid: Gid([0xfe; 16]),
        qpn: Qpn::new(0x11).unwrap_or(Qpn::MULTICAST),
        broadcast: mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL),
        capacity: 4136,
    };
    let mut route = Route::NONE;
    if let Ok(frame) = classify(bytes, &meta, &local, &mut route) {
        assert_eq!(frame.payload_offset, PAYLOAD_OFFSET);
        assert!(frame.payload_len > 0 && byte_len <= local.capacity);
        assert_eq!(frame.payload_offset + frame.payload_len, byte_len as usize);
        assert!(frame.ether_type.is_supported());
        assert!(frame.source.is_none_or(|source| source.qpn().is_unicast()));
    }
    // What went before changes no verdict, be it the same packet or one that differs in an octet.
    let mut other = bytes.to_vec();
    if let Some(octet) = other.get_mut(usize::from(at)) {
        *octet ^= change;
    }
    for next in [bytes, &other] {
        let mut fresh = Route::NONE;
        let expected = classify(next, &meta, &local, &mut fresh);
        assert_eq!(classify(next, &meta, &local, &mut route), expected);
    }
});
