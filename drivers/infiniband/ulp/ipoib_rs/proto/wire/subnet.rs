// SPDX-License-Identifier: GPL-2.0

//! Records of an InfiniBand subnet's administrator, checked once, here, before anything relies on them.

use crate::wire::gid::Gid;
use crate::wire::mgid::Mgid;
use crate::wire::qkey::QKey;

/// The first LID of a multicast group (InfiniBand architecture, section 4.1.3).
const FIRST_MULTICAST_LID: u32 = 0xc000;
/// The LID of whoever gets the packet, which is for subnet management.
const PERMISSIVE_LID: u32 = 0xffff;

/// Returns the payload of the largest packet, in bytes, from its code (section 9.2.8.1.2); `None` for codes that
/// are reserved.
pub const fn mtu_bytes(code: u8) -> Option<u32> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// Properties that the broadcast group gives to its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// The Q_Key of all its packets (RFC 4391, section 9.1.2).
    pub qkey: QKey,
    /// The IB MTU of its multicast packets, in bytes, less which nobody on the link has.
    pub ib_mtu: u32,
}

/// A group, as the subnet administrator tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Its GID.
    pub mgid: Gid,
    /// Its LID.
    pub mlid: u16,
    /// Its Q_Key.
    pub qkey: QKey,
    /// The code of its MTU.
    pub mtu_code: u8,
}

impl GroupRecord {
    /// Checks the record of `wanted`. `link` is that of the broadcast group; `None` for the broadcast group itself,
    /// which defines it. Returns what the record says of the link; `None` if the record is of no use: it is that of
    /// another group, the LID is no group's, there is no such MTU, or the Q_Key is not the link's, so that members would
    /// not hear each other.
    pub fn check(&self, wanted: &Mgid, link: Option<&Link>) -> Option<Link> {
        if self.mgid != wanted.gid() {
            return None;
        }
        if !(FIRST_MULTICAST_LID..PERMISSIVE_LID).contains(&u32::from(self.mlid)) {
            return None;
        }
        let own = Link {
            qkey: self.qkey,
            ib_mtu: mtu_bytes(self.mtu_code)?,
        };
        if link.is_some_and(|link| link.qkey != own.qkey) {
            return None;
        }
        Some(own)
    }
}

/// Checks the record of a path: the LID that it leads to, and the code of its MTU. Returns its MTU in bytes; `None`
/// if there is no such LID of a port, or no such MTU.
pub fn check_path(dlid: u32, mtu_code: u8) -> Option<u32> {
    if !(1..FIRST_MULTICAST_LID).contains(&dlid) {
        return None;
    }
    mtu_bytes(mtu_code)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_subnet))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;
    use crate::wire::mgid::{self, Scope};
    use crate::wire::pkey::PKey;

    const LINK: Link = Link {
        qkey: QKey(0x0b1b),
        ib_mtu: 2048,
    };

    fn broadcast() -> Mgid {
        mgid::broadcast(PKey::DEFAULT, Scope::LINK_LOCAL)
    }

    fn record() -> GroupRecord {
        GroupRecord {
            mgid: broadcast().gid(),
            mlid: 0xc000,
            qkey: LINK.qkey,
            mtu_code: 4,
        }
    }

    /// RFC 4391, section 5: the broadcast group gives the link its Q_Key and its MTU.
    #[test]
    fn rfc4391_5_the_broadcast_group_defines_the_link() {
        assert_eq!(record().check(&broadcast(), None), Some(LINK));
        let other = GroupRecord {
            qkey: QKey(7),
            mtu_code: 5,
            ..record()
        };
        let link = Link {
            qkey: QKey(7),
            ib_mtu: 4096,
        };
        assert_eq!(other.check(&broadcast(), None), Some(link));
    }

    /// RFC 4391, sections 9.1.2 and 10: all groups have the Q_Key of the broadcast group.
    #[test]
    fn rfc4391_10_groups_have_the_links_qkey() {
        assert!(record().check(&broadcast(), Some(&LINK)).is_some());
        let other = GroupRecord {
            qkey: QKey(7),
            ..record()
        };
        assert_eq!(other.check(&broadcast(), Some(&LINK)), None);
    }

    #[test]
    fn malformed_groups() {
        let with = |change: fn(&mut GroupRecord)| {
            let mut record = record();
            change(&mut record);
            record.check(&broadcast(), None)
        };
        assert_eq!(with(|r| r.mgid.0[15] = 1), None);
        assert_eq!(with(|r| r.mlid = 0xbfff), None);
        assert_eq!(with(|r| r.mlid = 0xffff), None);
        assert_eq!(with(|r| r.mlid = 0), None);
        assert!(with(|r| r.mlid = 0xfffe).is_some());
        assert_eq!(with(|r| r.mtu_code = 0), None);
        assert_eq!(with(|r| r.mtu_code = 6), None);
    }

    #[test]
    fn paths() {
        assert_eq!(check_path(1, 5), Some(4096));
        assert_eq!(check_path(0xbfff, 1), Some(256));
        for dlid in [0, 0xc000, 0xffff, 0x1_0000] {
            assert_eq!(check_path(dlid, 4), None);
        }
        for code in [0, 6, 63, 255] {
            assert_eq!(check_path(1, code), None);
        }
    }
}
