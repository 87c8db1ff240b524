// SPDX-License-Identifier: GPL-2.0

//! MADs to a simulated adapter, among changes of its links.

#![no_main]

use arbitrary::Arbitrary;
use ib_fabric::{Arrival, Config, Guid, Hca, Lid, LinkLayer, LinkOffer, Mtu};
use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/adapter.rs"]
mod adapter;
#[path = "mads/mod.rs"]
mod mads;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/manager/mod.rs"]
mod manager;

/// A thing that happens to it.
#[derive(Arbitrary, Debug)]
enum Step<'a> {
    Mad(u8, bool, u16, u32, u16, mads::Bytes<'a>),
    Up(u8, [u8; 3], u8),
    Down(u8),
    Data(u8),
    Capabilities(u8, u32, u32),
    Count(u8, u32),
    Elapse(u16),
}

impl Step<'_> {
    fn input(&self) -> adapter::Input {
        use adapter::Input;
        match *self {
            Step::Mad(port, local, slid, src_qp, pkey_index, ref mad) => {
                let how = Arrival {
                    local,
                    slid: Lid::new(slid),
                    src_qp,
                    pkey_index,
                };
                Input::Mad(port % 4, how, Box::new(mad.mad()))
            }
            Step::Up(port, [widths, speeds, vl_cap], mtu) => {
                let offer = LinkOffer {
                    widths,
                    speeds,
                    mtu: size(mtu),
                    vl_cap,
                };
                Input::Up(port % 4, offer)
            }
            Step::Down(port) => Input::Down(port % 4),
            Step::Data(port) => Input::Data(port % 4),
            Step::Capabilities(port, set, clear) => Input::Capabilities(port % 4, set, clear),
            Step::Count(port, bytes) => Input::Count(port % 4, bytes),
            Step::Elapse(seconds) => Input::Elapse(seconds),
        }
    }
}

fn size(code: u8) -> Mtu {
    Mtu::from_code(code % 5 + 1).expect("1 to 5")
}

fuzz_target!(|input: (bool, u16, u8, u8, Vec<Step<'_>>)| {
    let (two, pkeys, guids, mtu, steps) = input;
    let config = Config {
        link_layer: LinkLayer::InfiniBand,
        node_guid: Guid::new(0x10),
        system_guid: Guid::NONE,
        port_guids: [Guid::new(0x11), Guid::new(0x12)],
        ports: 1 + u8::from(two),
        pkeys: 1 + pkeys % 128,
        guids: 1 + guids % 32,
        mtu: size(mtu),
        vendor_id: 1,
        device_id: 2,
        revision: 3,
    };
    let mut hca = Hca::new(&config).expect("an adapter");
    for step in steps.iter().take(64) {
        adapter::feed(&mut hca, &step.input());
        adapter::check(&hca, &config);
    }
});
