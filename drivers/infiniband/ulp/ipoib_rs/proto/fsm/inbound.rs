// SPDX-License-Identifier: GPL-2.0

//! A connection that a peer has asked for, to send by: `ib_ipoib` uses it one way. It is the peer's to end.

/// Time that a peer has to confirm that it asked, in milliseconds: Linux asks for answers to be repeated every four
/// seconds.
const CONFIRM_MS: u64 = 15_000;
/// Silence after which a peer is gone, in milliseconds: one that is there ends what it does not use.
const IDLE_MS: u64 = 600_000;

/// State of such a connection. All times are in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct Inbound {
    confirmed: bool,
    /// When another one was confirmed in the name of the same peer, if nothing has come by this one since.
    superseded: Option<u64>,
    /// Frames received at the last look.
    seen: u64,
    heard: u64,
}

impl Inbound {
    /// A connection that was accepted now.
    pub const fn new(now: u64) -> Inbound {
        Inbound {
            confirmed: false,
            superseded: None,
            seen: 0,
            heard: now,
        }
    }

    /// The peer has confirmed that it asked.
    pub fn confirm(&mut self) {
        self.confirmed = true;
        self.superseded = None;
    }

    /// Looks whether frames have come; `received` counts them from the connection's begin. A frame confirms it, too.
    pub fn look(&mut self, received: u64, now: u64) {
        if received != self.seen {
            self.seen = received;
            self.heard = now;
            self.confirmed = true;
            self.superseded = None;
        }
    }

    /// Another connection in the name of the same peer was confirmed, when `received` frames had come by this one: it is
    /// over soon, unless more come. Anybody on the link can ask for a connection in a peer's name.
    pub fn supersede(&mut self, received: u64, now: u64) {
        self.look(received, now);
        if self.confirmed {
            self.superseded.get_or_insert(now);
        }
    }

    /// Returns true if another one has taken its place, as it seems.
    pub const fn is_superseded(&self) -> bool {
        self.superseded.is_some()
    }

    /// Returns true if the peer has confirmed that it asked, or has sent something.
    pub const fn is_confirmed(&self) -> bool {
        self.confirmed
    }

    /// Time at which the peer was heard last.
    pub const fn last_heard(&self) -> u64 {
        self.heard
    }

    /// Time at which the connection ends, if nothing comes by it.
    pub const fn deadline(&self) -> u64 {
        match self.superseded {
            Some(since) => since.saturating_add(CONFIRM_MS),
            None if self.confirmed => self.heard.saturating_add(IDLE_MS),
            None => self.heard.saturating_add(CONFIRM_MS),
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_inbound))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn a_forged_request_ends_soon() {
        let mut inbound = Inbound::new(1_000);
        inbound.look(0, 9_000);
        assert!(!inbound.is_confirmed());
        assert_eq!(inbound.deadline(), 1_000 + CONFIRM_MS);
    }

    #[test]
    fn a_peer_that_confirms_may_be_silent_for_long() {
        let mut inbound = Inbound::new(1_000);
        inbound.confirm();
        assert!(inbound.is_confirmed());
        assert_eq!(inbound.last_heard(), 1_000);
        assert_eq!(inbound.deadline(), 1_000 + IDLE_MS);
    }

    #[test]
    fn a_superseded_one_ends_unless_it_is_used() {
        let mut inbound = Inbound::new(1_000);
        inbound.look(3, 2_000);
        // However long it was silent, it has time to be used.
        inbound.supersede(3, 40_000);
        assert_eq!(inbound.deadline(), 40_000 + CONFIRM_MS);
        // But once.
        inbound.supersede(3, 50_000);
        assert_eq!(inbound.deadline(), 40_000 + CONFIRM_MS);
        assert_eq!(inbound.last_heard(), 2_000);
        // Those that came before say nothing.
        inbound.supersede(5, 50_000);
        inbound.look(5, 51_000);
        assert!(inbound.is_superseded());
        assert_eq!(inbound.deadline(), 50_000 + CONFIRM_MS);
        inbound.look(6, 52_000);
        assert!(!inbound.is_superseded());
        assert_eq!(inbound.deadline(), 52_000 + IDLE_MS);
        // So does one that is confirmed after that.
        inbound.supersede(6, 53_000);
        inbound.confirm();
        assert!(!inbound.is_superseded());
        // One that nobody has confirmed ends as it would.
        let mut inbound = Inbound::new(1_000);
        inbound.supersede(0, 9_000);
        assert_eq!(inbound.deadline(), 1_000 + CONFIRM_MS);
    }

    #[test]
    fn a_frame_confirms_and_is_heard() {
        let mut inbound = Inbound::new(1_000);
        inbound.look(3, 2_000);
        assert!(inbound.is_confirmed());
        assert_eq!(inbound.deadline(), 2_000 + IDLE_MS);
        // None has come since.
        inbound.look(3, 5_000);
        assert_eq!(inbound.last_heard(), 2_000);
        inbound.look(4, 6_000);
        assert_eq!(inbound.last_heard(), 6_000);
        assert_eq!(inbound.deadline(), 6_000 + IDLE_MS);
    }
}
