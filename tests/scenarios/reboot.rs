// SPDX-License-Identifier: GPL-2.0

//! A peer that vanishes and comes back as somebody else.

use lab::scenario;
use std::time::Duration;

scenario! {
    /// The peer is reset under traffic; it comes back with another QPN, and traffic finds it.
    qemu: fn a_peer_is_reset(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let flood = a.spawn(&format!("ping -q -i 0.01 {}", b.ip4()))?;
        bed.reset(b)?;
        b.rxe_up()?;
        // Another QPN than before: the first ib0 takes the old number and goes.
        b.ib_add("")?;
        b.ok("ip link set ib0 up && ip link del ib0")?;
        b.ib_add("")?;
        b.ib_up()?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(40))?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip6()), Duration::from_secs(40))?;
        flood.stop()?;
        bed.finish()
    }
}

scenario! {
    /// The peer's ib0 is made anew, so its QPN is another one; both sides find each other.
    fn a_peer_has_a_new_qp(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        let old = b.ok("cat /sys/class/net/ib0/address")?;
        b.ok("ip link del ib0")?;
        b.ib_add("")?;
        b.ib_up()?;
        anyhow::ensure!(b.ok("cat /sys/class/net/ib0/address")? != old, "the address is the same: {old}");
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(40))?;
        b.wait_until(&format!("ping -c 1 -W 1 {}", a.ip4()), Duration::from_secs(40))?;
        bed.finish()
    }
}
