// SPDX-License-Identifier: GPL-2.0

//! Link states (section 7.2.7), the steps that a subnet manager may ask for, and training.

use crate::mtu::Mtu;

/// The widths that a port supports: 1x and 4x, as a mask of section 14.2.5.6.
pub(crate) const WIDTHS: u8 = 0b011;

/// The speeds that a port supports: 2.5, 5 and 10 Gbit/s a lane, as a mask of section 14.2.5.6.
pub(crate) const SPEEDS: u8 = 0b111;

/// The VLCap of a port: virtual lanes 0 to 7.
pub(crate) const VL_CAP: u8 = 4;

/// A PortState, by its code in management datagrams and in RDMA core.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum PortState {
    /// No link: nothing is sent or received.
    Down = 1,
    /// Trained: subnet management packets pass.
    Init = 2,
    /// Configured: packets are received, but only subnet management packets are sent.
    Armed = 3,
    /// All packets pass.
    Active = 4,
}

impl PortState {
    /// Returns true if packets may leave, of subnet management or others.
    #[inline]
    pub fn sends(self, management: bool) -> bool {
        self == PortState::Active || management && self != PortState::Down
    }

    /// Returns true if packets may come in, of subnet management or others.
    #[inline]
    pub fn receives(self, management: bool) -> bool {
        self >= PortState::Armed || management && self != PortState::Down
    }
}

/// A PortPhysicalState, by its code there. Training takes no time here, so that its own states do not occur.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PhysState {
    /// The port waits for a partner that wakes it.
    Sleep = 1,
    /// The port looks for a partner.
    Polling = 2,
    /// The port is switched off until the subnet manager says otherwise.
    Disabled = 3,
    /// The link is trained.
    LinkUp = 5,
}

impl PhysState {
    /// Returns true if a link can be trained from this state.
    #[inline]
    pub const fn can_train(self) -> bool {
        matches!(self, PhysState::Sleep | PhysState::Polling)
    }

    /// Makes a state that a subnet manager may ask for: Sleep, Polling or Disabled.
    pub(crate) const fn requested(code: u8) -> Option<PhysState> {
        match code {
            1 => Some(PhysState::Sleep),
            2 => Some(PhysState::Polling),
            3 => Some(PhysState::Disabled),
            _ => None,
        }
    }
}

/// The abilities that one end of a cable shows to the other at training.
///
/// A cable with limits of its own hands on less than it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkOffer {
    /// Enabled widths: bit 0 is 1x, bit 1 is 4x, bit 2 is 8x, bit 3 is 12x.
    pub widths: u8,
    /// Enabled speeds of a lane: bit 0 is 2.5, bit 1 is 5, bit 2 is 10 Gbit/s.
    pub speeds: u8,
    /// The largest MTU.
    pub mtu: Mtu,
    /// The virtual lanes, in the code of VLCap (section 14.2.5.6).
    pub vl_cap: u8,
}

/// The parameters of a trained link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Trained {
    pub(crate) width: u8,
    pub(crate) speed: u8,
    pub(crate) mtu: Mtu,
    pub(crate) vls: u8,
}

impl LinkOffer {
    /// The offer of a port that does not exist.
    pub(crate) const NONE: LinkOffer = LinkOffer {
        widths: 0,
        speeds: 0,
        mtu: Mtu::B256,
        vl_cap: 0,
    };

    /// Returns what of an offer comes through a cable with limits of its own.
    pub fn limited(&self, cable: &LinkOffer) -> LinkOffer {
        LinkOffer {
            widths: self.widths & cable.widths,
            speeds: self.speeds & cable.speeds,
            mtu: self.mtu.min(cable.mtu),
            vl_cap: self.vl_cap.min(cable.vl_cap),
        }
    }

    /// Settles on the best that both ends can do. `None` if they have no width, no speed or no
    /// virtual lane in common.
    pub(crate) fn negotiate(&self, peer: &LinkOffer) -> Option<Trained> {
        Some(Trained {
            width: highest_bit(self.widths & peer.widths)?,
            speed: highest_bit(self.speeds & peer.speeds)?,
            mtu: self.mtu.min(peer.mtu),
            vls: Some(self.vl_cap.min(peer.vl_cap)).filter(|&vls| vls != 0)?,
        })
    }
}

/// Returns the highest bit of a mask; `None` for an empty one.
fn highest_bit(mask: u8) -> Option<u8> {
    let index = mask.checked_ilog2()?;
    Some(1u8.wrapping_shl(index))
}

/// A step of the port state machine that Set(PortInfo) asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Neither state changes.
    Stay,
    /// The link goes down, to this physical state.
    Down(PhysState),
    /// Init to Armed.
    Arm,
    /// Armed to Active.
    Activate,
}

