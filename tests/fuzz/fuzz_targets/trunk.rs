// SPDX-License-Identifier: GPL-2.0

//! Frames of strangers at the end of a cable through a network device.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../../drivers/infiniband/sw/ib_hwsim/fabric/tests/checks/trunk.rs"]
mod trunk;

fuzz_target!(|frames: Vec<(u8, u32, &[u8])>| {
    let mut end = trunk::End::new(1);
    for (from, time, bytes) in frames {
        end.take([2, 0, 0, 0, 0, from % 4], bytes);
        end.pass(time.into());
        end.send();
    }
    end.comes_up();
});
