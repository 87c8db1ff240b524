// SPDX-License-Identifier: GPL-2.0

//! Checks of a switch, whatever happens to it. The fuzz targets in `tests/fuzz` use them as well.

use crate::manager::net::Vectors;
use ib_fabric::{Forward, Lid, LinkOffer, Mad, Packet, PhysState, PortState, Switch, TrapDue};

/// A thing that happens to a switch.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Packet(u8, Packet, Box<Mad>),
    Manage(u8, Packet, Box<Mad>),
    Up(u8, LinkOffer),
    Down(u8),
    Describe(u8),
    Elapse(u16),
    Trap(u16),
}

/// Checks what has to hold at any time.
pub(crate) fn check(switch: &Switch<Vectors>) {
    let ports = switch.identity().ports;
    for number in 0..=ports {
        let port = switch.port(number).unwrap();
        assert_eq!(port.number(), number);
        let up = port.phys_state() == PhysState::LinkUp;
        assert_eq!(port.state() != PortState::Down, up);
        assert!(port.active_mtu() <= port.mtu_cap);
        if number == 0 {
            assert_eq!(port.state(), PortState::Active);
            assert!(port.lid() == Lid::NONE || port.lid().is_unicast());
            assert_eq!(port.lmc, 0);
        } else {
            assert_eq!((port.lid(), port.sm_lid), (Lid::NONE, Lid::NONE));
            assert_eq!(port.cap_mask, 0);
        }
    }
    assert!(switch.port(ports + 1).is_none());
}

/// Gives a datagram to the agents and checks what leaves.
fn manage(switch: &mut Switch<Vectors>, port: u8, packet: &Packet, mad: &Mad) {
    let (mut packet, mut answer) = (*packet, *mad);
    let managed = switch.manage(port, &mut packet, &mut answer);
    let external = 1..=switch.identity().ports;
    if let Some(out) = managed.out {
        assert!(external.contains(&out));
        assert_eq!(packet.len, 256);
        let up = switch.port(out).unwrap().state() != PortState::Down;
        assert!(up || managed.retrain == Some(out));
        assert_eq!(answer[8..24].to_vec(), mad[8..24].to_vec());
    }
    if let Some(down) = managed.retrain {
        assert!(external.contains(&down));
        assert_eq!(switch.port(down).unwrap().state(), PortState::Down);
    }
}

/// Feeds a switch and checks what it says.
pub(crate) fn feed(switch: &mut Switch<Vectors>, now: &mut u64, input: &Input) {
    let ports = switch.identity().ports;
    match input {
        Input::Packet(port, packet, mad) => match switch.forward(*port, packet) {
            Forward::Out(out) => {
                assert!((1..=ports).contains(&out) && out != *port);
                let state = switch.port(out).unwrap().state();
                assert!(state == PortState::Active || packet.management);
            }
            Forward::Flood(outs) => {
                assert!(packet.dlid.is_multicast() && !packet.management);
                assert!(!outs.is_empty() && !outs.contains(*port));
                for out in outs {
                    let state = switch.port(out).map(|port| port.state());
                    assert_eq!(state, Some(PortState::Active));
                }
            }
            Forward::Manage => manage(switch, *port, packet, mad),
            Forward::Drop => {}
        },
        Input::Manage(port, packet, mad) => manage(switch, *port, packet, mad),
        Input::Up(port, offer) => switch.link_up(*port, offer),
        Input::Down(port) => {
            switch.link_down(*port);
            let state = switch.port(*port).map(|port| port.state());
            assert!(*port == 0 || state.is_none_or(|state| state == PortState::Down));
        }
        Input::Describe(byte) => switch.set_description(&[*byte; 64]),
        Input::Elapse(seconds) => switch.elapse(*seconds),
        Input::Trap(passed) => {
            *now += u64::from(*passed);
            let mut mad = [0xee; 256];
            match switch.trap(*now, &mut mad) {
                TrapDue::Send { out, packet } => {
                    assert!((1..=ports).contains(&out) && packet.management);
                    assert_eq!(mad[..4].to_vec(), vec![1, 1, 1, 5]);
                    // Not twice at one time.
                    let again = switch.trap(*now, &mut mad);
                    assert!(matches!(again, TrapDue::At(at) if at > *now));
                }
                TrapDue::At(at) => assert!(at > *now),
                TrapDue::Never => {}
            }
        }
    }
}
