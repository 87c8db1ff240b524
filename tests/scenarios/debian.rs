// SPDX-License-Identifier: GPL-2.0

//! Debian guests: the distribution's own kernel, systemd and programs.

mod fabric;
mod filter;
mod module;
mod packages;
mod programs;
mod trace;

use anyhow::ensure;
use lab::debian::Root;
use lab::scenario;

scenario! {
    /// systemd comes up with nothing failed, in two guests that reach each other; a boot writes nothing
    /// to the root, and what was written to that before is there.
    #[on(stock)]
    fn a_guest_boots_with_systemd(bed) {
        let root = Root::new(&[])?;
        root.write("/etc/lab-was-here", "before\n")?;
        let native = root.run("dpkg --print-architecture && exit 3")?;
        ensure!(native.code == Some(3) && native.stdout == "amd64\n", "{}", native.describe());
        let bed = bed.debian(&[&root, &root]).up()?;
        let (a, b) = bed.pair()?;
        for host in [a, b] {
            let state = host.run("systemctl is-system-running --wait")?;
            ensure!(
                state.stdout == "running\n",
                "{}{}",
                state.describe(),
                host.ok("systemctl --failed --no-legend; journalctl -b -p warning --no-pager || true")?
            );
            ensure!(host.ok("cat /proc/1/comm")?.trim() == "systemd");
            ensure!(host.ok("uname -r")?.trim() == root.release()?);
            ensure!(host.ok("cat /etc/lab-was-here")? == "before\n");
            host.ok("echo after >/etc/lab-was-here && modprobe rdma_rxe")?;
            host.ethernet_up(bed.builder().link_mtu())?;
        }
        ensure!(a.ok("cat /etc/machine-id")? != b.ok("cat /etc/machine-id")?, "two machines are one");
        a.ok(&format!("ping -c 3 -i 0.2 -W 5 {}", b.eth4()))?;

        bed.reset(a)?;
        ensure!(a.ok("cat /etc/lab-was-here")? == "before\n", "a boot has written to the root");
        ensure!(std::fs::read_to_string(root.outside("/etc/lab-was-here"))? == "before\n");
        bed.finish()
    }
}
