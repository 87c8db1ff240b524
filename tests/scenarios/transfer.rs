// SPDX-License-Identifier: GPL-2.0

//! A TCP stream whose content is compared at both ends.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::machine::Task;
use std::time::Duration;

/// Takes one stream, IPv4 or IPv6; prints its length and digest.
pub(crate) const RECEIVER: &str = r#"
import hashlib, socket
s = socket.create_server(("::", 5010), family=socket.AF_INET6, dualstack_ipv6=True)
print("listening", flush=True)
c, _ = s.accept()
length, digest = 0, hashlib.sha256()
while data := c.recv(1 << 18):
    length += len(data)
    digest.update(data)
print(length, digest.hexdigest())
"#;

/// Sends a stream to the first argument, so many MiB and for so many seconds at least; prints its
/// length and digest when all of it was taken.
const SENDER: &str = r#"
import hashlib, os, socket, sys, time
target, mib, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.create_connection((target, 5010))
print("connected", flush=True)
# No two pieces are the same.
rest = os.urandom((1 << 16) - 8)
length, digest, start = 0, hashlib.sha256(), time.monotonic()
while length < mib << 20 or time.monotonic() < start + seconds:
    data = length.to_bytes(8, "big") + rest
    s.sendall(data)
    digest.update(data)
    length += len(data)
s.shutdown(socket.SHUT_WR)
s.recv(1)
print(length, digest.hexdigest())
"#;

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

    /// The same, to a receiver that was started already.
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

    /// Waits for its end; fails unless both ends have seen the same. Its length in octets.
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
