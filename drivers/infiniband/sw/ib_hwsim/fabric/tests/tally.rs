// SPDX-License-Identifier: GPL-2.0

//! Texts of the tallies of a port.

use ib_fabric::{Discard, Lid, Packet, Tally, Transport};

#[test]
fn a_line_for_each_tally() {
    let packet = Packet {
        len: 4,
        management: true,
        ..Packet::new(Lid::new(1), Lid::new(2), 0x48, Transport::datagram(0x49, 0))
    };
    let mut tally = Tally::default();
    tally.sent(&packet);
    tally.sent(&packet);
    for _ in 0..5 {
        tally.received(&packet);
    }
    tally.own(&packet);
    tally.copied(&packet, 4);
    tally.copied(&packet, 0);
    tally.delivered(&packet);
    tally.delivered(&packet);
    tally.dropped(Discard::NoReceive, &packet);
    tally.dropped(Discard::QKey, &packet);
    tally.dropped(Discard::QKey, &packet);
    tally.unsent(7);
    tally.lost(8);
    tally.doubled();
    tally.trap();
    tally.link_down();
    let mut text = String::new();
    tally.print(&mut text).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "sent_packets: 2",
            "sent_bytes: 72",
            "received_packets: 5",
            "received_bytes: 180",
            "own: 1",
            "copies: 3",
            "delivered: 2",
            "ignored: 1",
            "dropped: 3",
            "dropped_port_down: 0",
            "dropped_not_for_us: 0",
            "dropped_too_long: 0",
            "dropped_bad_length: 0",
            "dropped_pkey: 0",
            "dropped_qkey: 2",
            "dropped_no_qp: 0",
            "dropped_no_receive: 1",
            "dropped_short_buffer: 0",
            "dropped_protection: 0",
            "dropped_no_route: 0",
            "dropped_no_lane: 0",
            "dropped_crc: 0",
            "vl15_dropped: 1",
            "unsent: 7",
            "lost: 8",
            "doubled: 1",
            "traps_sent: 1",
            "link_downs: 1",
        ]
    );
}
