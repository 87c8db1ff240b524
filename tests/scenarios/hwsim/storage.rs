// SPDX-License-Identifier: GPL-2.0

//! The kernel's own NVMe over RDMA: RDMA READ and WRITE, memory regions and invalidation under real programs.

use super::active;
use super::fabric::Fabric;
use super::fields::Fields;
use super::manager::Manager;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const HCAS: [&str; 2] = ["hwsim0", "hwsim1"];
const INITIATOR: &str = "192.0.2.1";
const TARGET: &str = "192.0.2.2";
const DISK: &str = "/dev/nvme0n1";
const NVMET: &str = "/sys/kernel/config/nvmet";

/// Brings `ib0` and `ib1` up. Both drivers know only the first network namespace, so that initiator and target are
/// in it together: a rule makes what the one sends to the other leave the host.
fn addresses(host: &Host) -> Result<()> {
    host.ok(&format!(
        "sysctl -q -w net.ipv4.conf.all.accept_local=1
        ip link set ib0 up && ip addr add {INITIATOR}/24 dev ib0
        ip link set ib1 up && ip addr add {TARGET}/24 dev ib1
        ip rule add pref 1 iif lo from {INITIATOR} to {TARGET} lookup 101
        ip rule add pref 2 iif lo from {TARGET} to {INITIATOR} lookup 102
        ip rule add pref 3 lookup local && ip rule del pref 0
        ip route add {TARGET} dev ib0 table 101
        ip route add {INITIATOR} dev ib1 table 102"
    ))?;
    host.wait_until(
        &format!("ping -q -c 1 -W 1 -I {INITIATOR} {TARGET}"),
        Duration::from_secs(20),
    )
}

/// Makes a disk in memory, and a target that serves it.
fn serve(host: &Host) -> Result<()> {
    host.ok(&format!(
        "modprobe null_blk nr_devices=0 && modprobe nvmet-rdma
        cd /sys/kernel/config/nullb && mkdir store
        echo 64 >store/size && echo 1 >store/memory_backed && echo 1 >store/power
        cd {NVMET} && mkdir subsystems/disk subsystems/disk/namespaces/1 ports/1
        echo 1 >subsystems/disk/attr_allow_any_host
        echo /dev/store >subsystems/disk/namespaces/1/device_path
        echo 1 >subsystems/disk/namespaces/1/enable
        cd ports/1
        echo rdma >addr_trtype && echo ipv4 >addr_adrfam && echo {TARGET} >addr_traddr && echo 4420 >addr_trsvcid
        ln -s {NVMET}/subsystems/disk subsystems/disk"
    ))?;
    Ok(())
}

/// Writes to all of the disk in blocks of all sizes, and reads it back.
fn verify(host: &Host) -> Result<()> {
    let report = host.run_for(
        &format!(
            "fio --name=verify --filename={DISK} --direct=1 --ioengine=psync --thread --numjobs=4 --size=8m \
            --offset_increment=8m --rw=randrw --bsrange=512-256k --blockalign=512 --verify=crc32c --do_verify=1 \
            --verify_fatal=1 --group_reporting"
        ),
        Duration::from_secs(60),
    )?;
    let text = report.ok()?;
    ensure!(text.contains("err= 0"), "{text}");
    Ok(())
}

/// Bytes that the initiator's port has sent and received.
fn carried(host: &Host) -> Result<[u64; 2]> {
    let counters = Fields::of(host, &format!("perfquery -C {} -P 1 -x", HCAS[0]))?;
    Ok([
        counters.number("PortXmitData")? * 4,
        counters.number("PortRcvData")? * 4,
    ])
}

scenario! {
    /// fio finds on a disk behind nvme-rdma what it wrote, before and after the cable was pulled; both drivers let
    /// go of their HCAs when these go.
    #[on(lockdep)]
    fn nvme_over_rdma(bed) {
        let bed = bed.one_machine().hosts(1).memory(512).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_ipoib")?;
        let fabric = Fabric::make(&host, "pair")?;
        let manager = Manager::start(&host, HCAS[0], "-s 1")?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        addresses(&host)?;
        serve(&host)?;
        host.ok(&format!(
            "modprobe nvme-rdma && nvme connect -t rdma -a {TARGET} -w {INITIATOR} -s 4420 -n disk -c 1 -k 2 -i 2"
        ))?;
        host.wait_until(&format!("test -b {DISK}"), Duration::from_secs(10))?;

        let before = carried(&host)?;
        verify(&host)?;
        for (before, after) in before.into_iter().zip(carried(&host)?) {
            ensure!(after - before > 16 << 20, "{before} {after}");
        }

        fabric.write("cables/c1/plugged", "0")?;
        let state = "/sys/class/nvme/nvme0/state";
        host.wait_until(&format!("grep -q connecting {state}"), Duration::from_secs(30))
            .context("the initiator does not notice")?;
        fabric.write("cables/c1/plugged", "1")?;
        host.wait_until(&format!("grep -q live {state}"), Duration::from_secs(30))
            .context("the initiator does not come back")?;
        verify(&host)?;

        // The target goes first, under its initiator.
        fabric.write("hcas/h2/power", "0")?;
        host.wait_until(&format!("! grep -q live {state}"), Duration::from_secs(30))?;
        host.run_for("nvme disconnect -n disk", Duration::from_secs(60))?.ok()?;
        host.ok(&format!(
            "cd {NVMET} && rm ports/1/subsystems/disk && rmdir ports/1
            rmdir subsystems/disk/namespaces/1 subsystems/disk && rmdir /sys/kernel/config/nullb/store"
        ))?;
        manager.kill()?;
        host.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}
