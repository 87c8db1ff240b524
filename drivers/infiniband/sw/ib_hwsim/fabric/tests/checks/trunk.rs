// SPDX-License-Identifier: GPL-2.0

//! Checks of an end of a cable through a network device, to which anybody may send frames. The fuzz targets in `tests/fuzz` use
//! them as well.

use ib_fabric::trunk::frame::{self, HEADER, HELLO_LEN};
use ib_fabric::trunk::{Address, Frame, Header, Heard, Outgoing, Step, Trunk, DEAD, HELLO, WINDOW};
use ib_fabric::{LinkOffer, Mtu};

const OFFER: LinkOffer = LinkOffer {
    widths: 3,
    speeds: 7,
    mtu: Mtu::B2048,
    vl_cap: 4,
};

/// Checks that a frame is written as it was read.
pub(crate) fn reads_as_written(bytes: &[u8]) {
    match frame::parse(bytes) {
        Some(Frame::Hello(header, hello)) => {
            assert!(header.session != 0 && bytes.len() >= HELLO_LEN);
            let again = hello.frame(&header);
            assert_eq!(frame::parse(&again), Some(Frame::Hello(header, hello)));
        }
        Some(Frame::Packet(header, packet)) => {
            assert!(header.session != 0);
            assert_eq!(packet, &bytes[HEADER..]);
            let again = [&header.packet()[..], packet].concat();
            assert_eq!(frame::parse(&again), Some(Frame::Packet(header, packet)));
        }
        None => {}
    }
}

/// An end of the cable, and its clock.
pub(crate) struct End {
    trunk: Trunk,
    now: u64,
}

impl End {
    pub(crate) fn new(seed: u32) -> End {
        End {
            trunk: Trunk::new(seed),
            now: 0,
        }
    }

    /// Gives it a frame from an address. A packet counts only while the link is up, and from its other end.
    pub(crate) fn take(&mut self, from: Address, bytes: &[u8]) {
        reads_as_written(bytes);
        let (peer, lost) = (self.trunk.address(), self.trunk.lost());
        match frame::parse(bytes) {
            Some(Frame::Hello(header, hello)) => {
                let heard = self.trunk.hello(self.now, from, &header, &hello);
                if heard == Heard::Third {
                    assert!(peer.is_some_and(|address| address != from));
                    assert_eq!(peer, self.trunk.address());
                }
                assert!(self.trunk.lost() >= lost);
            }
            Some(Frame::Packet(header, _)) => {
                if self.trunk.packet(from, &header).is_ok() {
                    assert!(self.trunk.is_up() && peer == Some(from));
                    // One that is late was taken for lost.
                    assert!(self.trunk.lost() + 1 >= lost);
                } else {
                    assert_eq!(lost, self.trunk.lost());
                }
            }
            None => {}
        }
    }

    /// Carries out what is due after some time, as a cable does.
    pub(crate) fn pass(&mut self, time: u64) {
        self.now += time;
        match self.trunk.step(self.now, true) {
            Step::Stay => {}
            Step::Lose | Step::Train => {
                self.trunk.link_down();
                if self.trunk.offer().is_some() {
                    self.trunk.link_up();
                }
            }
        }
        if let Some(to) = self.trunk.greeting(self.now) {
            let _ = self.trunk.say_hello(self.now, to, Some(OFFER));
            assert!(self.trunk.greeting(self.now).is_none());
        }
    }

    /// Sends all that there is room for, to the other end alone.
    pub(crate) fn send(&mut self) {
        let session = self.trunk.header().session;
        for sent in 0.. {
            match self.trunk.next_frame(|| Some((session, ()))) {
                Some(Outgoing::Send(header, to, ())) => {
                    assert!(sent < WINDOW && self.trunk.is_up());
                    assert_eq!((header.session, Some(to)), (session, self.trunk.address()));
                }
                Some(Outgoing::Stale(())) if sent < 2 * WINDOW => {}
                Some(Outgoing::Stale(())) | None => break,
            }
        }
    }

    /// Checks that the link comes up with an honest end, after silence. Returns the header of what that end would send.
    pub(crate) fn comes_up(&mut self) -> Header {
        let mut other = End::new(0x7777);
        other.now = self.now;
        let addresses = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];
        self.pass(DEAD + 1);
        other.pass(DEAD + 1);
        for _ in 0..6 {
            self.pass(HELLO);
            other.pass(HELLO);
            let hello = self.hello();
            other.take(addresses[0], &hello);
            other.pass(0);
            let hello = other.hello();
            self.take(addresses[1], &hello);
            self.pass(0);
        }
        assert!(self.trunk.is_up() && other.trunk.is_up());
        self.send();
        other.trunk.header()
    }

    fn hello(&mut self) -> [u8; HELLO_LEN] {
        let to = ib_fabric::trunk::Greeting::All;
        self.trunk.say_hello(self.now, to, Some(OFFER))
    }
}
