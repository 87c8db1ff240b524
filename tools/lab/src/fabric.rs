// SPDX-License-Identifier: GPL-2.0

//! RDMA on a bed: soft-RoCE on every host's Ethernet, and `ib0` on top.

use crate::bed::{Bed, Host};
use anyhow::{Context, Result, bail};
use std::time::{Duration, Instant};

impl Host {
    /// Its RDMA device: numbered, since one kernel's names are shared by its namespaces.
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
            "modprobe ipoib_rs && ip link add link eth0 name ib0 type ipoib_rs {options}"
        ))
        .with_context(|| format!("ib0 on host {}", self.number()))?;
        Ok(())
    }

    /// Brings `ib0` up with its addresses and waits for its carrier.
    pub fn ib_up(&self) -> Result<()> {
        // nodad: what duplicate address detection does is a scenario's business, not every one's.
        self.ok(&format!(
            "set -e
             ip addr add {}/24 dev ib0
             ip addr add {}/64 dev ib0 nodad
             ip link set ib0 up",
            self.ip4(),
            self.ip6()
        ))?;
        self.wait_until(
            "ip -o link show ib0 | grep -q LOWER_UP",
            Duration::from_secs(10),
        )
        .with_context(|| format!("ib0 of host {} has no carrier", self.number()))
    }

    /// Waits until a shell condition holds.
    pub fn wait_until(&self, condition: &str, limit: Duration) -> Result<()> {
        let deadline = Instant::now() + self.scaled(limit);
        loop {
            let last = self.run(condition)?;
            if last.success() {
                return Ok(());
            }
            if Instant::now() > deadline {
                bail!("never came true: {}", last.describe());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

impl Bed {
    /// Soft-RoCE on every host.
    pub fn rxe(&self) -> Result<()> {
        self.hosts.iter().try_for_each(Host::rxe_up)
    }

    /// Soft-RoCE and an `ib0` that is up on every host.
    pub fn ib(&self) -> Result<()> {
        self.rxe()?;
        for host in &self.hosts {
            host.ib_add("")?;
            host.ib_up()?;
        }
        Ok(())
    }
}
