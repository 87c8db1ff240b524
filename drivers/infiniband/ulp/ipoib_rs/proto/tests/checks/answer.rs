// SPDX-License-Identifier: GPL-2.0

//! Checks of the answers of whoever says that it is the subnet administrator. The fuzz targets in `tests/fuzz` use them as
//! well.

use ipoib_proto::mgid::Mgid;
use ipoib_proto::mtu;
use ipoib_proto::subnet::{check_path, GroupRecord, Link};

/// The MTUs of InfiniBand, in bytes.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Checks that a group whose record is believed is the one that was asked for, on a link that its members share.
pub(crate) fn of_a_group(record: &GroupRecord, wanted: &Mgid, link: Option<&Link>) {
    let is_group = (0xc000..0xffff).contains(&record.mlid);
    let is_shared = link.is_none_or(|link| link.qkey == record.qkey);
    let is_good = record.mgid == wanted.gid() && is_group && is_shared;
    match record.check(wanted, link) {
        Some(found) => {
            assert!(is_good && MTUS.contains(&found.ib_mtu));
            assert_eq!(found.qkey, record.qkey);
            // On the link that it defines, the record is believed again.
            assert_eq!(record.check(wanted, Some(&found)), Some(found));
            assert!(mtu::check(mtu::ip_mtu(found.ib_mtu), found.ib_mtu).is_ok());
        }
        None => assert!(!is_good || !(1..=5).contains(&record.mtu_code)),
    }
}

/// Checks that a path which is believed leads to a port.
pub(crate) fn of_a_path(dlid: u32, mtu_code: u8) {
    let is_port = (1..0xc000).contains(&dlid);
    let expected = MTUS.get(usize::from(mtu_code).wrapping_sub(1)).copied();
    assert_eq!(check_path(dlid, mtu_code), expected.filter(|_| is_port));
}
