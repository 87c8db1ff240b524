// SPDX-License-Identifier: GPL-2.0

//! The kernel's own RDS: datagrams that arrive once and in order, by a reliable connection between two hosts.

use super::active;
use super::fabric::Fabric;
use super::manager::Manager;
use super::rc::connections;
use super::storage::{HCAS, INITIATOR, TARGET, addresses};
use anyhow::ensure;
use lab::scenario;
use std::time::Duration;

const ECHO: &str = include_str!("../../guest/hwsim/rds/echo.py");

const SENDER: &str = include_str!("../../guest/hwsim/rds/sender.py");

scenario! {
    /// Messages of all sizes come back as they were sent, before and after the cable was pulled.
    ///
    /// Only Debian's kernel has RDS.
    #[on(stock)]
    fn rds_over_rdma(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok("modprobe ib_ipoib")?;
        let fabric = Fabric::make(&host, "pair")?;
        let manager = Manager::start(&host, HCAS[0], "-s 1")?;
        for hca in HCAS {
            active(&host, hca)?;
        }
        addresses(&host)?;
        host.ok("modprobe rds_rdma")?;
        let echo = host.spawn_python(ECHO, &[TARGET])?;
        echo.wait_for("ready", host.scaled(Duration::from_secs(10)))?;
        let exchange = || -> anyhow::Result<()> {
            let sender = host.spawn_python(SENDER, &[INITIATOR, TARGET])?;
            sender.wait(host.scaled(Duration::from_secs(60)))?.ok()?;
            // ib_ipoib has none here.
            ensure!(connections(&host, HCAS[0])? >= 1, "no connection");
            Ok(())
        };
        exchange()?;
        fabric.write("cables/c1/plugged", "0")?;
        let sender = host.spawn_python(SENDER, &[INITIATOR, TARGET])?;
        std::thread::sleep(host.scaled(Duration::from_secs(1)));
        fabric.write("cables/c1/plugged", "1")?;
        sender.wait(host.scaled(Duration::from_secs(60)))?.ok()?;
        exchange()?;
        echo.stop()?;
        manager.kill()?;
        // The HCAs go first, and take the connections along: unloaded with some, rds_rdma may use a list that it has
        // taken apart (rds_ib_destroy_nodev_conns()).
        host.run_for("ib-hwsim down && modprobe -r rds_rdma && modprobe -r ib_hwsim", Duration::from_secs(60))?.ok()?;
        bed.finish()
    }
}
