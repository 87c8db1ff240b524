// SPDX-License-Identifier: GPL-2.0

//! The Debian packages: from `apt install` to a ping, through another flavour of the kernel and a new version
//! of the packages, to removal.

use anyhow::{Context, Result, ensure};
use lab::bed::Builder;
use lab::deb;
use lab::debian::Root;
use lab::layout::Layout;
use lab::machine::Output;
use lab::scenario;
use std::time::{Duration, Instant};

/// The three commands to a ping in README, for the host whose address on `ib0` is `ip4`.
fn readme(ip4: &str) -> Result<String> {
    let file = Layout::from_env()?.checkout.join("README.md");
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    let commands: Vec<String> = text
        .split("Three commands to a ping")
        .nth(1)
        .context("README has no three commands to a ping")?
        .lines()
        .filter_map(|line| line.strip_prefix("    sudo "))
        .map(|line| line.replace("10.1.0.1/24", &format!("{ip4}/24")))
        .collect();
    ensure!(
        commands.len() == 3,
        "README has other commands: {commands:?}"
    );
    Ok(commands.join(" && "))
}

scenario! {
    /// A Debian with its kernel and nothing else gets the packages: DKMS builds the module, signs it,
    /// and builds it again for another flavour of the kernel and for the packages' next version. Both
    /// kernels boot, load it and ping. The new version leaves nothing of the old one; the purge of the
    /// packages leaves nothing at all.
    #[on(stock)]
    fn from_apt_to_a_ping_and_away(bed) {
        let root = Root::new(&["initramfs-tools"])?;
        let release = root.release()?;
        let before = files(&root)?;
        install(&root, &release)?;
        module_is_built(&root, &release, None)?;
        talk(bed.clone(), &root.with_kernel(&release))?;

        let other = release.replace("-amd64", "-rt-amd64");
        root.run(&format!(
            "apt-get install -y linux-image-{other} linux-headers-{other}"
        ))?
        .ok()?;
        module_is_built(&root, &other, None)?;

        upgrade(&root)?;
        for release in [&release, &other] {
            module_is_built(&root, release, Some(NEXT))?;
        }
        talk(bed, &root.with_kernel(&other))?;

        root.run("apt-get purge -y ipoib-rs-dkms ipoib-rs-iproute2 ipoib-rs-tools && rm /root/*.deb")?.ok()?;
        let left: Vec<String> = files(&root)?.into_iter().filter(|f| !before.contains(f)).collect();
        ensure!(left.is_empty(), "left behind: {}", left.join(" "));
        Ok(())
    }
}

scenario! {
    /// A kernel that the module cannot be built for is passed over by DKMS, in a sentence, and the
    /// package installs.
    #[on(stock)]
    fn a_kernel_that_is_too_old_is_passed_over(bed) {
        let _ = bed;
        let root = Root::new(&["initramfs-tools"])?;
        let packages = packages(None)?;
        let dkms = root.copy(&packages.dkms, "/root")?;
        root.run("apt-get update && apt-get install -y linux-headers-amd64/trixie")?.ok()?;
        let installed = root.run(&format!("apt-get install -y --no-install-recommends {dkms}"))?;
        let text = format!("{}{}", installed.stdout, installed.stderr);
        installed.ok()?;
        ensure!(text.contains("BUILD_EXCLUSIVE"), "nothing said of the old kernel: {text}");
        let status = root.run("dkms status ipoib-rs")?.ok()?;
        ensure!(!status.contains("installed"), "{status}");
        Ok(())
    }
}

/// A version after the present one.
const NEXT: &str = "99.1";

/// The packages of this checkout, in its version or another one.
pub(super) fn packages(version: Option<&str>) -> Result<deb::Packages> {
    let layout = Layout::from_env()?;
    let to = layout
        .own
        .join(version.map_or("deb".into(), |version| format!("deb-{version}")));
    deb::make(&layout, &to, version)
}

/// Copies packages into a root; what `apt-get install` is told to install.
fn copied(root: &Root, packages: &deb::Packages) -> Result<String> {
    let [dkms, iproute2, tools] =
        [&packages.dkms, &packages.iproute2, &packages.tools].map(|file| root.copy(file, "/root"));
    Ok(format!("{} {} {}", dkms?, iproute2?, tools?))
}

