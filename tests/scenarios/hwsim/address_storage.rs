// SPDX-License-Identifier: GPL-2.0

//! Storage that finds its RDMA device by the IP addresses of this driver's interfaces: NFS over RDMA, and iSER. Debian's
//! kernel has both.

use super::active;
use super::fabric::Fabric;
use super::manager::Manager;
use super::storage::{HCAS, INITIATOR, TARGET, addresses, end, verify, verify_by_wire};
use anyhow::{Context, Result};
use lab::bed::{Bed, Host};
use lab::scenario;
use std::time::Duration;

const SERVE_NFS: &str = include_str!("../../guest/hwsim/address_storage/nfs.sh");
const SERVE_ISER: &str = include_str!("../../guest/hwsim/address_storage/iser.sh");
/// The iSCSI target's name.
const NAME: &str = "iqn.2026-11.test:disk";

/// Two HCAs with interfaces of this driver, over which programs that name no source address reach [`TARGET`], too.
fn begin(bed: &Bed) -> Result<(Host, Fabric, Manager)> {
    let host = bed.hosts[0].outside();
    host.ok("modprobe ipoib_rs replace=1")?;
    let fabric = Fabric::make(&host, "pair")?;
    let manager = Manager::start(&host, HCAS[0], "-s 1")?;
    for hca in HCAS {
        active(&host, hca)?;
    }
    addresses(&host)?;
    host.ok(&format!(
        "ip route change {TARGET} dev ib0 src {INITIATOR} table 101
        ip rule del pref 1
        ip rule add pref 1 iif lo to {TARGET} lookup 101"
    ))?;
    Ok((host, fabric, manager))
}

/// The cable is out for a while: the client waits, and goes on as soon as the cable is back.
fn unplug_under(host: &Host, fabric: &Fabric, file: &str) -> Result<()> {
    fabric.write("cables/c1/plugged", "0")?;
    let write = host.spawn(&format!(
        "dd if=/dev/zero of={file} bs=64k count=64 conv=notrunc,fsync"
    ))?;
    std::thread::sleep(Duration::from_secs(5));
    fabric.write("cables/c1/plugged", "1")?;
    write
        .wait(host.scaled(Duration::from_secs(60)))?
        .ok()
        .context("what was written while the cable was out")?;
    Ok(())
}

scenario! {
    /// fio finds in a file on NFS over RDMA what it wrote, before and after the cable was pulled.
    #[on(stock)]
    fn nfs_over_rdma_by_ours(bed) {
        let bed = bed.one_machine().hosts(1).memory(768).up()?;
        let (host, fabric, manager) = begin(&bed)?;
        host.sh(SERVE_NFS, &[INITIATOR])?;
        host.run_for(
            &format!("mkdir -p /run/mount && mount -t nfs4 -o proto=rdma,port=20049,vers=4.2 {TARGET}:/ /run/mount"),
            Duration::from_secs(60),
        )?
        .ok()?;
        host.ok("grep -q 'nfs4.*proto=rdma' /proc/mounts")?;
        host.ok("dd if=/dev/zero of=/run/mount/file bs=1M count=32")?;

        verify_by_wire(&host, "/run/mount/file")?;
        unplug_under(&host, &fabric, "/run/mount/file")?;
        verify(&host, "/run/mount/file")?;

        host.run_for(
            "umount /run/mount && rpc.nfsd 0 && pkill rpc.mountd && umount /proc/fs/nfsd /run/store",
            Duration::from_secs(60),
        )?
        .ok()?;
        end(&host, &manager)?;
        bed.finish()
    }
}

scenario! {
    /// fio finds on a disk behind iSER what it wrote, before and after the cable was pulled.
    #[on(stock)]
    fn iser_by_ours(bed) {
        let bed = bed.one_machine().hosts(1).memory(768).up()?;
        let (host, fabric, manager) = begin(&bed)?;
        host.sh(SERVE_ISER, &[NAME, TARGET])?;
        host.ok(&format!(
            "set -e
            modprobe sd_mod
            modprobe ib_iser
            mkdir -p /run/lock/iscsi /etc/iscsi && echo InitiatorName=iqn.2026-11.test:host >/etc/iscsi/initiatorname.iscsi
            iscsid
            node='iscsiadm -m node -T {NAME} -p {TARGET}:3260'
            $node -I iser -o new
            $node --login"
        ))?;
        host.wait_until("test -b /dev/sda", Duration::from_secs(30))?;
        host.ok("iscsiadm -m session -P 1 | grep -q 'Iface Transport: iser'")?;

        verify_by_wire(&host, "/dev/sda")?;
        unplug_under(&host, &fabric, "/dev/sda")?;
        verify(&host, "/dev/sda")?;

        host.run_for(
            &format!("iscsiadm -m node -T {NAME} -p {TARGET}:3260 --logout && pkill iscsid"),
            Duration::from_secs(60),
        )?
        .ok()?;
        host.ok(&format!(
            "set -e
            cd /sys/kernel/config/target
            echo 0 >iscsi/{NAME}/tpgt_1/enable
            rm iscsi/{NAME}/tpgt_1/lun/lun_0/disk
            rmdir iscsi/{NAME}/tpgt_1/np/* iscsi/{NAME}/tpgt_1/lun/lun_0 iscsi/{NAME}/tpgt_1 iscsi/{NAME} iscsi
            rmdir core/rd_mcp_0/disk core/rd_mcp_0
            modprobe -r ib_iser ib_isert"
        ))?;
        end(&host, &manager)?;
        bed.finish()
    }
}