impl Step {
    /// Checks PortState and PortPhysicalState of Set(PortInfo) against the present ones; zero
    /// stands for no change (section 14.2.5.6). `None` if the port cannot take that step.
    ///
    /// A physical state goes with PortState Down or no change only. Armed follows Init, Active
    /// follows Armed, and to ask for either again changes nothing.
    pub(crate) fn requested(
        state: PortState,
        phys: PhysState,
        down_default: PhysState,
        wanted: u8,
        wanted_phys: u8,
    ) -> Option<Step> {
        match (wanted, wanted_phys, state) {
            (0, 0, _)
            | (1, 0, PortState::Down)
            | (3, 0, PortState::Armed)
            | (4, 0, PortState::Active) => Some(Step::Stay),
            (1, 0, _) => Some(Step::Down(down_default)),
            (0 | 1, code, _) => match PhysState::requested(code)? {
                same if same == phys => Some(Step::Stay),
                other => Some(Step::Down(other)),
            },
            (3, 0, PortState::Init) => Some(Step::Arm),
            (4, 0, PortState::Armed) => Some(Step::Activate),
            _ => None,
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_link))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const FULL: LinkOffer = LinkOffer {
        widths: WIDTHS,
        speeds: SPEEDS,
        mtu: Mtu::B4096,
        vl_cap: VL_CAP,
    };

    #[test]
    fn the_best_of_both_ends() {
        let narrow = LinkOffer {
            widths: 0b001,
            speeds: 0b011,
            mtu: Mtu::B2048,
            vl_cap: 2,
        };
        let expected = Trained {
            width: 1,
            speed: 2,
            mtu: Mtu::B2048,
            vls: 2,
        };
        assert_eq!(FULL.negotiate(&narrow), Some(expected));
        assert_eq!(narrow.negotiate(&FULL), Some(expected));
        assert_eq!(
            FULL.negotiate(&FULL),
            Some(Trained {
                width: 2,
                speed: 4,
                mtu: Mtu::B4096,
                vls: VL_CAP,
            })
        );
    }

    #[test]
    fn nothing_in_common_trains_nothing() {
        for other in [
            LinkOffer { widths: 8, ..FULL },
            LinkOffer { speeds: 0, ..FULL },
            LinkOffer { vl_cap: 0, ..FULL },
        ] {
            assert_eq!(FULL.negotiate(&other), None);
        }
    }

    /// Section 14.2.5.6, PortState: each step from each state.
    #[test]
    fn steps_of_the_subnet_manager() {
        use PortState::{Active, Armed, Down, Init};
        let down = Some(Step::Down(PhysState::Polling));
        let stay = Some(Step::Stay);
        // requested state, answer in Down, Init, Armed, Active
        let cases = [
            (0, [stay, stay, stay, stay]),
            (1, [stay, down, down, down]),
            (2, [None, None, None, None]),
            (3, [None, Some(Step::Arm), stay, None]),
            (4, [None, None, Some(Step::Activate), stay]),
            (5, [None, None, None, None]),
            (15, [None, None, None, None]),
        ];
        for (wanted, answers) in cases {
            for (state, answer) in [Down, Init, Armed, Active].into_iter().zip(answers) {
                let phys = if state == Down {
                    PhysState::Polling
                } else {
                    PhysState::LinkUp
                };
                assert_eq!(
                    Step::requested(state, phys, PhysState::Polling, wanted, 0),
                    answer
                );
            }
        }
    }

    #[test]
    fn physical_states_of_the_subnet_manager() {
        let step = |state, phys, wanted, wanted_phys| {
            Step::requested(state, phys, PhysState::Sleep, wanted, wanted_phys)
        };
        let (active, up) = (PortState::Active, PhysState::LinkUp);
        for wanted in [0, 1] {
            for phys in [PhysState::Sleep, PhysState::Polling, PhysState::Disabled] {
                let expected = Some(Step::Down(phys));
                assert_eq!(step(active, up, wanted, phys as u8), expected);
            }
            for code in [4, 5, 6, 7, 15] {
                assert_eq!(step(active, up, wanted, code), None);
            }
        }
        assert_eq!(step(active, up, 4, 2), None);
        assert_eq!(step(active, up, 1, 0), Some(Step::Down(PhysState::Sleep)));
        // A disabled port stays so until it is told to poll.
        let (down, disabled) = (PortState::Down, PhysState::Disabled);
        assert_eq!(step(down, disabled, 1, 0), Some(Step::Stay));
        assert_eq!(step(down, disabled, 0, 3), Some(Step::Stay));
        assert_eq!(
            step(down, disabled, 0, 2),
            Some(Step::Down(PhysState::Polling))
        );
    }
}
