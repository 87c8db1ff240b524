// SPDX-License-Identifier: GPL-2.0

//! The package of the simulated fabric: from `apt install` to a ping, beside the driver's package, and away.

use super::packages::{build_log_on_failure, packages};
use crate::hwsim::manual;
use anyhow::{Context, Result, ensure};
use lab::debian::Root;
use lab::layout::Layout;
use lab::scenario;
use std::time::{Duration, Instant};

/// systemd makes network namespaces of its own, before anybody logs in.
const EXCLUSIVE: &str = "ib_core.netns_mode=0";

scenario! {
    /// A Debian with its kernel gets both packages for DKMS: the metadata of the kernel's Rust code is made once.
    /// It boots, and the manual's ten lines lead to a ping; how long they took is in `build/logs/fabric-to-ping`.
    /// The packages go one after the other, and leave nothing.
    #[on(stock)]
    fn the_fabric_from_apt_to_a_ping_and_away(bed) {
        let root = Root::new(&["initramfs-tools", "infiniband-diags", "opensm"])?;
        let release = root.release()?;
        let before = files(&root)?;
        let made = packages(None)?;
        let [driver, fabric] = [&made.dkms, &made.fabric].map(|file| root.copy(file, "/root"));
        let install = "apt-get install -y --no-install-recommends";
        root.run(&format!("apt-get update && {install} linux-headers-{release}"))?.ok()?;
        build_log_on_failure(&root, root.run(&format!("{install} {} {}", driver?, fabric?))?)?;
        for module in ["ipoib_rs", "ib_hwsim"] {
            let info = root.run(&format!("modinfo -k {release} {module}"))?.ok()?;
            ensure!(info.contains(&format!("updates/dkms/{module}.ko")), "{info}");
        }
        let trees = root.run("ls -d /var/cache/ipoib-rs/metadata/*/")?.ok()?;
        ensure!(trees.lines().count() == 1, "{trees}");
        root.run("ls /usr/share/man/man8/ib-hwsim.8.gz && ib-hwsim --help")?.ok()?;

        let bed = bed.debian(&[&root]).append(EXCLUSIVE).up()?;
        let host = &bed.hosts[0];
        let begin = Instant::now();
        manual::ten_lines(host)?;
        let took = begin.elapsed();
        let log = Layout::from_env()?.build().join("logs/fabric-to-ping");
        std::fs::write(&log, format!("{:.0} s\n", took.as_secs_f32()))
            .with_context(|| log.display().to_string())?;
        // The goal, on two idle cores with KVM, is two minutes.
        ensure!(took < Duration::from_secs(600), "it took {took:?}");
        manual::end(host)?;
        bed.finish()?;

        // Files that serve both packages stay as long as one of them.
        root.run("apt-get purge -y ib-hwsim-dkms && ls -d /var/cache/ipoib-rs/metadata/*/")?.ok()?;
        root.run("apt-get purge -y ipoib-rs-dkms && rm /root/*.deb")?.ok()?;
        let left: Vec<String> = files(&root)?.into_iter().filter(|f| !before.contains(f)).collect();
        ensure!(left.is_empty(), "left behind: {}", left.join(" "));
        Ok(())
    }
}

/// Files of the system whose names have to do with the packages, logs left out.
fn files(root: &Root) -> Result<Vec<String>> {
    let text = root
        .run(
            "find / -xdev \\( -path /proc -o -path /dev -o -path /var/log -o -path /var/cache/apt \\) -prune -o \
             \\( -iname '*ipoib[-_]rs*' -o -path '*/ipoib-rs*' -o -iname '*ib[-_]hwsim*' \\) -print",
        )?
        .ok()?;
    Ok(text.lines().map(str::to_owned).collect())
}
