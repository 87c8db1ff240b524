// SPDX-License-Identifier: GPL-2.0

//! Statistics of the reorder windows.

/// Declares the counters once, and makes all that needs each of them.
macro_rules! counts {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Statistics of a window, in frames unless they say otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counts {
            /// How many values there are.
            pub const LEN: usize = [$(stringify!($name)),*].len();

            /// Nothing was counted yet.
            pub(super) const ZERO: Counts = Counts { $($name: 0,)* };

            /// All values, in the order of the fields.
            pub const fn values(&self) -> [u64; Self::LEN] {
                [$(self.$name),*]
            }

            /// Adds the values that a window counted from `before` to `after`.
            pub(in crate::seq) fn add_difference(&mut self, before: &Counts, after: &Counts) {
                $(
                    let more = after.$name.wrapping_sub(before.$name);
                    self.$name = self.$name.wrapping_add(more);
                )*
            }
        }
    };
}

counts! {
    /// Arrived as expected.
    in_order,
    /// Arrived after one that was sent later.
    reordered,
    /// Delivered after one that was sent later: what the window could not put right.
    late,
    /// Held.
    held,
    /// Released since the gap in front of them filled.
    filled,
    /// Released since the window moved on.
    moved,
    /// Released since they had waited for too long.
    timed_out,
    /// Arrived a second time.
    duplicates,
    /// Times that the source began anew.
    resyncs,
}
