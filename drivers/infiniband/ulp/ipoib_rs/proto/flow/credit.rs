// SPDX-License-Identifier: GPL-2.0

//! Credit of a connection: how many messages one end may send before the other has room for more.
//!
//! Without it, a sender finds out by being refused (RNR), and its queue pair waits. So the receiver advertises
//! a *credit limit*, the number of messages that the sender may have sent in all, in a frame that it sends
//! anyway ([`crate::wire::extended`]) once an eighth of the window is news, or in a message of its own when it has had nothing
//! to send for half of the window. All counts are modulo 2^16, and no window is wider than [`MAX_WIDTH`].
//!
//! A message that carries nothing but a credit limit is not counted, and is sent without asking. It needs
//! room all the same: [`RESERVE`] buffers for each connection. A peer that has not proven that it asked gets no more than
//! that before it acknowledges some.

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

/// Returns true if a credit limit is to be advertised in a message of its own: the other end may have used half of
/// what was `advertised` before.
#[inline]
pub const fn is_due(limit: u16, advertised: u16, width: u16) -> bool {
    let news = limit.wrapping_sub(advertised);
    news != 0 && (news as u32).wrapping_mul(2) >= width as u32
}

/// Returns true if a credit limit is worth a header of a frame that goes anyway: an eighth of the window is news. A frame
/// whose header says nothing else does without it until then.
#[inline]
pub const fn is_worth_a_header(limit: u16, advertised: u16, width: u16) -> bool {
    (limit.wrapping_sub(advertised) as u32).wrapping_mul(8) >= width as u32
}

/// Returns the width of a new connection's window, with `free` buffers that are not set aside: at most `most`, and at most a
/// third of what is left when each of `others` has buffers for one message. None if not even one message fits.
pub fn window(free: u32, most: u16, others: u32) -> Option<u16> {
    let spare = free.saturating_sub(others.saturating_mul(cost(1)));
    let width = (spare / 3).min(most.min(MAX_WIDTH).into()).max(1);
    let width = u16::try_from(width).ok()?;
    (free >= cost(width)).then_some(width)
}

/// Buffers that are set aside for a connection with a window of `width`: none for a window of 0, since a sender that knows
/// no credit takes whatever buffers there are.
pub const fn cost(width: u16) -> u32 {
    if width == 0 {
        0
    } else {
        (width as u32).saturating_add(RESERVE as u32)
    }
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

    #[test]
    fn an_eighth_of_a_window_is_worth_a_header() {
        assert!(!is_worth_a_header(64, 64, 64) && !is_worth_a_header(71, 64, 64));
        assert!(is_worth_a_header(72, 64, 64) && is_worth_a_header(4, 65_532, 64));
        // Of a narrow window, each message is.
        assert!(!is_worth_a_header(8, 8, 3) && is_worth_a_header(9, 8, 3));
        for width in 1..=MAX_WIDTH {
            for news in 0..=width {
                // It goes along before it takes a message of its own.
                assert!(is_worth_a_header(news, 0, width) || !is_due(news, 0, width));
            }
        }
    }

    #[test]
    fn buffers_are_shared_out() {
        let mut free = 512;
        let mut widths = [0; 64];
        for (others, width) in (0..64).rev().zip(&mut widths) {
            let taken = window(free, 64, others);
            assert!(taken.is_some());
            *width = taken.unwrap_or(0);
            free -= cost(*width);
        }
        // The first ones get a window that is worth something, the last ones room for a message.
        assert!(widths[0] == 64 && widths[1] == 44 && widths[63] >= 1);
        while let Some(width) = window(free, 64, 0) {
            free -= cost(width);
        }
        assert!(free < cost(1) && cost(0) == 0);
        assert!(window(512, 8, 0) == Some(8) && window(512, u16::MAX, 0) == Some(512 / 3));
        assert!(window(4, 64, 0).is_none() && window(5, 64, 9) == Some(1));
        assert!(window(u32::MAX, u16::MAX, u32::MAX) == Some(1));
    }
}
