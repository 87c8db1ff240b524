// SPDX-License-Identifier: GPL-2.0

//! bpftrace on the driver's tracepoints, with the command of using.rst.

use super::programs::root_with;
use anyhow::{Context, Result};
use lab::layout::Layout;
use lab::scenario;
use std::time::Duration;

/// The command of using.rst that begins with `bpftrace`, of two lines.
fn command() -> Result<String> {
    let file = Layout::from_env()?.checkout.join("Documentation/using.rst");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let mut lines = text.lines().map(str::trim);
    let first = lines.find_map(|line| line.strip_prefix("# bpftrace"));
    let [first, second] = [first, lines.next()].map(|line| line.context("no command"));
    Ok(format!("bpftrace{}\n{}", first?, second?))
}

scenario! {
    /// bpftrace prints what happens to a path.
    #[on(stock)]
    fn bpftrace_follows_a_path(bed) {
        let root = root_with(&["bpftrace", "bpftool"])?;
        let command = command()?;
        let bed = bed.debian(&[&root]).up()?;
        let host = &bed.hosts[0];
        host.ethernet_up(bed.builder().link_mtu())?;
        host.rxe_up()?;
        host.ok("modprobe ipoib_rs && ip link add link eth0 name ib0 type ipoib_rs && ip link set ib0 up")?;
        host.ok(&format!("ip addr add {}/24 dev ib0", host.ip4()))?;
        let seen = || {
            let output = host.run("cat /tmp/trace");
            output.map_or_else(|error| error.to_string(), |output| output.describe())
        };
        let trace = host.spawn(&format!("{command} >/tmp/trace 2>&1"))?;
        // It takes a while to compile.
        let attached = "[ $(bpftool prog show | grep -c tracepoint) -ge 2 ]";
        host.wait_until(attached, Duration::from_secs(90)).with_context(seen)?;
        // Nobody has this address: there is a path to it all the same.
        let nobody = "80:00:ee:ee:fe:80:00:00:00:00:00:00:02:00:5e:ff:fe:00:53:99";
        host.ok(&format!("ip neigh replace 10.1.0.99 lladdr {nobody} dev ib0"))?;
        host.run("ping -q -c 3 -i 0.1 -W 1 10.1.0.99")?;
        host.wait_until("grep -q '^ib0 0x00eeee [0-9]*$' /tmp/trace", Duration::from_secs(10))
            .with_context(seen)?;
        trace.stop()?;
        bed.finish()
    }
}
