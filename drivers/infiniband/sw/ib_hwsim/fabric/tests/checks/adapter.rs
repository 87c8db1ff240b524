// SPDX-License-Identifier: GPL-2.0

//! Checks of an adapter, whatever happens to it. The fuzz targets in `tests/fuzz` use them as well.

use crate::manager::GET;
use ib_fabric::{Arrival, Config, Counted, Hca, Lid, LinkOffer, Mad, Traffic};
use ib_fabric::{Event, PhysState, PortState, Verdict};

/// A thing that happens to an adapter.
#[derive(Clone, Debug)]
pub(crate) enum Input {
    Mad(u8, Arrival, Box<Mad>),
    Up(u8, LinkOffer),
    Down(u8),
    Data(u8),
    Capabilities(u8, u32, u32),
    Count(u8, u32),
    Elapse(u16),
}

/// Checks what has to hold at any time.
pub(crate) fn check(hca: &Hca, config: &Config) {
    for number in 1..=config.ports {
        let port = hca.port(number).unwrap();
        let lid = port.lid();
        assert!(lid == Lid::NONE || lid.is_unicast());
        assert!(port.sm_lid == Lid::NONE || port.sm_lid.is_unicast());
        assert!(port.lmc <= 7 && lid.get() % (1 << port.lmc) == 0);
        assert!(port.active_mtu() <= port.mtu_cap);
        assert_eq!(port.mtu_cap, config.mtu);
        assert!(port.width_active.is_power_of_two() && port.width_active & 3 != 0);
        assert!(port.speed_active.is_power_of_two() && port.speed_active & 7 != 0);
        let up = port.phys_state() == PhysState::LinkUp;
        assert_eq!(port.state() != PortState::Down, up);
        assert!(port.gid(0).unwrap().guid() == config.port_guids[usize::from(number) - 1]);
        assert!((0..=u8::MAX).all(|i| port.gid(i).is_some() == (i < config.guids)));
        assert!((0..200).all(|i| port.pkey(i).is_some() == (i < config.pkeys)));
        assert!((0..16).all(|sl| port.virtual_lane(sl).is_none_or(|vl| vl < 8)));
    }
    assert_eq!(hca.identity(), config);
}

/// Feeds an adapter and checks the answer.
pub(crate) fn feed(hca: &mut Hca, input: &Input) {
    let state = |hca: &Hca, port| hca.port(port).map(|port| port.state());
    match input {
        Input::Mad(port, how, request) => {
            let mut reply = [0xee; 256];
            let before: Vec<_> = (0..=2).map(|port| state(hca, port)).collect();
            let outcome = hca.process_mad(*port, how, request, &mut reply);
            if outcome.verdict == Verdict::Reply {
                assert_eq!(reply[3], 0x81);
                assert_eq!(&reply[6..64], &request[6..64]);
                assert_eq!(reply[4], request[1] & 0x80);
                let smp = request[1] != 4;
                assert!(!smp || reply[128..] == request[128..]);
            } else {
                assert_eq!(reply, [0xee; 256]);
            }
            let quiet = outcome.verdict != Verdict::Reply || request[3] == GET || reply[5] != 0;
            assert!(!quiet || outcome.events.is_empty() && outcome.retrain.is_none());
            // Events of a state say that this port, and no other, has changed it.
            for (number, before) in (0u8..).zip(before) {
                let after = state(hca, number);
                assert!(number == outcome.port || after == before);
                let concerned = number == outcome.port && before.is_some();
                let active = concerned && outcome.events.contains(Event::PortActive);
                assert!(!active || before == Some(PortState::Armed));
                let became = before != after && after == Some(PortState::Active);
                assert_eq!(became, active);
            }
        }
        Input::Up(port, offer) => {
            let down = state(hca, *port) == Some(PortState::Down);
            assert!(hca.link_up(*port, offer).is_empty());
            if let Some(port) = hca.port(*port) {
                let trained = down && port.state() == PortState::Init;
                assert!(!trained || port.active_mtu() <= offer.mtu);
                assert!(!trained || port.width_active & offer.widths != 0);
                assert!(!trained || port.speed_active & offer.speeds != 0);
            }
        }
        Input::Down(port) => {
            let configured = state(hca, *port) >= Some(PortState::Armed);
            let events = hca.link_down(*port);
            assert_eq!(events.contains(Event::PortError), configured);
            assert!(state(hca, *port).is_none_or(|state| state == PortState::Down));
        }
        Input::Data(port) => {
            let armed = state(hca, *port) == Some(PortState::Armed);
            let events = hca.data_arrived(*port);
            assert_eq!(events.contains(Event::PortActive), armed);
        }
        Input::Capabilities(port, set, clear) => {
            assert!(hca.set_cap_mask(*port, *set, *clear).is_empty());
        }
        Input::Count(port, bytes) => hca.count(*port, Counted::Sent(Traffic::unicast(*bytes))),
        Input::Elapse(seconds) => hca.elapse(*seconds),
    }
}
