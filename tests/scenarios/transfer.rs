// SPDX-License-Identifier: GPL-2.0

//! A TCP stream whose content is compared at both ends.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::task::Task;
use std::time::Duration;

pub(crate) const RECEIVER: &str = include_str!("../guest/transfer/receiver.py");

pub(crate) const SENDER: &str = include_str!("../guest/transfer/sender.py");

/// A stream on its way.
pub(crate) struct Transfer {
    sender: Task,
    receiver: Task,
    limit: Duration,
}

impl Transfer {
    /// Begins one: `mib` MiB at least, and for `seconds` at least.
    pub(crate) fn start(
        from: &Host,
        to: &Host,
        target: &str,
        mib: u32,
        seconds: u32,
    ) -> Result<Transfer> {
        let receiver = to.spawn_python(RECEIVER, &[])?;
        Transfer::begin(from, receiver, target, mib, seconds)
    }

    /// Begins one to a receiver that runs already.
    pub(crate) fn begin(
        from: &Host,
        receiver: Task,
        target: &str,
        mib: u32,
        seconds: u32,
    ) -> Result<Transfer> {
        receiver.wait_for("listening", from.scaled(Duration::from_secs(10)))?;
        let arguments = [target, &mib.to_string(), &seconds.to_string()];
        let sender = from.spawn_python(SENDER, &arguments)?;
        sender.wait_for("connected", from.scaled(Duration::from_secs(30)))?;
        // A debug kernel, or one that shares its processors, does a MiB a second.
        let limit = Duration::from_secs(u64::from(60 + seconds + mib));
        Ok(Transfer {
            sender,
            receiver,
            limit: from.scaled(limit),
        })
    }

    /// Waits for its end; fails unless both ends have seen the same. Its length in bytes.
    pub(crate) fn finish(self) -> Result<u64> {
        let sent = self.sender.wait(self.limit)?.ok()?;
        let received = self.receiver.wait(self.limit)?.ok()?;
        let [sent, received] =
            [&sent, &received].map(|text| text.lines().last().unwrap_or_default());
        ensure!(received == sent, "{received} is not {sent}");
        let (length, _) = received.split_once(' ').context("no digest")?;
        length.parse().context("a length")
    }
}

/// Sends `mib` MiB.
pub(crate) fn transfer(from: &Host, to: &Host, target: &str, mib: u32) -> Result<()> {
    Transfer::start(from, to, target, mib, 0)?.finish()?;
    Ok(())
}

/// Puts a namespace `inner` with the addresses 10.3.0.2 and fd00:3::2 behind `router`, over a veth pair of this MTU, and has `peer` reach
/// it. The namespace stays while the task runs.
pub(crate) fn behind(router: &Host, peer: &Host, mtu: u32) -> Result<Task> {
    let (holder, pid) = router.netns_add("inner")?;
    router.ok(&format!(
        "set -e
         ip link add veth0 mtu {mtu} type veth peer name veth1 mtu {mtu} netns {pid}
         ip addr add 10.3.0.1/24 dev veth0 && ip link set veth0 up
         ip addr add fd00:3::1/64 dev veth0 nodad
         echo 1 >/proc/sys/net/ipv4/ip_forward
         echo 1 >/proc/sys/net/ipv6/conf/all/forwarding"
    ))?;
    router.outside().ok("set -e
         ip -n inner addr add 10.3.0.2/24 dev veth1
         ip -n inner addr add fd00:3::2/64 dev veth1 nodad
         ip -n inner link set veth1 up && ip -n inner link set lo up
         ip -n inner route add default via 10.3.0.1
         ip -n inner route add default via fd00:3::1")?;
    peer.ok(&format!(
        "ip route add 10.3.0.0/24 via {} dev ib0 && ip route add fd00:3::/64 via {} dev ib0",
        router.ip4(),
        router.ip6()
    ))?;
    for address in ["10.3.0.2", "fd00:3::2"] {
        peer.wait_until(
            &format!("ping -q -c 1 -W 1 {address}"),
            Duration::from_secs(10),
        )?;
    }
    Ok(holder)
}
