// SPDX-License-Identifier: GPL-2.0

//! Limits and abilities in which adapters differ, as their users choose them.
//!
//! RDMA core and ULPs are told of them (section 11.2.1.2), and the adapter keeps to what it says.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::text::{flag, number};

/// The most queue pairs of ULPs that an adapter has, beside the special ones of its ports.
pub const MAX_QPS: u32 = 1019;

/// A limit or an ability of an adapter, which has a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Limit {
    /// Queue pairs, without the special ones.
    Qp,
    /// Work requests in a queue.
    QpWr,
    /// Elements in the list of a send request.
    SendSge,
    /// Elements in the list of a receive request.
    RecvSge,
    /// Completion queues.
    Cq,
    /// Entries of a completion queue.
    Cqe,
    /// Shared receive queues; with 0, the adapter does not know such queues.
    Srq,
    /// Address handles.
    Ah,
    /// Memory regions.
    Mr,
    /// Bytes of a message that lie in the send request itself.
    InlineData,
    /// 1 if queue pairs can be attached to multicast groups, or 0.
    Multicast,
    /// 1 if a queue pair can be made that does not hear its own multicast, or 0.
    BlockLoopback,
    /// 1 if checksums of IP datagrams are computed and checked, or 0.
    Checksum,
    /// Bytes of TCP's that one request can have segmented into datagrams; 0 for none.
    Lso,
    /// Completion vectors, each of which has events on a CPU of its own; a single one has them on any.
    Vectors,
}

/// Values that a limit can have.
#[derive(Clone, Copy)]
enum Values {
    /// Numbers from one to another.
    Between(u32, u32),
    /// 0 and 1.
    Flag,
}

/// Name, default and values of a limit.
struct Rule {
    name: &'static CStr,
    usual: u32,
    values: Values,
}

impl Rule {
    const fn new(name: &'static CStr, usual: u32, values: Values) -> Rule {
        Rule {
            name,
            usual,
            values,
        }
    }
}

impl Limit {
    /// All of them, each in the place that is its number.
    pub const ALL: [Limit; 15] = [
        Limit::Qp,
        Limit::QpWr,
        Limit::SendSge,
        Limit::RecvSge,
        Limit::Cq,
        Limit::Cqe,
        Limit::Srq,
        Limit::Ah,
        Limit::Mr,
        Limit::InlineData,
        Limit::Multicast,
        Limit::BlockLoopback,
        Limit::Checksum,
        Limit::Lso,
        Limit::Vectors,
    ];

    const fn rule(self) -> Rule {
        use Values::{Between, Flag};
        match self {
            Limit::Qp => Rule::new(c"max_qp", MAX_QPS, Between(1, MAX_QPS)),
            Limit::QpWr => Rule::new(c"max_qp_wr", 16384, Between(1, 16384)),
            Limit::SendSge => Rule::new(c"max_send_sge", 32, Between(1, 32)),
            Limit::RecvSge => Rule::new(c"max_recv_sge", 32, Between(1, 32)),
            Limit::Cq => Rule::new(c"max_cq", 65536, Between(1, 65536)),
            Limit::Cqe => Rule::new(c"max_cqe", 65536, Between(1, 65536)),
            Limit::Srq => Rule::new(c"max_srq", 65536, Between(0, 65536)),
            Limit::Ah => Rule::new(c"max_ah", i32::MAX as u32, Between(1, i32::MAX as u32)),
            Limit::Mr => Rule::new(c"max_mr", 1 << 20, Between(1, 1 << 20)),
            Limit::InlineData => Rule::new(c"max_inline_data", 0, Between(0, 1024)),
            Limit::Multicast => Rule::new(c"multicast", 1, Flag),
            Limit::BlockLoopback => Rule::new(c"block_loopback", 1, Flag),
            Limit::Checksum => Rule::new(c"checksum", 0, Flag),
            Limit::Lso => Rule::new(c"lso", 0, Between(0, 1 << 18)),
            Limit::Vectors => Rule::new(c"comp_vectors", 1, Between(1, 64)),
        }
    }

    /// Returns the name.
    pub const fn name(self) -> &'static CStr {
        self.rule().name
    }

    /// Parses a value; `None` if it cannot have that one.
    fn parse(self, text: &str) -> Option<u32> {
        match self.rule().values {
            Values::Between(least, most) => number(text, least..=most),
            Values::Flag => flag(text).map(u32::from),
        }
    }
}

/// The limits and abilities of an adapter.
///
/// # Invariants
///
/// Each value is one that its limit can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// By the numbers of the limits.
    values: [u32; Limit::ALL.len()],
}

impl Limits {
    /// Makes those of a usual adapter.
    pub fn new() -> Limits {
        Limits {
            values: Limit::ALL.map(|limit| limit.rule().usual),
        }
    }

    /// Returns a value; that of an ability is 0 or 1.
    pub fn get(&self, limit: Limit) -> u32 {
        self.values.get(limit as usize).copied().unwrap_or(0)
    }

    /// Tells whether there is an ability, or more than none of something.
    pub fn has(&self, limit: Limit) -> bool {
        self.get(limit) != 0
    }

    /// Prints a value.
    ///
    /// # Errors
    ///
    /// Those of the writer.
    pub fn print(&self, limit: Limit, out: &mut dyn Write) -> fmt::Result {
        write!(out, "{}", self.get(limit))
    }

    /// Parses and sets a value; `None`, and no change, if the limit cannot have it.
    pub fn set(&mut self, limit: Limit, text: &str) -> Option<()> {
        // INVARIANT: The limit can have what it has parsed.
        *self.values.get_mut(limit as usize)? = limit.parse(text)?;
        Some(())
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits::new()
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_limits))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_own_place() {
        let mut limits = Limits::new();
        for (place, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, place);
            let usual = limit.rule().usual;
            assert_eq!(limits.get(limit), usual);
            let new = match (usual, limit.rule().values) {
                (1, Values::Flag) => "0",
                (1, Values::Between(..)) => "2",
                _ => "1",
            };
            assert_eq!(limits.set(limit, new), Some(()));
            assert_eq!(limits.has(limit), new != "0");
        }
        for limit in Limit::ALL {
            assert_ne!(limits.get(limit), limit.rule().usual);
        }
    }

    #[test]
    fn values_out_of_range_change_nothing() {
        let mut limits = Limits::new();
        for limit in Limit::ALL {
            let before = limits;
            for text in ["", "-1", "+1", "1x", "4294967296", "4294967295", "many"] {
                assert_eq!(limits.set(limit, text), None);
            }
            assert_eq!(limits, before);
        }
    }
}
