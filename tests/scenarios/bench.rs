// SPDX-License-Identifier: GPL-2.0

//! `make bench` can measure: a case of each page, once. Nobody looks at the figures here, but both drivers have to carry
//! something.

use anyhow::{Result, ensure};
use lab::bed::Builder;
use lab::bench::{Page, attempt};
use lab::scenario;

/// Measures the cases of a page whose names contain `cases`; they are `count`.
fn measured(bed: &Builder, page: Page, cases: &str, count: usize) -> Result<()> {
    let found = attempt(bed, page, cases)?;
    ensure!(found == count, "{found} cases");
    Ok(())
}

scenario! {
    /// Datagram mode, on soft-RoCE.
    #[on(uml, base)]
    fn datagram_mode_is_measured(bed) {
        measured(&bed, Page::Ud, "tcp_rr", 1)
    }
}

scenario! {
    /// Connected mode on an Ethernet of 1500 bytes, where IPv6 does not fit.
    #[on(uml, base)]
    fn connected_mode_is_measured(bed) {
        measured(&bed, Page::Rc, "tcp_1020_large", 1)
    }
}

scenario! {
    /// Both modes on simulated InfiniBand.
    #[on(uml, base)]
    fn infiniband_is_measured(bed) {
        measured(&bed, Page::Ib, "rr", 2)
    }
}

scenario! {
    /// The simulated fabric against soft-RoCE.
    #[on(uml, base)]
    fn the_fabric_is_measured(bed) {
        measured(&bed, Page::Fabric, "tcp_ud", 1)
    }
}
