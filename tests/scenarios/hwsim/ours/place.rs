// SPDX-License-Identifier: GPL-2.0

//! Places of interfaces in sysfs, by which RDMA devices look for network devices.

use super::super::EXCLUSIVE;
use super::{Driver, Kind, up_with};
use anyhow::ensure;
use lab::scenario;

const OURS: Kind = (Driver::Ours, "datagram");

scenario! {
    /// As by `mlx4_ib`, RDMA core is told that `ib0` is the network device of its InfiniBand port. What is made on `ib0` is
    /// a child all the same, and goes with it.
    #[on(lockdep)]
    fn an_interface_is_not_what_its_port_runs_over(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let manager = up_with(&bed, &[("get_netdev", "1")], &[OURS, OURS])?;
        let (a, b) = bed.pair()?;
        ensure!(a.ok("rdma link show")?.contains("netdev ib0"), "the device does not look");
        a.ok("ip link add link ib0 name ib0.ffff type ipoib_rs && ip link set ib0.ffff up")?;
        a.ok("grep -qx ib0 /sys/class/net/ib0.ffff/parent && ! test -e /sys/class/net/ib0.ffff/create_child")?;
        a.ok(&format!("ping -q -c 3 -i 0.1 -W 5 {}", b.ip4()))?;
        a.ok("ip link del ib0 && ! test -e /sys/class/net/ib0.ffff")?;
        manager.end()?;
        bed.finish()
    }
}
