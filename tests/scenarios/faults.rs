// SPDX-License-Identifier: GPL-2.0

//! Memory that is not to be had. Debug kernels only: they have fault injection.

use anyhow::Result;
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Allocations of one process fail, every `$1`th of them; then runs the rest as a command.
const UNDER_FAULTS: &str = r#"
under_faults() {
    cd /run/debug/failslab
    echo Y >task-filter; echo 0 >verbose; echo N >ignore-gfp-wait
    echo -1 >times; echo 100 >probability; echo $1 >interval; shift
    sh -c 'echo 1 >/proc/self/make-it-fail; exec "$@"' sh "$@" >/dev/null 2>&1
    result=$?
    echo 0 >probability
    return $result
}
"#;

fn quiet(host: &Host) -> Result<()> {
    host.ok("echo 0 >/run/debug/failslab/probability")?;
    Ok(())
}

scenario! {
    /// Whichever allocation of `ip link add` or `up` fails, nothing leaks and a new try works.
    ///
    /// Not on UML, whose own execve does not survive this.
    qemu: fn links_that_cannot_be_made(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        host.run_for(
            &format!(
                "{UNDER_FAULTS}
                 for i in $(seq 1 80); do
                     under_faults $i ip link add link eth0 name ib0 type ipoib
                     ip link show ib0 >/dev/null 2>&1 && under_faults $i ip link set ib0 up
                     ip link del ib0 2>/dev/null
                 done
                 true"
            ),
            Duration::from_secs(60),
        )?
        .ok()?;
        quiet(host)?;
        host.ib_add("")?;
        host.ib_up()?;
        host.ok("modprobe -r ipoib_rs && modprobe -r rdma_rxe")?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of a change of the rings fails, it is refused or done, and the interface
    /// works on.
    qemu: fn rings_that_cannot_be_made(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let script = format!(
            "{UNDER_FAULTS}
             refused=0
             for i in $(seq 1 60); do
                 under_faults $i ethtool -G ib0 rx $((256 << (i % 3))) || refused=$((refused + 1))
                 under_faults $i ip link set ib0 down
                 under_faults $i ip link set ib0 up
             done
             echo $refused"
        );
        let refused = b.run_for(&script, Duration::from_secs(90))?.ok()?;
        quiet(b)?;
        anyhow::ensure!(refused.trim() != "0", "no change of the rings was refused");
        b.ok("ip link set ib0 up")?;
        b.ok("ethtool -G ib0 rx 512")?;
        a.wait_until(&format!("ping -c 3 -i 0.1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of modprobe fails, the next modprobe works.
    qemu: fn modules_that_cannot_be_loaded(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.run_for(
            &format!(
                "{UNDER_FAULTS}
                 for i in $(seq 1 40); do
                     under_faults $i modprobe ipoib_rs
                     modprobe -r ipoib_rs
                 done
                 true"
            ),
            Duration::from_secs(90),
        )?
        .ok()?;
        quiet(host)?;
        host.ib_add("")?;
        host.ib_up()?;
        bed.finish()
    }
}

scenario! {
    /// Atomic allocations fail under traffic, all over the kernel: frames are lost, but the rings do
    /// not stall and nothing leaks.
    fn frames_that_cannot_be_held(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            host.ok(
                "cd /run/debug/failslab
                 echo N >task-filter; echo 0 >verbose; echo Y >ignore-gfp-wait
                 echo -1 >times; echo 100 >interval; echo 50 >probability",
            )?;
        }
        // Lost frames are fine; a hang is not.
        a.run_for(&format!("ping -f -q -c 3000 -s 3000 -w 20 {}", b.ip4()), Duration::from_secs(30))?;
        a.run_for(&format!("ping -f -q -c 1000 -w 20 {}", b.ip6()), Duration::from_secs(30))?;
        for host in [a, b] {
            quiet(host)?;
        }
        a.wait_until(&format!("ping -c 3 -i 0.1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        let text = a.run_for(&format!("ping -f -q -c 1000 {}", b.ip4()), Duration::from_secs(30))?.ok()?;
        anyhow::ensure!(text.contains(" 0% packet loss"), "{text}");
        bed.finish()
    }
}
