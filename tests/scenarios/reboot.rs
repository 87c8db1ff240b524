// SPDX-License-Identifier: GPL-2.0

//! A peer that vanishes and comes back as somebody else.

use crate::connected::{connect, connected};
use crate::transfer::transfer;
use lab::scenario;
use std::time::Duration;

scenario! {
    /// The peer is reset under traffic; it comes back with another QPN, and traffic finds it.
    #[on(qemu)]
    fn a_peer_is_reset(bed) {
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
        // The neighbour table may believe what it knows for 45 s, and probes the old address for 8 s.
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(90))?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip6()), Duration::from_secs(40))?;
        flood.stop()?;
        bed.finish()
    }
}

scenario! {
    /// A peer is reset in connected mode: what we sent through the connection to its former life is given up,
    /// and there is a new one.
    #[on(qemu)]
    fn a_peer_with_a_connection_is_reset(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let flood = a.spawn(&format!("ping -q -i 0.01 -s 20000 {}", b.ip4()))?;
        bed.reset(b)?;
        b.rxe_up()?;
        b.ib_add("mode connected")?;
        b.ok("ip link set ib0 up && ip link del ib0")?;
        b.ib_add("mode connected")?;
        b.ok("ip link set ib0 mtu 65520")?;
        b.ib_up()?;
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(90))?;
        flood.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        bed.finish()
    }
}

scenario! {
    /// The peer is reset and comes back as who it was, with the same address: what it gets through the
    /// old connection it does not know.
    #[on(qemu)]
    fn a_peer_is_reset_and_has_its_old_address(bed) {
        let bed = bed.up()?;
        let (a, b) = connected(&bed)?;
        let flood = a.spawn(&format!("ping -q -i 0.01 -s 20000 {}", b.ip4()))?;
        let old = b.ok("cat /sys/class/net/ib0/address")?;
        bed.reset(b)?;
        b.rxe_up()?;
        b.ib_add("mode connected")?;
        b.ok("ip link set ib0 mtu 65520")?;
        b.ib_up()?;
        anyhow::ensure!(b.ok("cat /sys/class/net/ib0/address")? == old);
        a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(60))?;
        flood.stop()?;
        connect(a, b)?;
        transfer(a, b, &b.ip4(), 2)?;
        transfer(b, a, &a.ip4(), 2)?;
        bed.finish()
    }
}

scenario! {
    /// The peer's ib0 is made anew, so its QPN is another one; both sides find each other.
    #[on(infiniband)]
    fn a_peer_has_a_new_qp(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        // The neighbour table believes what it knows for up to 1.5 times this, which is 45 s by
        // default, then probes the old address for 5 + 3 s; only then does it ask again.
        a.ok("sysctl -qw net.ipv4.neigh.ib0.base_reachable_time_ms=5000")?;
        for speaks_first in [a, b] {
            a.wait_until(&format!("ping -c 1 -W 1 {}", b.ip4()), Duration::from_secs(10))?;
            let old = b.ok("cat /sys/class/net/ib0/address")?;
            b.ok("ip link del ib0")?;
            b.ib_add("")?;
            b.ib_up()?;
            anyhow::ensure!(b.ok("cat /sys/class/net/ib0/address")? != old, "the address is the same: {old}");
            let other = if speaks_first.number() == a.number() { b } else { a };
            speaks_first.wait_until(&format!("ping -c 1 -W 1 {}", other.ip4()), Duration::from_secs(40))?;
            other.wait_until(&format!("ping -c 1 -W 1 {}", speaks_first.ip4()), Duration::from_secs(10))?;
        }
        bed.finish()
    }
}
