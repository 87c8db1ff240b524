// SPDX-License-Identifier: GPL-2.0

//! Datagrams with any bytes, and any completion of them.

#![no_main]

use ipoib_proto::gid::Gid;
use ipoib_proto::hwaddr::Qpn;
use ipoib_proto::mgid::{self, Scope};
use ipoib_proto::pkey::PKey;
use ipoib_proto::rx::{Local, Network, Route, RxMeta};
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/datagram.rs"]
mod datagram;

fuzz_target!(|input: (u32, u16, u8, u8, u8, &[u8])| {
    let (src_qp, slid, network, at, change, bytes) = input;
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
    datagram::stays_within_the_buffer(bytes, meta, &local);
    // What went before changes no verdict, be it the same packet or one that differs in one byte.
    let mut other = bytes.to_vec();
    if let Some(byte) = other.get_mut(usize::from(at)) {
        *byte ^= change;
    }
    let mut route = Route::NONE;
    for next in [bytes, bytes, &other] {
        datagram::as_if_alone(next, meta, &local, &mut route);
    }
});
