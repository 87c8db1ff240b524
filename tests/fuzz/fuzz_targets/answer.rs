// SPDX-License-Identifier: GPL-2.0

//! Answers of a subnet administrator.

#![no_main]

use ipoib_proto::gid::Gid;
use ipoib_proto::mgid::Mgid;
use ipoib_proto::qkey::QKey;
use ipoib_proto::subnet::{GroupRecord, Link};
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/ulp/ipoib_rs/proto/tests/checks/answer.rs"]
mod answer;

/// A request, the answer to it, and the link.
type Input = ([u8; 16], Option<[u8; 16]>, u16, u32, u8, Option<u32>, u32);

fuzz_target!(|input: Input| {
    let (mut wanted, other, mlid, qkey, mtu_code, link, dlid) = input;
    // Random bytes are hardly ever a group of IPoIB.
    let signature = if wanted[2] & 1 == 0 { 0x40 } else { 0x60 };
    wanted[..4].copy_from_slice(&[0xff, 0x12, signature, 0x1b]);
    if let Some(wanted) = Mgid::parse(Gid(wanted)) {
        let record = GroupRecord {
            mgid: other.map_or(wanted.gid(), Gid),
            mlid,
            qkey: QKey(qkey),
            mtu_code,
        };
        let link = link.map(|qkey| Link {
            qkey: QKey(qkey),
            ib_mtu: 2048,
        });
        answer::of_a_group(&record, &wanted, link.as_ref());
    }
    answer::of_a_path(dlid, mtu_code);
});
