// SPDX-License-Identifier: GPL-2.0

//! Packets that a cable through a network device brings, at the ports of an adapter and of a switch.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/manager/mod.rs"]
mod manager;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/wire/oracle.rs"]
mod oracle;

fuzz_target!(|packets: Vec<Vec<u8>>| {
    let mut nodes = oracle::Nodes::new();
    for bytes in packets {
        nodes.take(&bytes);
    }
});
