// SPDX-License-Identifier: GPL-2.0

//! Files in the format pcapng.

use super::decode::{Decoded, Kind};
use anyhow::Result;
use pcap_file::DataLink;
use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use serde::Serialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::time::Duration;

/// Times are in units of 10^-9 seconds.
const NANOSECONDS: u8 = 9;
/// Directions, in the flags of a packet.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Numbers of packets that were written.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Count {
    pub(super) packets: u64,
    pub(super) kinds: BTreeMap<Kind, u64>,
    /// IPoIB frames that have a number.
    pub(super) numbered: u64,
    /// IPoIB frames with an extended header, or an EtherType that stands for one.
    pub(super) extended: u64,
}

/// A packet on a link.
pub(super) struct Record<'a> {
    /// Number of the link, in the order in which they were added.
    pub(super) link: u32,
    pub(super) time: Duration,
    pub(super) bytes: &'a [u8],
    /// Its length on the link.
    pub(super) length: usize,
    /// This host sends it, if that is known.
    pub(super) outgoing: Option<bool>,
    pub(super) decoded: Option<Decoded>,
}

/// A file that is being written.
pub(super) struct File {
    writer: PcapNgWriter<BufWriter<Box<dyn Write>>>,
    pub(super) count: Count,
}

impl File {
    pub(super) fn new(to: Box<dyn Write>) -> Result<File> {
        let program = concat!("ipoibctl ", env!("CARGO_PKG_VERSION"));
        let section = SectionHeaderBlock {
            options: vec![SectionHeaderOption::UserApplication(Cow::Borrowed(program))],
            ..SectionHeaderBlock::default()
        };
        Ok(File {
            writer: PcapNgWriter::with_section_header(BufWriter::new(to), section)?,
            count: Count::default(),
        })
    }

    /// Adds a link: an interface, or a port of an RDMA device.
    pub(super) fn link(&mut self, kind: DataLink, name: &str, words: &str) -> Result<()> {
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
            InterfaceDescriptionOption::IfDescription(Cow::Borrowed(words)),
            InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
        ];
        self.writer.write_pcapng_block(InterfaceDescriptionBlock {
            linktype: kind,
            snaplen: 0,
            options,
        })?;
        Ok(())
    }

    /// Adds a packet, with a comment that says what it is.
    pub(super) fn packet(&mut self, record: &Record<'_>) -> Result<()> {
        let mut options = Vec::new();
        if let Some(outgoing) = record.outgoing {
            let flags = if outgoing { OUTBOUND } else { INBOUND };
            options.push(EnhancedPacketOption::Flags(flags));
        }
        self.count.packets += 1;
        let kind = record
            .decoded
            .as_ref()
            .map_or(Kind::Other, |decoded| decoded.kind);
        *self.count.kinds.entry(kind).or_default() += 1;
        if let Some(decoded) = &record.decoded {
            self.count.numbered += u64::from(decoded.numbered);
            self.count.extended += u64::from(decoded.extended);
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(&decoded.words)));
        }
        self.writer.write_pcapng_block(EnhancedPacketBlock {
            interface_id: record.link,
            timestamp: record.time,
            original_len: u32::try_from(record.length)?,
            data: Cow::Borrowed(record.bytes),
            options,
        })?;
        Ok(())
    }

    /// Writes what is still in memory.
    pub(super) fn flush(&mut self) -> Result<()> {
        Ok(self.writer.get_mut().flush()?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::checks::Memory;
    use super::super::decode::tests::{ethernet, transport};
    use super::super::decode::{of_ethernet, packet};
    use super::*;
    use pcap_file::pcapng::{Block, PcapNgReader};

    #[test]
    fn what_was_written_is_read() {
        let memory = Memory::default();
        let mut file = File::new(Box::new(memory.clone())).expect("a file");
        file.link(DataLink::ETHERNET, "eth0", "words")
            .expect("a link");
        let bytes = ethernet(&transport(0x64, 0x12, &[8, 6, 0, 7]));
        let time = Duration::new(1_700_000_000, 123_456_789);
        file.packet(&Record {
            link: 0,
            time,
            bytes: &bytes,
            length: bytes.len(),
            outgoing: Some(true),
            decoded: of_ethernet(&bytes).and_then(packet),
        })
        .expect("a packet");
        file.flush().expect("flushed");
        let expected = Count {
            packets: 1,
            kinds: BTreeMap::from([(Kind::Datagram, 1)]),
            numbered: 1,
            extended: 0,
        };
        assert_eq!(file.count, expected);

        let written = memory.0.borrow();
        let mut reader = PcapNgReader::new(&written[..]).expect("a file");
        let Some(Ok(Block::InterfaceDescription(link))) = reader.next_block() else {
            panic!("no link");
        };
        assert_eq!(link.linktype, DataLink::ETHERNET);
        let resolution = InterfaceDescriptionOption::IfTsResol(NANOSECONDS);
        assert!(link.options.contains(&resolution));
        let Some(Ok(Block::EnhancedPacket(found))) = reader.next_block() else {
            panic!("no packet");
        };
        assert_eq!((found.timestamp, &*found.data), (time, &bytes[..]));
        let words = "datagram from QP 0x000011 to 0x000012, number 7: ARP";
        let options = [
            EnhancedPacketOption::Flags(OUTBOUND),
            EnhancedPacketOption::Comment(Cow::Borrowed(words)),
        ];
        assert_eq!(found.options, options);
        assert!(reader.next_block().is_none());
    }
}
