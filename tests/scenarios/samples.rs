// SPDX-License-Identifier: GPL-2.0

//! The sample drivers in samples/.

use lab::scenario;
use std::time::Duration;

/// Command that prints a counter of the device.
fn counter(name: &str) -> String {
    format!("cat /sys/class/net/loop0/statistics/{name}")
}

scenario! {
    /// A device of rust_loopback receives what it sends, comes and goes, and goes with the module. Nobody builds it for
    /// Debian's kernel.
    #[on(patched)]
    fn a_loopback_device(bed) {
        let bed = bed.hosts(1).up()?;
        let host = &bed.hosts[0];
        host.ok("modprobe rust_loopback && ip link add loop0 type rust_loopback")?;
        host.ok("ip addr add 10.99.0.1/24 dev loop0 && ip link set loop0 up")?;
        host.ok("ping -c 3 -i 0.2 -W 1 10.99.0.2 >/dev/null; true")?;
        // IPv6 may send between two looks.
        let all_came = format!(
            "sent=$({}); [ $sent -ge 3 ] && [ $sent = $({}) ]",
            counter("tx_packets"),
            counter("rx_packets")
        );
        host.wait_until(&all_came, Duration::from_secs(5))?;
        host.ok("ip link set loop0 down && ip link set loop0 up && ip link del loop0")?;
        host.ok("ip link add loop0 type rust_loopback && ip link add loop1 type rust_loopback")?;
        host.ok("modprobe -r rust_loopback && ! ip link show loop0")?;
        bed.finish()
    }
}
