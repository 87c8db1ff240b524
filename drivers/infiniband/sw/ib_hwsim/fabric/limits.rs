// SPDX-License-Identifier: GPL-2.0

//! Limits and abilities in which adapters differ, as their users choose them.
//!
//! RDMA core and ULPs are told of them (section 11.2.1.2), and the adapter keeps to what it says.

use core::ffi::CStr;
use core::fmt::{self, Write};

use crate::text::{flag, number};

/// The most queue pairs of ULPs that an adapter has, beside the special ones of its ports.
pub const MAX_QPS: u32 = 1019;

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

/// Declares the limits: name, default and values of each.
macro_rules! limits {
    ($($(#[$doc:meta])* $limit:ident = $name:literal, $usual:expr, $values:expr;)*) => {
        /// A limit or an ability of an adapter, which has a text.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Limit {
            $($(#[$doc])* $limit,)*
        }

        impl Limit {
            /// All of them, each in the place that is its number.
            pub const ALL: &'static [Limit] = &[$(Limit::$limit,)*];

            const fn rule(self) -> Rule {
                match self {
                    $(Limit::$limit => Rule { name: $name, usual: $usual, values: $values },)*
                }
            }
        }
    };
}

limits! {
    /// Queue pairs, without the special ones.
    Qp = c"max_qp", MAX_QPS, Values::Between(1, MAX_QPS);
    /// Work requests in a queue.
    QpWr = c"max_qp_wr", 16384, Values::Between(1, 16384);
    /// Elements in the list of a send request.
    SendSge = c"max_send_sge", 32, Values::Between(1, 32);
    /// Elements in the list of a receive request.
    RecvSge = c"max_recv_sge", 32, Values::Between(1, 32);
    /// Completion queues.
    Cq = c"max_cq", 65536, Values::Between(1, 65536);
    /// Entries of a completion queue.
    Cqe = c"max_cqe", 65536, Values::Between(1, 65536);
    /// Shared receive queues; with 0, the adapter does not know such queues.
    Srq = c"max_srq", 65536, Values::Between(0, 65536);
    /// Address handles.
    Ah = c"max_ah", i32::MAX as u32, Values::Between(1, i32::MAX as u32);
    /// Memory regions.
    Mr = c"max_mr", 1 << 20, Values::Between(1, 1 << 20);
    /// Bytes of a message that lie in the send request itself.
    InlineData = c"max_inline_data", 0, Values::Between(0, 1024);
    /// 1 if queue pairs can be attached to multicast groups, or 0.
    Multicast = c"multicast", 1, Values::Flag;
    /// 1 if a queue pair can be made that does not hear its own multicast, or 0.
    BlockLoopback = c"block_loopback", 1, Values::Flag;
    /// 1 if what sits at a port's place in sysfs is named as the port's network device, as by `mlx4_ib`, or 0.
    GetNetdev = c"get_netdev", 0, Values::Flag;
    /// 1 if checksums of IP datagrams are computed and checked, or 0.
    Checksum = c"checksum", 0, Values::Flag;
    /// Bytes of TCP's that one request can have segmented into datagrams; 0 for none.
    Lso = c"lso", 0, Values::Between(0, 1 << 18);
    /// Completion vectors, each of which has events on a CPU of its own; a single one has them on any.
    Vectors = c"comp_vectors", 1, Values::Between(1, 64);
}

impl Limit {
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
        let mut values = [0; Limit::ALL.len()];
        for (value, limit) in values.iter_mut().zip(Limit::ALL) {
            *value = limit.rule().usual;
        }
        Limits { values }
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
        for (place, &limit) in Limit::ALL.iter().enumerate() {
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
        for &limit in Limit::ALL {
            assert_ne!(limits.get(limit), limit.rule().usual);
        }
    }

    #[test]
    fn values_out_of_range_change_nothing() {
        let mut limits = Limits::new();
        for &limit in Limit::ALL {
            let before = limits;
            for text in ["", "-1", "+1", "1x", "4294967296", "4294967295", "many"] {
                assert_eq!(limits.set(limit, text), None);
            }
            assert_eq!(limits, before);
        }
    }
}
