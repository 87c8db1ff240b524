// SPDX-License-Identifier: GPL-2.0

//! Directed routes at a switch (sections 14.2.2.2 outgoing and 14.2.2.4 returning).

use crate::addr::Lid;
use crate::mad::DirectedRoute;

/// The next step of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The packet leaves by the port that the initial path has for a hop.
    Forth(u8),
    /// The packet leaves by the port that the return path has for a hop.
    Back(u8),
    /// The directed part ends here, and the packet goes on by LID.
    ByLid(Lid),
    /// The packet is for this switch.
    Here,
}

/// A step with what it changes in the datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) step: Step,
    pub(super) hop_pointer: u8,
    /// The hop of the return path that gets the port the packet came in by.
    pub(super) note_return: Option<u8>,
}

/// Returns the next step of a packet that came to a switch with the LID `own`, permissive if it
/// has none. With `by_lid`, the packet came by that LID, not by the permissive one. `None` if the
/// packet is to be dropped.
pub(super) fn step(route: &DirectedRoute, by_lid: bool, own: Lid) -> Option<Taken> {
    if route.hop_count > DirectedRoute::MAX_HOPS {
        return None;
    }
    if route.returning {
        back(route, by_lid, own)
    } else {
        forth(route, by_lid, own)
    }
}

/// Section 14.2.2.2, C14-9.
fn forth(route: &DirectedRoute, by_lid: bool, own: Lid) -> Option<Taken> {
    let (pointer, count) = (route.hop_pointer, route.hop_count);
    let next = pointer.checked_add(1)?;
    let end = match route.dlid {
        Lid::PERMISSIVE => Some(Step::Here),
        lid if lid == own => Some(Step::Here),
        lid => Some(Step::ByLid(lid)).filter(|_| own.is_unicast()),
    };
    let (step, note_return) = match (by_lid, pointer) {
        // A part by LID has led here.
        (true, 0) if count != 0 => (Step::Forth(next), None),
        // Nothing but that: the answer needs a LID to go to.
        (true, 0) if route.slid.is_unicast() => (end?, None),
        // A part by LID after the directed one has led here.
        (true, pointer) if pointer == count.saturating_add(1) => {
            return Some(Taken {
                step: Step::Here,
                hop_pointer: pointer,
                note_return: None,
            });
        }
        (false, 0) => return None,
        (false, pointer) if pointer < count => (Step::Forth(next), Some(pointer)),
        (false, pointer) if pointer == count => (end?, Some(pointer)),
        _ => return None,
    };
    Some(Taken {
        step,
        hop_pointer: next,
        note_return,
    })
}

/// Section 14.2.2.4, C14-13. There is no subnet manager on a switch, so that no packet ends here.
fn back(route: &DirectedRoute, by_lid: bool, own: Lid) -> Option<Taken> {
    let (pointer, count) = (route.hop_pointer, route.hop_count);
    let next = pointer.checked_sub(1)?;
    let step = match (by_lid, pointer) {
        // The part by LID has led back here.
        (true, pointer) if count != 0 && pointer == count.saturating_add(1) => Step::Back(next),
        (false, 1) if count != 0 => {
            let onward = route.slid.is_unicast() && route.slid != own && own.is_unicast();
            Some(Step::ByLid(route.slid)).filter(|_| onward)?
        }
        (false, 2..) if pointer <= count => Step::Back(next),
        _ => return None,
    };
    Some(Taken {
        step,
        hop_pointer: next,
        note_return: None,
    })
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_switch_directed))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    const OWN: Lid = Lid::new(7);

    fn route(hop_pointer: u8, hop_count: u8, returning: bool) -> DirectedRoute {
        DirectedRoute {
            hop_pointer,
            hop_count,
            slid: Lid::PERMISSIVE,
            dlid: Lid::PERMISSIVE,
            returning,
        }
    }

    /// Returns step, hop pointer and noted hop.
    fn taken(route: DirectedRoute, by_lid: bool) -> Option<(Step, u8, Option<u8>)> {
        let taken = step(&route, by_lid, OWN)?;
        Some((taken.step, taken.hop_pointer, taken.note_return))
    }

    #[test]
    fn purely_directed() {
        // hop pointer, hop count, whether it returns, step
        let cases = [
            (1, 3, false, Some((Step::Forth(2), 2, Some(1)))),
            (2, 3, false, Some((Step::Forth(3), 3, Some(2)))),
            (3, 3, false, Some((Step::Here, 4, Some(3)))),
            (1, 1, false, Some((Step::Here, 2, Some(1)))),
            (62, 63, false, Some((Step::Forth(63), 63, Some(62)))),
            (63, 63, false, Some((Step::Here, 64, Some(63)))),
            (0, 3, false, None),
            (0, 0, false, None),
            (4, 3, false, None),
            (5, 3, false, None),
            (255, 3, false, None),
            (63, 64, false, None),
            (255, 255, false, None),
            (3, 3, true, Some((Step::Back(2), 2, None))),
            (2, 3, true, Some((Step::Back(1), 1, None))),
            (63, 63, true, Some((Step::Back(62), 62, None))),
            (1, 3, true, None),
            (0, 3, true, None),
            (4, 3, true, None),
            (255, 3, true, None),
            (3, 64, true, None),
        ];
        for (pointer, count, returning, expected) in cases {
            assert_eq!(taken(route(pointer, count, returning), false), expected);
        }
    }

    /// Parts by LID before and after the directed one.
    #[test]
    fn mixed_routes() {
        let from = |lid, route| DirectedRoute {
            slid: Lid::new(lid),
            ..route
        };
        let to = |lid, route| DirectedRoute {
            dlid: Lid::new(lid),
            ..route
        };
        // route, whether it came by LID, step
        let cases = [
            (
                from(3, route(0, 2, false)),
                true,
                Some((Step::Forth(1), 1, None)),
            ),
            (
                from(3, route(0, 0, false)),
                true,
                Some((Step::Here, 1, None)),
            ),
            (route(0, 0, false), true, None),
            (
                to(9, route(2, 2, false)),
                false,
                Some((Step::ByLid(Lid::new(9)), 3, Some(2))),
            ),
            (
                to(7, route(2, 2, false)),
                false,
                Some((Step::Here, 3, Some(2))),
            ),
            (to(7, route(3, 2, false)), true, Some((Step::Here, 3, None))),
            (to(7, route(3, 2, false)), false, None),
            (to(9, route(1, 2, false)), true, None),
            (
                to(9, route(3, 2, true)),
                true,
                Some((Step::Back(2), 2, None)),
            ),
            (to(9, route(3, 2, true)), false, None),
            (
                from(3, route(1, 2, true)),
                false,
                Some((Step::ByLid(Lid::new(3)), 0, None)),
            ),
            (from(7, route(1, 2, true)), false, None),
            (from(0, route(1, 2, true)), false, None),
            (from(0xc000, route(1, 2, true)), false, None),
            (from(3, route(1, 0, true)), true, None),
        ];
        for (route, by_lid, expected) in cases {
            assert_eq!(taken(route, by_lid), expected);
        }
    }

    /// A switch without a LID of its own cannot go on by one.
    #[test]
    fn no_lid_no_part_by_lid() {
        let outgoing = DirectedRoute {
            dlid: Lid::new(9),
            ..route(1, 1, false)
        };
        let returning = DirectedRoute {
            slid: Lid::new(9),
            ..route(1, 1, true)
        };
        for route in [outgoing, returning] {
            assert!(step(&route, false, OWN).is_some());
            assert_eq!(step(&route, false, Lid::PERMISSIVE), None);
        }
    }
}
