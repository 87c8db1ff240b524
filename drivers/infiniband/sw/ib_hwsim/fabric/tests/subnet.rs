// SPDX-License-Identifier: GPL-2.0

//! A small subnet manager brings up two adapters back to back and changes their settings.

mod manager;

use ib_fabric::{Event, Hca, PhysState, PortState};
use manager::*;

fn pair() -> (Hca, Hca) {
    let (mut a, mut b) = (adapter(0x10, 1), adapter(0x20, 1));
    connect(&mut a, &mut b);
    (a, b)
}

/// A pair with both ports Active, LIDs 1 and 2.
fn active_pair() -> (Hca, Hca) {
    let (mut a, mut b) = pair();
    bring_up(&mut a, 1);
    bring_up(&mut b, 2);
    (a, b)
}

#[test]
fn pair_comes_up_in_both_orders() {
    for swap in [false, true] {
        let (mut a, mut b) = pair();
        let mut ends = if swap {
            [(&mut b, 2), (&mut a, 1)]
        } else {
            [(&mut a, 1), (&mut b, 2)]
        };
        for (hca, lid) in &mut ends {
            assert_eq!(states(hca), (INIT, 5));
            let (status, events) = assign(hca, *lid, 1);
            assert_eq!(status, 0);
            assert_events(events, &[Event::LidChange, Event::SmChange]);
        }
        for (hca, _) in &mut ends {
            let (status, events) = set_state(hca, ARMED);
            assert_eq!(status, 0);
            assert_events(events, &[]);
            assert_eq!(states(hca), (ARMED, 5));
        }
        for (hca, lid) in &mut ends {
            let (status, events) = set_state(hca, ACTIVE);
            assert_eq!(status, 0);
            assert_events(events, &[Event::PortActive]);
            let port = hca.port(1).unwrap();
            assert_eq!(port.state(), PortState::Active);
            assert_eq!((port.lid().get(), port.sm_lid.get()), (*lid, 1));
        }
    }
}

/// Armed by the manager, Active by the first packet of an end that is.
#[test]
fn armed_end_follows_the_active_one() {
    let (_, mut b) = pair();
    assign(&mut b, 2, 1);
    set_state(&mut b, ARMED);
    assert_events(b.data_arrived(1), &[Event::PortActive]);
    assert_events(b.data_arrived(1), &[]);
    let (status, events) = set_state(&mut b, ACTIVE);
    assert_eq!(status, 0);
    assert_events(events, &[]);
}

#[test]
fn refused_steps_leave_everything() {
    // steps taken before, refused state
    let cases: [(&[u8], u8); 7] = [
        (&[], ACTIVE),
        (&[], INIT),
        (&[], 5),
        (&[ARMED], INIT),
        (&[ARMED, ACTIVE], INIT),
        (&[ARMED, ACTIVE], ARMED),
        (&[ARMED, ACTIVE], 15),
    ];
    for (steps, refused) in cases {
        let (mut a, _) = pair();
        assign(&mut a, 1, 1);
        for &step in steps {
            assert_eq!(set_state(&mut a, step).0, 0);
        }
        let before = get(&mut a, PORT_INFO, 1);
        // All else in the refused request is new and valid.
        let mut info = port_info(&mut a);
        info[32] |= refused;
        info[8..16].copy_from_slice(&0xfec0_0000_0000_0009_u64.to_be_bytes());
        info[16..18].copy_from_slice(&9_u16.to_be_bytes());
        info[51] = 0x80 | 18;
        let (status, events) = set_port_info(&mut a, &info);
        assert_eq!(status, 0x1c);
        assert_events(events, &[]);
        assert_eq!(get(&mut a, PORT_INFO, 1), before);
    }
}

#[test]
fn port_without_a_link_takes_addresses_but_no_steps() {
    let mut a = adapter(0x10, 1);
    assert_eq!(states(&mut a), (DOWN, 2));
    assert_eq!(assign(&mut a, 3, 1).0, 0);
    for state in [INIT, ARMED, ACTIVE] {
        assert_eq!(set_state(&mut a, state).0, 0x1c);
    }
    assert_eq!(states(&mut a), (DOWN, 2));
}

