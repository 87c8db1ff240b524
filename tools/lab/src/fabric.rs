// SPDX-License-Identifier: GPL-2.0

//! RDMA on a bed: soft-RoCE on every host's Ethernet, or a simulated InfiniBand fabric, and `ib0` on top.

use crate::bed::{Bed, Host};
use anyhow::{Context, Result};
use std::time::Duration;

/// Broadcast groups have the MTU that soft-RoCE's ports have.
const PARTITIONS: &str =
    "Default=0x7fff, ipoib, mtu=5 : ALL=full;\nBlue=0x0001, ipoib, mtu=5 : ALL=full;";

impl Host {
    /// Its HCA on a simulated fabric: they are switched on in their order.
    pub(crate) fn hca(&self) -> String {
        format!("hwsim{}", self.number() - 1)
    }

    /// The directory of its HCA in configfs, if its port is one of InfiniBand.
    #[must_use]
    pub fn hca_files(&self) -> Option<String> {
        let directory = format!("/sys/kernel/config/ib_hwsim/star/hcas/h{}", self.number());
        self.is_infiniband().then_some(directory)
    }

    /// Its RDMA device, of either kind.
    #[must_use]
    pub fn rdma_device(&self) -> String {
        if self.is_infiniband() {
            self.hca()
        } else {
            self.rxe()
        }
    }

    /// Its soft-RoCE: numbered, since one kernel's names are shared by its namespaces.
    #[must_use]
    pub fn rxe(&self) -> String {
        format!("rxe{}", self.number() - 1)
    }

    /// Brings soft-RoCE up on `eth0`.
    pub fn rxe_up(&self) -> Result<()> {
        self.ok(&format!(
            "modprobe rdma_rxe && rdma link add {} type rxe netdev eth0",
            self.rxe()
        ))
        .with_context(|| format!("soft-RoCE on host {}", self.number()))?;
        Ok(())
    }

    /// Loads the driver and makes `ib0`, with `options` for `ip link add … type ipoib_rs`; not up yet.
    pub fn ib_add(&self, options: &str) -> Result<()> {
        self.ok(&format!(
            "modprobe ipoib_rs && ip link add name ib0 {}",
            self.link(options)
        ))
        .with_context(|| format!("ib0 on host {}", self.number()))?;
        Ok(())
    }

    /// The words behind the name in `ip link add`, with `options`.
    #[must_use]
    pub fn link(&self, options: &str) -> String {
        if self.is_infiniband() {
            format!("type ipoib_rs device {} {options}", self.hca())
        } else {
            format!("link eth0 type ipoib_rs {options}")
        }
    }

    /// Brings `ib0` up with its addresses and waits for its carrier.
    pub fn ib_up(&self) -> Result<()> {
        // nodad: what duplicate address detection does is a scenario's business, not every one's.
        self.ip(&format!(
            "addr add {}/24 dev ib0
             addr add {}/64 dev ib0 nodad
             link set ib0 up",
            self.ip4(),
            self.ip6()
        ))?;
        self.wait_until(
            "read carrier </sys/class/net/ib0/carrier && [ $carrier = 1 ]",
            Duration::from_secs(10),
        )
        .with_context(|| format!("ib0 of host {} has no carrier", self.number()))
    }

    /// Starts opensm on its port of a simulated fabric, in the place of the one that runs.
    pub fn subnet_manager(&self) -> Result<()> {
        self.subnet_manager_with(5)
    }

    /// Does the same with this code of the MTU of broadcast groups.
    pub fn subnet_manager_with(&self, mtu: u8) -> Result<()> {
        let partitions = PARTITIONS.replace("mtu=5", &format!("mtu={mtu}"));
        self.ok(&format!(
            "pkill -KILL -x opensm
             mkdir -p /var/cache/opensm
             echo '{partitions}' >/tmp/opensm-partitions.conf
             opensm -B -P /tmp/opensm-partitions.conf -g $(sed 's/fe80:0000:0000:0000/0x/; s/://g' /sys/class/infiniband/{}/ports/1/gids/0)",
            self.hca()
        ))
        .context("opensm")?;
        Ok(())
    }
}

impl Bed {
    /// Soft-RoCE on every host.
    pub fn rxe(&self) -> Result<()> {
        self.hosts.iter().try_for_each(Host::rxe_up)
    }

    /// An HCA for each host on a switch, and a subnet manager.
    fn fabric(&self) -> Result<()> {
        let first = self.hosts.first().context("no host")?;
        let outside = first.outside();
        outside.ok(&format!("ib-hwsim star {}", self.hosts.len()))?;
        for host in &self.hosts {
            let netns = host.netns().context("a host without a namespace")?;
            outside.ok(&format!("rdma dev set {} netns {netns}", host.hca()))?;
        }
        self.subnet_manager()
    }

    /// Starts opensm on the first host of a simulated fabric, in the place of the one that runs.
    pub fn subnet_manager(&self) -> Result<()> {
        self.hosts.first().context("no host")?.subnet_manager()
    }

    /// An RDMA port on every host: soft-RoCE, or one of InfiniBand.
    pub fn ports(&self) -> Result<()> {
        if self.hosts.first().is_some_and(Host::is_infiniband) {
            self.fabric()
        } else {
            self.rxe()
        }
    }

    /// An RDMA port and an `ib0` that is up on every host.
    pub fn ib(&self) -> Result<()> {
        self.ports()?;
        for host in &self.hosts {
            host.ib_add("")?;
            host.ib_up()?;
        }
        Ok(())
    }
}
