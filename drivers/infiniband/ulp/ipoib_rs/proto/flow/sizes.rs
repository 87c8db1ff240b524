// SPDX-License-Identifier: GPL-2.0

//! Sizes of an interface's queues, of which a device may have room for fewer than it says: its limit is for work
//! requests of one element, and each element takes room.

use core::ops::RangeInclusive;

/// Valid sizes of a queue.
pub const RANGE: RangeInclusive<u32> = 64..=8192;

/// How many times as large as at first a queue can be made later.
const GROWTH: u32 = 4;

/// Work requests that the queues take; powers of two within [`RANGE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Receives.
    pub receive: u32,
    /// Sends.
    pub send: u32,
}

impl Sizes {
    /// The sizes to try first where queues are to begin with `wanted` and `max` is as much as the device claims to
    /// have. None if it has not even the smallest.
    pub fn first(wanted: Sizes, max: u32) -> Option<Sizes> {
        let room = 1u32.checked_shl(max.checked_ilog2()?)?;
        if room < *RANGE.start() {
            return None;
        }
        let largest = wanted.receive.max(wanted.send).saturating_mul(GROWTH);
        let size = largest.min(room).clamp(*RANGE.start(), *RANGE.end());
        Some(Sizes {
            receive: size,
            send: size,
        })
    }

    /// The sizes to try when the device has refused these: the queue with more elements is halved, if it can be. A
    /// receive has one element, a send as many as `elements`. None: there is nothing smaller.
    pub fn smaller(self, elements: u32) -> Option<Sizes> {
        let half = |size: u32| Some(size >> 1).filter(|half| RANGE.contains(half));
        let receive = half(self.receive).map(|receive| Sizes { receive, ..self });
        let send = half(self.send).map(|send| Sizes { send, ..self });
        if self.send.saturating_mul(elements) >= self.receive {
            send.or(receive)
        } else {
            receive.or(send)
        }
    }

    /// The lesser of both, queue by queue.
    pub fn min(self, other: Sizes) -> Sizes {
        Sizes {
            receive: self.receive.min(other.receive),
            send: self.send.min(other.send),
        }
    }

    /// Returns true if queues of these sizes may be made to hold `asked`.
    pub fn allow(self, asked: Sizes) -> bool {
        let fits =
            |size: u32, max: u32| size.is_power_of_two() && RANGE.contains(&size) && size <= max;
        fits(asked.receive, self.receive) && fits(asked.send, self.send)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_sizes))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const fn sizes(receive: u32, send: u32) -> Sizes {
        Sizes { receive, send }
    }

    #[test]
    fn queues_can_grow_as_far_as_the_device_says() {
        assert_eq!(
            Sizes::first(sizes(512, 512), 1 << 20),
            Some(sizes(2048, 2048))
        );
        assert_eq!(
            Sizes::first(sizes(64, 512), 1 << 20),
            Some(sizes(2048, 2048))
        );
        assert_eq!(
            Sizes::first(sizes(8192, 8192), 1 << 20),
            Some(sizes(8192, 8192))
        );
        assert_eq!(Sizes::first(sizes(512, 512), 1500), Some(sizes(1024, 1024)));
        assert_eq!(Sizes::first(sizes(512, 512), 64), Some(sizes(64, 64)));
        assert_eq!(Sizes::first(sizes(512, 512), 63), None);
        assert_eq!(Sizes::first(sizes(512, 512), 0), None);
    }

    /// A device like mlx5, whose sends of 18 elements take 384 bytes of a queue of at most 2 MiB.
    #[test]
    fn what_a_device_has_room_for_is_found() {
        let mut found = sizes(8192, 8192);
        while found.send > 4096 {
            found = found.smaller(18).unwrap_or(sizes(0, 0));
        }
        assert_eq!(found, sizes(8192, 4096));
    }

    /// Whatever it refuses, the end comes soon, and each size is one that a queue can have.
    #[test]
    fn the_search_ends_at_the_smallest() {
        for elements in [0, 1, 4, 18, u32::MAX] {
            let mut found = sizes(8192, 8192);
            let mut tries = 0;
            while let Some(next) = found.smaller(elements) {
                assert!(found.allow(next) && next != found);
                found = next;
                tries += 1;
            }
            assert_eq!((found, tries), (sizes(64, 64), 14));
        }
    }

    #[test]
    fn what_is_asked_for_has_to_fit() {
        let max = sizes(1024, 512);
        assert!(max.allow(sizes(1024, 512)) && max.allow(sizes(64, 64)));
        for asked in [(2048, 512), (1024, 1024), (100, 64), (32, 64), (64, 0)] {
            assert!(!max.allow(sizes(asked.0, asked.1)));
        }
        assert_eq!(max.min(sizes(512, 8192)), sizes(512, 512));
    }
}
