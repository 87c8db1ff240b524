// SPDX-License-Identifier: GPL-2.0

//! Statistics of the reorder windows.

/// Statistics of a window, in frames unless they say otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Arrived as expected.
    pub in_order: u64,
    /// Arrived after one that was sent later.
    pub reordered: u64,
    /// Delivered after one that was sent later: what the window could not put right.
    pub late: u64,
    /// Held.
    pub held: u64,
    /// Released since the gap in front of them filled.
    pub filled: u64,
    /// Released since the window moved on.
    pub moved: u64,
    /// Released since they had waited for too long.
    pub timed_out: u64,
    /// Arrived a second time.
    pub duplicates: u64,
    /// Times that the source began anew.
    pub resyncs: u64,
}

impl Counts {
    /// Adds what a window counted from `before` to `after`.
    pub(in crate::seq) fn add_difference(&mut self, before: &Counts, after: &Counts) {
        for (sum, (before, after)) in self
            .values_mut()
            .into_iter()
            .zip(before.values().into_iter().zip(after.values()))
        {
            *sum = sum.wrapping_add(after.wrapping_sub(before));
        }
    }

    /// All values, in the order of the fields.
    pub const fn values(&self) -> [u64; Self::LEN] {
        [
            self.in_order,
            self.reordered,
            self.late,
            self.held,
            self.filled,
            self.moved,
            self.timed_out,
            self.duplicates,
            self.resyncs,
        ]
    }

    fn values_mut(&mut self) -> [&mut u64; Self::LEN] {
        [
            &mut self.in_order,
            &mut self.reordered,
            &mut self.late,
            &mut self.held,
            &mut self.filled,
            &mut self.moved,
            &mut self.timed_out,
            &mut self.duplicates,
            &mut self.resyncs,
        ]
    }

    /// How many values there are.
    pub const LEN: usize = 9;
}
