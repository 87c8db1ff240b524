// SPDX-License-Identifier: GPL-2.0

//! Bytes that a cable through a network device brings, read as a packet.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/manager/mod.rs"]
mod manager;
#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/wire/oracle.rs"]
#[allow(dead_code)]
mod oracle;

fuzz_target!(|bytes: &[u8]| oracle::reads_as_written(bytes));
