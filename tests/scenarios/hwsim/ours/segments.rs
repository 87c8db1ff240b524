// SPDX-License-Identifier: GPL-2.0

//! Segments that an HCA makes: nothing numbers them, unlike all else that is sent to a peer that wants numbers.

use super::super::EXCLUSIVE;
use super::super::fabric::CONFIGFS;
use super::offload::CRAFT;
use super::{Driver, up_with};
use crate::capture::Capture;
use crate::order::counter;
use anyhow::{Result, ensure};
use lab::bed::Host;
use lab::scenario;

/// A super-frame of ten segments, between frames that are sent as they are.
const FRAMES: &str = "
send(4, 17, udp(100), data[:100])
send(4, 6, tcp(1, ACK), data[:10000], 1000)
send(4, 6, tcp(10001, ACK), data[:1000])
send(4, 17, udp(101), data[:101])
";

/// Numbers of the frames of [`FRAMES`] that the HCA of the first host sends, in their order.
fn numbers(from: &Host, to: &Host) -> Result<Vec<u16>> {
    let capture = Capture::of_hca(from, format!("{CONFIGFS}/pair/hcas/h1"))?;
    let address = to.ok("cat /sys/class/net/ib0/address")?;
    from.python(&format!("{CRAFT}{FRAMES}"), &[address.trim()])?
        .ok()?;
    let sent = capture.stop()?;
    // By the addresses of the packets.
    let crafted = sent.iter().filter(|datagram| {
        let addresses = datagram.payload.get(16..24);
        addresses == Some(&[10, 1, 0, 201, 10, 1, 0, 202])
    });
    Ok(crafted.map(|datagram| datagram.reserved()).collect())
}

scenario! {
    /// Segments that the HCA makes have no numbers, and take none from the frames around them. Segments that the stack makes
    /// have one each.
    #[on(lockdep)]
    fn segments_of_the_hca_have_no_numbers(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let kind = (Driver::Ours, "datagram");
        let manager = up_with(&bed, &[("checksum", "1"), ("lso", "65536")], &[kind, kind])?;
        let (a, b) = bed.pair()?;
        // Nothing else is to take a number.
        for host in [a, b] {
            host.ok("sysctl -qw net.ipv6.conf.ib0.disable_ipv6=1 net.ipv4.neigh.ib0.base_reachable_time_ms=86400000")?;
        }
        a.ok(&format!("ping -q -c 1 -W 5 {}", b.ip4()))?;
        for by_hca in [true, false] {
            a.ok(&format!("ethtool -K ib0 tso {}", if by_hca { "on" } else { "off" }))?;
            let large = counter(a, "tx_large")?;
            let numbers = numbers(a, b)?;
            ensure!(counter(a, "tx_large")? - large == u64::from(by_hca));
            let [first, segments @ .., before, last] = &numbers[..] else {
                anyhow::bail!("{numbers:?}");
            };
            ensure!(segments.len() == 10, "{numbers:?}");
            let mut numbered = vec![*first];
            if by_hca {
                ensure!(segments.iter().all(|number| *number == 0), "{numbers:?}");
            } else {
                numbered.extend(segments);
            }
            numbered.extend([before, last]);
            for pair in numbered.windows(2) {
                // 0 is none.
                let next = pair[0].checked_add(1).unwrap_or(1);
                ensure!(pair[0] != 0 && pair[1] == next, "{numbers:?}");
            }
        }
        manager.end()?;
        bed.finish()
    }
}
