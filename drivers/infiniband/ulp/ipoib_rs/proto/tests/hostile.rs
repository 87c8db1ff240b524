// SPDX-License-Identifier: GPL-2.0

//! Property tests of what anybody may send or write besides packets: messages of a connection manager, answers of a subnet
//! administrator, texts.

#[path = "checks/answer.rs"]
mod answer;
#[path = "checks/private.rs"]
mod private;
#[path = "checks/text.rs"]
mod text;

use ipoib_proto::cm::MAGIC;
use ipoib_proto::gid::Gid;
use ipoib_proto::mgid::{self, Scope};
use ipoib_proto::pkey::PKey;
use ipoib_proto::qkey::QKey;
use ipoib_proto::subnet::{GroupRecord, Link};
use proptest::prelude::*;

/// Bytes with some that are expected at their places.
fn bytes(at: usize, expected: &'static [u8]) -> impl Strategy<Value = Vec<u8>> {
    let any_bytes = prop::collection::vec(any::<u8>(), 0..100);
    (any_bytes, any::<bool>()).prop_map(move |(mut bytes, likely)| {
        let place = bytes.get_mut(at..).unwrap_or_default();
        if likely {
            for (to, from) in place.iter_mut().zip(expected) {
                *to = *from;
            }
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    #[test]
    fn requests(bytes in bytes(8, b"iprs\x03"), mtu in prop_oneof![0u32..100, any::<u32>()]) {
        let mut bytes = bytes;
        if let Some(place) = bytes.get_mut(4..8) {
            place.copy_from_slice(&mtu.to_be_bytes());
        }
        private::of_a_request(&bytes);
    }

    #[test]
    fn rejections(bytes in bytes(8, &MAGIC)) {
        private::of_a_rejection(&bytes);
    }

    #[test]
    fn answers(
        other: Option<[u8; 16]>,
        mlid in prop_oneof![Just(0xc000u16), Just(0xffff), any::<u16>()],
        qkeys in (0u32..2, prop::option::of(0u32..2)),
        mtu_code in 0u8..8,
        dlid in prop_oneof![0u32..0x1_0000, any::<u32>()],
    ) {
        let wanted = mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL);
        let record = GroupRecord {
            mgid: other.map_or(wanted.gid(), Gid),
            mlid,
            qkey: QKey(qkeys.0),
            mtu_code,
        };
        let link = qkeys.1.map(|qkey| Link { qkey: QKey(qkey), ib_mtu: 2048 });
        answer::of_a_group(&record, &wanted, link.as_ref());
        answer::of_a_path(dlid, mtu_code);
    }

    #[test]
    fn texts(
        number in prop_oneof!["[ \n]?(0|0[xX])?[0-9a-fA-F]{0,9}[ \n]?", "[+-]?[0-9]{0,11}"],
        list in prop_oneof!["(none|all|[a-z0-9_:]{0,8}:[0-9]{1,3}(,[a-z0-9]{0,8}:[0-9+]{0,12}){0,3})[ \n]?", any::<String>()],
        parent: Vec<u8>,
        pkey: u16,
    ) {
        text::is_a_number(number.as_bytes());
        text::is_a_selection(list.as_bytes());
        text::is_a_name(&parent, pkey);
    }
}
