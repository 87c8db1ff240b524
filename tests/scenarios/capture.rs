// SPDX-License-Identifier: GPL-2.0

//! A capture of the wire below: by tcpdump on Ethernet, or by an HCA of ib_hwsim.

use anyhow::{Context, Result};
use lab::bed::Host;
pub(crate) use lab::packets::{Datagram, RcSend};
use lab::packets::{Packet, ROCE_PORT, frames};
use lab::task::Task;
use std::time::Duration;

/// Bytes captured of a packet at most, which is all of it. The capture's buffer has room for a thousand of that size,
/// and for eight if there is no limit: on a busy machine, packets are lost then.
const MOST: u32 = 16384;
/// The numbers of the QPs for management.
const MANAGEMENT: std::ops::RangeInclusive<u32> = 0..=1;

/// Place of a capture.
enum Place {
    /// A host's `eth0`, where tcpdump runs.
    Wire(Task),
    /// An HCA, by its directory in configfs.
    Hca(String),
}

/// A capture under way.
pub(crate) struct Capture {
    host: Host,
    place: Place,
    file: String,
}

impl Capture {
    /// Begins to capture on a host's `eth0`, or on its HCA if that is one of InfiniBand.
    pub(crate) fn start(host: &Host) -> Result<Capture> {
        if let Some(hca) = host.hca_files() {
            return Capture::of_hca(host, hca);
        }
        let file = Self::file(host);
        let task = host.spawn(&format!(
            "tcpdump -i eth0 -U --immediate-mode -s {MOST} -B 16384 -w {file} udp port {ROCE_PORT}"
        ))?;
        task.wait_for("listening on", host.scaled(Duration::from_secs(10)))?;
        Ok(Capture {
            host: host.clone(),
            place: Place::Wire(task),
            file,
        })
    }

    /// Begins to capture on an HCA of a host's, by its directory in configfs.
    pub(crate) fn of_hca(host: &Host, hca: String) -> Result<Capture> {
        host.outside().ok(&format!("echo 4000000 >{hca}/capture"))?;
        Ok(Capture {
            host: host.clone(),
            place: Place::Hca(hca),
            file: Self::file(host),
        })
    }

    fn file(host: &Host) -> String {
        format!("/tmp/capture-{}.pcap", host.number())
    }

    /// Ends it. Returns the datagrams that it saw, but for those of management.
    pub(crate) fn stop(self) -> Result<Vec<Datagram>> {
        let (mut datagrams, _) = self.stop_with_sends()?;
        datagrams.retain(|datagram| !MANAGEMENT.contains(&datagram.qpn));
        Ok(datagrams)
    }

    /// Ends it. Returns all datagrams, and the messages that went through connections.
    pub(crate) fn stop_with_sends(self) -> Result<(Vec<Datagram>, Vec<RcSend>)> {
        // The last frames are on their way from the wire to the file.
        std::thread::sleep(self.host.scaled(Duration::from_millis(300)));
        let of_frame = match self.place {
            Place::Wire(task) => {
                task.stop()?;
                Packet::of_ethernet
            }
            Place::Hca(hca) => {
                let outside = self.host.outside();
                outside.ok(&format!(
                    "cat {hca}/capture.pcap >{} && echo 0 >{hca}/capture",
                    self.file
                ))?;
                Packet::of_hca
            }
        };
        let pcap = self
            .host
            .machine()
            .read_bytes(&self.file)
            .context("the capture")?;
        let frames = frames(&pcap)?;
        let packets: Vec<Packet<'_>> = frames.into_iter().filter_map(of_frame).collect();
        Ok((
            packets.iter().filter_map(Datagram::parse).collect(),
            packets.iter().filter_map(RcSend::parse).collect(),
        ))
    }
}
