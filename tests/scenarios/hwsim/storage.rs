// SPDX-License-Identifier: GPL-2.0

//! Disks behind the kernel's own NVMe over RDMA and SRP: RDMA READ and WRITE, memory regions, invalidation and shared
//! receive queues under real programs.

use super::active;
use super::fabric::Fabric;
use super::fields::Fields;
use super::manager::Manager;
use anyhow::{Context, Result, ensure};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

pub(super) const HCAS: [&str; 2] = ["hwsim0", "hwsim1"];
pub(super) const INITIATOR: &str = "192.0.2.1";
pub(super) const TARGET: &str = "192.0.2.2";
const DISK: &str = "/dev/nvme0n1";
const NVMET: &str = "/sys/kernel/config/nvmet";

/// Brings `ib0` and `ib1` up. Both drivers know only the first network namespace, so that initiator and target are
/// in it together: a rule makes what the one sends to the other leave the host.
pub(super) fn addresses(host: &Host) -> Result<()> {
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

const SERVE: &str = include_str!("../../guest/storage/serve.sh");

/// Writes to 32 MiB of a disk in blocks of all sizes, and reads them back.
pub(super) fn verify(host: &Host, disk: &str) -> Result<()> {
    let report = host.run_for(
        &format!(
            "fio --name=verify --filename={disk} --direct=1 --ioengine=psync --thread --numjobs=4 --size=8m \
            --offset_increment=8m --rw=randrw --bsrange=512-256k --blockalign=512 --verify=crc32c --do_verify=1 \
            --verify_fatal=1 --group_reporting"
        ),
        Duration::from_secs(60),
    )?;
    let text = report.ok()?;
    ensure!(text.contains("err= 0"), "{text}");
    Ok(())
}

/// Does that, and checks that the bytes pass the initiator's port.
pub(super) fn verify_by_wire(host: &Host, disk: &str) -> Result<()> {
    let before = carried(host)?;
    verify(host, disk)?;
    for (before, after) in before.into_iter().zip(carried(host)?) {
        ensure!(after - before > 16 << 20, "{before} {after}");
    }
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

/// A disk behind nvme-rdma, over the IP addresses of interfaces of a driver that makes them by itself.
fn disk(bed: &Bed, driver: &str) -> Result<()> {
    let host = bed.hosts[0].outside();
    host.ok(&format!("modprobe {driver}"))?;
    let fabric = Fabric::make(&host, "pair")?;
    let manager = Manager::start(&host, HCAS[0], "-s 1")?;
    for hca in HCAS {
        active(&host, hca)?;
    }
    addresses(&host)?;
    host.sh(SERVE, &["rdma", TARGET, "64"])?;
    host.ok(&format!(
        "modprobe nvme-rdma && nvme connect -t rdma -a {TARGET} -w {INITIATOR} -s 4420 -n disk -c 1 -k 2 -i 2"
    ))?;
    host.wait_until(&format!("test -b {DISK}"), Duration::from_secs(10))?;

    verify_by_wire(&host, DISK)?;

    fabric.write("cables/c1/plugged", "0")?;
    let state = "/sys/class/nvme/nvme0/state";
    host.wait_until(
        &format!("grep -q connecting {state}"),
        Duration::from_secs(30),
    )
    .context("the initiator does not notice")?;
    fabric.write("cables/c1/plugged", "1")?;
    host.wait_until(&format!("grep -q live {state}"), Duration::from_secs(30))
        .context("the initiator does not come back")?;
    verify(&host, DISK)?;

    // The target goes first, under its initiator.
    fabric.write("hcas/h2/power", "0")?;
    host.wait_until(&format!("! grep -q live {state}"), Duration::from_secs(30))?;
    host.run_for("nvme disconnect -n disk", Duration::from_secs(60))?
        .ok()?;
    host.ok(&format!(
        "cd {NVMET} && rm ports/1/subsystems/disk && rmdir ports/1
        rmdir subsystems/disk/namespaces/1 subsystems/disk && rmdir /sys/kernel/config/nullb/store"
    ))?;
    end(&host, &manager)
}

/// Ends the subnet and removes its fabric, which nobody uses any more.
pub(super) fn end(host: &Host, manager: &Manager) -> Result<()> {
    manager.kill()?;
    host.run_for(
        "ib-hwsim down && modprobe -r ib_hwsim",
        Duration::from_secs(60),
    )?
    .ok()?;
    Ok(())
}

scenario! {
    /// fio finds on a disk behind nvme-rdma what it wrote, before and after the cable was pulled; both drivers let
    /// go of their HCAs when these go.
    #[on(qemu, lockdep, races)]
    fn nvme_over_rdma(bed) {
        let bed = bed.one_machine().hosts(1).memory(512).up()?;
        disk(&bed, "ib_ipoib")?;
        bed.finish()
    }
}

scenario! {
    /// NVMe over RDMA by the addresses of this checkout's interfaces, which the RDMA connection manager finds.
    #[on(qemu, lockdep, races)]
    fn nvme_over_rdma_by_ours(bed) {
        let bed = bed.one_machine().hosts(1).memory(512).up()?;
        disk(&bed, "ipoib_rs replace=1")?;
        bed.finish()
    }
}

const TARGETS: &str = "/sys/kernel/config/target";
const SCSI_DISK: &str = "/dev/sda";
/// Identifies the target that the second HCA serves.
const SERVICE: &str = "000000000000001b";

const SERVE_SCSI: &str = include_str!("../../guest/hwsim/storage/serve_scsi.sh");

/// Logs in from the first HCA to the target, with few retries so that it soon notices that the cable is out.
fn log_in(host: &Host) -> Result<()> {
    host.ok(&format!(
        "modprobe sd_mod && modprobe ib_srp
        gid=$(tr -d : </sys/class/infiniband/{}/ports/1/gids/0)
        echo id_ext={SERVICE},ioc_guid={SERVICE},dgid=$gid,pkey=ffff,service_id={SERVICE},tl_retry_count=2 \
            >/sys/class/infiniband_srp/srp-{}-1/add_target",
        HCAS[1], HCAS[0]
    ))?;
    host.wait_until(&format!("test -b {SCSI_DISK}"), Duration::from_secs(10))
}

scenario! {
    /// fio finds on a disk behind `ib_srp` what it wrote, before and after the cable was pulled; the initiator's HCA
    /// goes under its requests, and takes the disk along.
    ///
    /// `ib_srpt` warns when a session ends that has used a shared receive queue: it then has no cache of buffers that
    /// it could give back (`srpt_cache_put()`).
    #[on(qemu, lockdep, races)]
    fn scsi_over_rdma(bed) {
        let bed = bed.one_machine().hosts(1).memory(512).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "pair")?;
        let manager = Manager::start(&host, HCAS[1], "-s 1")?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        host.sh(SERVE_SCSI, &[TARGETS, SERVICE, HCAS[0], HCAS[1]])?;
        log_in(&host)?;
        let queues = host.ok(&format!("rdma res show srq dev {}", HCAS[1]))?;
        ensure!(queues.contains("[ib_srpt]"), "{queues}");
        verify_by_wire(&host, SCSI_DISK)?;

        let port = "/sys/class/srp_remote_ports/port-*";
        host.ok(&format!("echo 1 >$(echo {port}/reconnect_delay) && echo 120 >$(echo {port}/fast_io_fail_tmo)"))?;
        // Both sessions have used a shared receive queue.
        let ended = "^WARNING: drivers/infiniband/ulp/srpt/ib_srpt.c:.* at srpt_cache_put";
        host.expecting(&[ended], || {
            fabric.write("cables/c1/plugged", "0")?;
            let read = host.spawn(&format!("dd if={SCSI_DISK} of=/dev/null iflag=direct bs=4096 count=16"))?;
            host.wait_until(&format!("! grep -qx running {port}/state"), Duration::from_secs(30))
                .context("the initiator does not notice")?;
            fabric.write("cables/c1/plugged", "1")?;
            host.wait_until(&format!("grep -qx running {port}/state"), Duration::from_secs(30))
                .context("the initiator does not come back")?;
            read.wait(host.scaled(Duration::from_secs(30)))?.ok()?;
            verify(&host, SCSI_DISK)
        })?;

        let reads = host.spawn(&format!(
            "fio --name=reads --filename={SCSI_DISK} --direct=1 --ioengine=psync --thread --numjobs=4 --size=32m \
            --rw=randread --bs=16k --time_based --runtime=300"
        ))?;
        std::thread::sleep(host.scaled(Duration::from_secs(1)));
        fabric.write("hcas/h1/power", "0")?;
        host.wait_until(&format!("! test -b {SCSI_DISK}"), Duration::from_secs(30))?;
        let report = reads.wait(host.scaled(Duration::from_secs(60)))?;
        ensure!(report.code != Some(0), "{}", report.describe());

        let gone = format!("! rdma res show qp link {} type RC | grep -q lqpn", HCAS[1]);
        host.expecting(&[ended], || {
            host.ok(&format!("cd {TARGETS}/srpt/*/*:*/ && echo 0 >enable"))?;
            host.wait_until(&gone, Duration::from_secs(60))
        })?;
        host.ok(&format!(
            "set -e
            cd {TARGETS}/srpt/*/*:*/
            rm acls/*/lun_0/lun lun/lun_0/disk
            rmdir acls/*/lun_0 acls/* lun/lun_0
            cd {TARGETS}
            rmdir srpt/*/*:* srpt/*:* srpt core/rd_mcp_0/disk core/rd_mcp_0
            modprobe -r ib_srp ib_srpt"
        ))?;
        manager.kill()?;
        host.run_for("ib-hwsim down && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}
