// SPDX-License-Identifier: GPL-2.0

//! Packets and MADs to a simulated switch, among changes of its links.

#![no_main]

use arbitrary::Arbitrary;
use ib_fabric::{Lid, LinkOffer, Mtu, Packet, Transport};
use libfuzzer_sys::fuzz_target;

#[path = "mads/mod.rs"]
mod mads;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/manager/mod.rs"]
mod manager;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/switch.rs"]
mod switch;

/// A thing that happens to it.
#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Packet(u8, bool, Packets, mads::Bytes<'a>),
    Up(u8, [u8; 3], u8),
    Down(u8),
    Describe(u8),
    Elapse(u16),
    Trap(u16),
}

/// A packet; most are to the agent.
#[derive(Arbitrary, Debug)]
enum Packets {
    Directed,
    Agent(u16, bool),
    Other(u16, u16, u8, u8, u16, u32, u16),
}

impl Packets {
    fn packet(&self) -> Packet {
        let smi = manager::sweep::smi_packet(0xffff, 0xffff);
        match *self {
            Packets::Directed => smi,
            Packets::Agent(dlid, general) => Packet {
                dlid: Lid::new(dlid),
                dest_qp: general.into(),
                management: !general,
                transport: Transport::datagram(1, 0x8001_0000),
                ..smi
            },
            Packets::Other(slid, dlid, sl, qp, pkey, qkey, len) => Packet {
                slid: Lid::new(slid),
                dlid: Lid::new(dlid),
                sl,
                pkey,
                dest_qp: qp.into(),
                len: len.into(),
                management: false,
                transport: Transport::datagram(qp.into(), qkey),
                ..smi
            },
        }
    }
}

impl Step<'_> {
    fn input(&self) -> switch::Input {
        use switch::Input;
        match *self {
            Step::Packet(port, manage, ref packet, ref mad) => {
                let (packet, mad) = (packet.packet(), Box::new(mad.mad()));
                if manage {
                    Input::Manage(port % 8, packet, mad)
                } else {
                    Input::Packet(port % 8, packet, mad)
                }
            }
            Step::Up(port, [widths, speeds, vl_cap], mtu) => {
                let offer = LinkOffer {
                    widths,
                    speeds,
                    mtu: Mtu::from_code(mtu % 5 + 1).expect("1 to 5"),
                    vl_cap,
                };
                Input::Up(port % 8, offer)
            }
            Step::Down(port) => Input::Down(port % 8),
            Step::Describe(byte) => Input::Describe(byte),
            Step::Elapse(seconds) => Input::Elapse(seconds),
            Step::Trap(passed) => Input::Trap(passed),
        }
    }
}

fuzz_target!(|input: (u8, Vec<Step<'_>>)| {
    let (first, steps) = input;
    let mut net = manager::net::Net::star(1 + first % 5);
    if first >= 0x80 {
        // Random bytes hardly ever bring a subnet up.
        let manager = manager::sweep::Manager::of(&mut net);
        let hosts = net.hosts();
        manager.write_group(&mut net, 0xc000, &hosts);
    }
    let node = net.get_switch(0);
    let mut now = 0;
    for step in steps.iter().take(64) {
        switch::feed(node, &mut now, &step.input());
        switch::check(node);
    }
});