#[test]
fn partition_keys() {
    let (mut a, _) = active_pair();
    let mut block = get(&mut a, P_KEY_TABLE, 0);
    assert_eq!(block[..4], [0xff, 0xff, 0, 0]);
    block[2..4].copy_from_slice(&[0x80, 0x01]);
    for expected in [&[Event::PKeyChange][..], &[]] {
        let (status, data, events) = set(&mut a, P_KEY_TABLE, 0, &block);
        assert_eq!((status, data), (0, block));
        assert_events(events, expected);
    }
    // The upper half of the modifier is a switch's.
    assert_eq!(get(&mut a, P_KEY_TABLE, 0x0001_0000), block);
    assert_eq!(a.port(1).unwrap().pkey(1), Some(0x8001));

    // A manager without the default partition takes it away.
    let (_, _, events) = set(&mut a, P_KEY_TABLE, 0, &[0; 64]);
    assert_events(events, &[Event::PKeyChange]);
    assert_eq!(a.port(1).unwrap().pkey(0), Some(0));

    // 128 keys are four blocks.
    assert_eq!(set(&mut a, P_KEY_TABLE, 3, &[1; 64]).0, 0);
    let (status, _, events) = set(&mut a, P_KEY_TABLE, 4, &[1; 64]);
    assert_eq!(status, 0x1c);
    assert_events(events, &[]);
}

#[test]
fn client_reregistration() {
    let (mut a, _) = active_pair();
    let mut info = port_info(&mut a);
    info[51] = 0x80 | 18;
    for _ in 0..2 {
        let (status, events) = set_port_info(&mut a, &info);
        assert_eq!(status, 0);
        assert_events(events, &[Event::ClientReregister]);
        assert_eq!(get(&mut a, PORT_INFO, 1)[51], 18);
    }
    assert_eq!(a.port(1).unwrap().subnet_timeout, 18);
}

#[test]
fn changes_that_are_events() {
    // offset, new byte, event
    let cases = [
        (17, 5, Event::LidChange),
        (19, 5, Event::SmChange),
        (36, 0x53, Event::SmChange),
        (15, 1, Event::GidChange),
    ];
    for (offset, byte, event) in cases {
        let (mut a, _) = active_pair();
        let mut info = port_info(&mut a);
        info[offset] = byte;
        for expected in [&[event][..], &[]] {
            let (status, events) = set_port_info(&mut a, &info);
            assert_eq!(status, 0);
            assert_events(events, expected);
        }
        assert_eq!(a.port(1).unwrap().state(), PortState::Active);
    }
    // The LMC is part of the address.
    let (mut a, _) = active_pair();
    assign(&mut a, 8, 1);
    let mut info = port_info(&mut a);
    info[34] = 3;
    assert_events(set_port_info(&mut a, &info).1, &[Event::LidChange]);
    assert_eq!(a.port(1).unwrap().lmc, 3);
}

#[test]
fn guids() {
    let (mut a, _) = active_pair();
    let mut block = get(&mut a, GUID_INFO, 0);
    assert_eq!(block[..8], 0x11_u64.to_be_bytes());
    block[..16].fill(0xab);
    let (status, data, events) = set(&mut a, GUID_INFO, 0, &block);
    assert_eq!(status, 0);
    assert_events(events, &[Event::GidChange]);
    assert_eq!(data[..8], 0x11_u64.to_be_bytes());
    assert_eq!(data[8..16], [0xab; 8]);
    assert_events(set(&mut a, GUID_INFO, 0, &block).2, &[]);
    assert_eq!(set(&mut a, GUID_INFO, 4, &block).0, 0x1c);
    assert_eq!(a.port(1).unwrap().gid(1).unwrap().bytes()[8..], [0xab; 8]);
}

#[test]
fn link_is_pulled_and_comes_back() {
    let (mut a, mut b) = active_pair();
    for hca in [&mut a, &mut b] {
        assert_events(hca.link_down(1), &[Event::PortError]);
        assert_events(hca.link_down(1), &[]);
        assert_eq!(states(hca), (DOWN, 2));
    }
    connect(&mut a, &mut b);
    for (hca, lid) in [(&mut a, 1), (&mut b, 2)] {
        assert_eq!(states(hca), (INIT, 5));
        // The manager finds its old address and writes it again.
        assert_eq!(hca.port(1).unwrap().lid().get(), lid);
        assert_events(assign(hca, lid, 1).1, &[]);
        assert_events(set_state(hca, ARMED).1, &[]);
        assert_events(set_state(hca, ACTIVE).1, &[Event::PortActive]);
    }
}