/// Installs the packages as README says.
fn install(root: &Root, release: &str) -> Result<()> {
    let debs = copied(root, &packages(None)?)?;
    root.run(&format!(
        "apt-get update && apt-get install -y linux-headers-{release} &&
         apt-get install -y --download-only {debs}"
    ))?
    .ok()?;
    let start = Instant::now();
    let output = root.run(&format!("apt-get install -y {debs}"))?;
    let took = start.elapsed();
    build_log_on_failure(root, output)?;
    // The goal is 180 s on two idle cores, which a busy machine does not have.
    ensure!(took < Duration::from_secs(900), "it took {took:?}");
    let log = Layout::from_env()?.build().join("logs/packages-to-module");
    std::fs::write(&log, format!("{:.0} s\n", took.as_secs_f32()))
        .with_context(|| log.display().to_string())?;
    Ok(())
}

/// Installs the packages' next version; nothing of the one before is left.
fn upgrade(root: &Root) -> Result<()> {
    let version = |root: &Root| -> Result<String> {
        let query = "dpkg-query -W -f '${Version}' ipoib-rs-dkms";
        Ok(root.run(query)?.ok()?.trim().to_owned())
    };
    let old = version(root)?;
    let debs = copied(root, &packages(Some(NEXT))?)?;
    let output = root.run(&format!(
        "rm /root/*_{old}_*.deb && apt-get install -y {debs}"
    ))?;
    build_log_on_failure(root, output)?;
    ensure!(version(root)? == NEXT, "not upgraded");
    let status = root.run("dkms status ipoib-rs")?.ok()?;
    ensure!(
        !status.contains(&format!("/{old}")),
        "DKMS still has {old}: {status}"
    );
    let left: Vec<_> = files(root)?
        .into_iter()
        .filter(|f| f.contains(&old))
        .collect();
    ensure!(left.is_empty(), "left behind of {old}: {}", left.join(" "));
    Ok(())
}

/// The output of an installation, with DKMS's log if it failed.
pub(super) fn build_log_on_failure(root: &Root, output: Output) -> Result<String> {
    let log = root.run("tail -n 60 /var/lib/dkms/*/*/build/make.log")?;
    output.ok().with_context(|| log.stdout)
}

/// DKMS has built, signed and installed the module for a kernel, in that version if one is given.
fn module_is_built(root: &Root, release: &str, version: Option<&str>) -> Result<()> {
    let status = root.run("dkms status ipoib-rs")?.ok()?;
    ensure!(
        status
            .lines()
            .filter(|l| version.is_none_or(|version| l.contains(&format!("/{version},"))))
            .any(|l| l.contains(release) && l.contains("installed")),
        "DKMS has not installed it for {release}: {status}"
    );
    let info = root.run(&format!("modinfo -k {release} ipoib_rs"))?.ok()?;
    for part in [
        "updates/dkms/ipoib_rs.ko",
        "sig_id:",
        &format!("vermagic:       {release} "),
    ] {
        ensure!(info.contains(part), "no {part} in {info}");
    }
    Ok(())
}

/// Boots two guests on the root; each follows README, and they ping each other.
fn talk(bed: Builder, root: &Root) -> Result<()> {
    // As Ethernet is by default.
    let bed = bed.debian(&[root, root]).mtu(1500).up()?;
    let (a, b) = bed.pair()?;
    for host in [a, b] {
        ensure!(host.ok("uname -r")?.trim() == root.release()?);
        host.ethernet_up(bed.builder().link_mtu())?;
        host.ok(&readme(&host.ip4())?)?;
        ensure!(
            host.ok("ip -d link show ib0")?.contains("pkey"),
            "ip has no plugin"
        );
        host.ok("zcat /usr/share/doc/ipoib-rs-tools/crates.gz | grep -q '^ratatui .*: MIT$'")?;
        host.ok("ls /usr/share/man/man4/ipoib_rs.4.gz /usr/share/man/man8/ip-link-ipoib_rs.8.gz /usr/share/man/man8/ipoibctl.8.gz")?;
        let status = host.run("ipoibctl status")?;
        ensure!(
            status.code.is_some_and(|code| code < 2),
            "{}",
            status.describe()
        );
    }
    a.wait_until(
        &format!("ping -c 1 -W 1 {}", b.ip4()),
        Duration::from_secs(30),
    )?;
    bed.finish()
}

/// Files of the system whose names have to do with the packages, logs left out.
fn files(root: &Root) -> Result<Vec<String>> {
    let text = root
        .run(
            "find / -xdev \\( -path /proc -o -path /dev -o -path /var/log -o -path /var/cache/apt \\) -prune -o \
             \\( -iname '*ipoib[-_]rs*' -o -path '*/ipoib-rs*' \\) -print",
        )?
        .ok()?;
    Ok(text.lines().map(str::to_owned).collect())
}
