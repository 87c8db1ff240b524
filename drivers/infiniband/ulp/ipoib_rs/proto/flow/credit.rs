// SPDX-License-Identifier: GPL-2.0

//! Credit of a connection: how many messages one end may send before the other has room for more.
//!
//! Without it, a sender finds out by being refused (RNR), and its queue pair waits. So the receiver advertises
//! a *credit limit*, the number of messages that the sender may have sent in all, in a message of its own for each half
//! window. All counts are modulo 2^16, and no window is wider than [`MAX_WIDTH`].
//!
//! That message goes the other way than the frames, is not counted, and is sent without asking. It needs room all the
//! same: [`RESERVE`] buffers for each connection that we send by.

/// The widest window.
pub const MAX_WIDTH: u16 = 1024;

/// Messages with nothing but a credit limit that can be in flight to one end at a time. One is sent for each
/// half window of counted messages, and two windows of these can have been sent since the last credit limit
/// that has arrived.
pub const RESERVE: u16 = 4;

/// Returns true if an advertised credit limit is higher than the one before: it never shrinks, nor does it promise
/// more than a window.
#[inline]
pub const fn is_higher(limit: u16, before: u16) -> bool {
    // From 1 up to the width, with one comparison.
    limit.wrapping_sub(before).wrapping_sub(1) < MAX_WIDTH
}

/// Returns true if one more message may be sent after `sent` have been.
#[inline]
pub const fn may_send(sent: u16, limit: u16) -> bool {
    is_higher(limit, sent)
}

/// Credit limit that an end advertises which has received `received` messages and has room for `width`.
#[inline]
pub const fn limit(received: u16, width: u16) -> u16 {
    received.wrapping_add(width)
}

/// Returns true if a credit limit is to be advertised: the other end may have used half of what was `advertised` before.
#[inline]
pub const fn is_due(limit: u16, advertised: u16, width: u16) -> bool {
    let news = limit.wrapping_sub(advertised);
    news != 0 && (news as u32).wrapping_mul(2) >= width as u32
}

/// Returns the width of the window for a new connection that a peer sends by: at most `most`, and at most a third of what is
/// free beyond `kept` and of what the peer's host may still have. A host may have half of all `buffers`, and `has` some. The
/// width is 1 at least; None if nothing is `free`.
pub fn window(buffers: u32, free: u32, kept: u32, has: u32, most: u16) -> Option<u16> {
    let of_host = (buffers / 2).saturating_sub(has);
    let spare = free.saturating_sub(kept).min(of_host);
    let width = (spare / 3).min(most.min(MAX_WIDTH).into()).max(1);
    let width = u16::try_from(width).ok()?;
    (free >= width.into()).then_some(width)
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_credit))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_turns() {
        for received in [0u16, 1, 65_530, 65_535] {
            let limit = limit(received, 8);
            let mut sent = received;
            for _ in 0..8 {
                assert!(may_send(sent, limit));
                sent = sent.wrapping_add(1);
            }
            assert!(!may_send(sent, limit));
            // Nor one who has sent more than it may.
            assert!(!may_send(sent.wrapping_add(1), limit));
        }
    }

    #[test]
    fn limits_only_grow() {
        assert!(is_higher(5, 4) && !is_higher(4, 4) && !is_higher(3, 4));
        assert!(is_higher(2, 65_535));
        assert!(is_higher(MAX_WIDTH, 0) && !is_higher(MAX_WIDTH + 1, 0));
    }

    #[test]
    fn half_a_window_is_worth_a_message() {
        assert!(!is_due(8, 8, 8) && !is_due(11, 8, 8) && is_due(12, 8, 8));
        assert!(is_due(9, 8, 1) && is_due(9, 8, 2) && !is_due(9, 8, 3));
        assert!(is_due(1, 65_533, 8) && !is_due(0, 65_533, 8));
    }

    /// The windows of `hosts` that ask in turn, if nothing is kept for others.
    fn windows(hosts: usize, count: usize, kept: u32) -> [u32; 64] {
        let mut widths = [0; 64];
        let (mut free, mut has) = (512, [0; 64]);
        for (n, width) in widths.iter_mut().enumerate().take(count) {
            let has = &mut has[n % hosts];
            *width = window(512, free, kept, *has, 64).map_or(0, u32::from);
            *has += *width;
            free -= *width;
        }
        widths
    }

    /// The first ones get a window that is worth something, the last ones room for a message.
    #[test]
    fn buffers_are_shared_out() {
        let widths = windows(64, 64, 256);
        assert!(widths[0] == 64 && widths[1] == 64 && widths[2] == 42 && widths[63] == 1);
        let mut free = 512;
        while let Some(width) = window(512, free, 0, 0, 64) {
            free -= u32::from(width);
        }
        assert!(free == 0);
        assert!(window(512, 512, 0, 0, 8) == Some(8) && window(512, 512, 0, 0, 100) == Some(85));
        assert!(window(512, 0, 0, 0, 64).is_none() && window(64, 5, 9, 0, 64) == Some(1));
        assert!(window(u32::MAX, u32::MAX, 0, 0, u16::MAX) == Some(MAX_WIDTH));
        assert!(window(u32::MAX, u32::MAX, u32::MAX, u32::MAX, u16::MAX) == Some(1));
    }

    /// Beyond half of all buffers, each connection of a host has one.
    #[test]
    fn one_host_has_half() {
        let widths = windows(1, 64, 0);
        let taken: u32 = widths.iter().sum();
        let narrow = widths.iter().filter(|width| **width == 1).count();
        assert!(widths[..4] == [64, 64, 42, 28] && taken <= 256 + narrow as u32);
        assert!(window(512, 512 - taken, 0, 0, 64) == Some(64));
    }
}