#[test]
fn manager_takes_a_link_down() {
    // states asked for, physical state after, whether it may train
    let cases = [
        (0x01, 0x02, PhysState::Polling, true),
        (0x01, 0x22, PhysState::Polling, true),
        (0x00, 0x22, PhysState::Polling, true),
        (0x01, 0x12, PhysState::Sleep, true),
        (0x01, 0x01, PhysState::Sleep, true),
        (0x01, 0x32, PhysState::Disabled, false),
        (0x00, 0x32, PhysState::Disabled, false),
    ];
    for (state, phys, after, trains) in cases {
        let (mut a, b) = active_pair();
        let mut info = port_info(&mut a);
        info[32] |= state;
        info[33] = phys;
        let (status, data, outcome) = exchange(&mut a, 1, &smp(SET, PORT_INFO, 1, &info));
        assert_eq!((status, outcome.retrain), (0, Some(1)));
        assert_events(outcome.events, &[Event::PortError]);
        assert_eq!((data[32] & 0xf, data[33] >> 4), (DOWN, after as u8));

        assert_events(a.link_down(1), &[]);
        a.link_up(1, &b.offer(1));
        let up = a.port(1).unwrap().state() == PortState::Init;
        assert_eq!(up, trains);
    }
}

/// A disabled port is told to poll by a manager on its own host.
#[test]
fn disabled_port_is_enabled() {
    let (mut a, b) = active_pair();
    let mut info = port_info(&mut a);
    info[33] = 0x32;
    exchange(&mut a, 1, &smp(SET, PORT_INFO, 1, &info));
    let info = port_info(&mut a);
    for (phys, retrain) in [(0x32, None), (0x02, None), (0x22, Some(1))] {
        let mut info = info;
        info[33] = phys;
        let (status, _, outcome) = exchange(&mut a, 1, &smp(SET, PORT_INFO, 1, &info));
        assert_eq!((status, outcome.retrain), (0, retrain));
        assert_events(outcome.events, &[]);
    }
    a.link_up(1, &b.offer(1));
    assert_eq!(states(&mut a), (INIT, 5));
}

/// A new width is a matter of the next training.
#[test]
fn narrower_link_after_training() {
    let (mut a, mut b) = active_pair();
    assert_eq!(get(&mut a, PORT_INFO, 1)[31], 2);
    let mut info = port_info(&mut a);
    info[29] = 1;
    assert_eq!(set_port_info(&mut a, &info).0, 0);
    assert_eq!(get(&mut a, PORT_INFO, 1)[31], 2);
    a.link_down(1);
    b.link_down(1);
    connect(&mut a, &mut b);
    for hca in [&mut a, &mut b] {
        assert_eq!(get(hca, PORT_INFO, 1)[31], 1);
    }
}

#[test]
fn virtual_lanes() {
    let (mut a, _) = active_pair();
    let mut map = [0; 64];
    map[0] = 0x0f;
    assert_eq!(set(&mut a, SL_TO_VL, 0, &map).0, 0);
    assert_eq!(get(&mut a, SL_TO_VL, 0x0101), map);
    let port = a.port(1).unwrap();
    assert_eq!(
        (port.virtual_lane(0), port.virtual_lane(1)),
        (Some(0), None)
    );

    let info = get(&mut a, PORT_INFO, 1);
    assert_eq!((info[39], info[40]), (8, 8), "entries of each list");
    let mut list = [0; 64];
    list[..16].fill(7);
    for block in [1, 3] {
        assert_eq!(
            set(&mut a, VL_ARBITRATION, (block << 16) | 1, &[7; 64]).0,
            0
        );
        assert_eq!(get(&mut a, VL_ARBITRATION, block << 16), list);
    }
    for block in [0, 2, 4, 5] {
        assert_eq!(
            set(&mut a, VL_ARBITRATION, (block << 16) | 1, &[7; 64]).0,
            0x1c
        );
    }
}
