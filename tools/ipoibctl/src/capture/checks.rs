// SPDX-License-Identifier: GPL-2.0

//! Checks of packets that are captured, and of the files that they come from and go to.

use super::decode::{Kind, of_erf, of_ethernet, packet};
use super::file::{File, Record};
use super::hwsim::{FILE, records};
use pcap_file::DataLink;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::cell::RefCell;
use std::io::Write;
use std::rc::Rc;
use std::time::Duration;

/// Memory that a file is written to.
#[derive(Clone, Default)]
pub(super) struct Memory(pub(super) Rc<RefCell<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Checks packets, taken for such of either link: they are described, and are in the file as they came.
pub fn packets(packets: &[&[u8]]) {
    let memory = Memory::default();
    let mut file = File::new(Box::new(memory.clone())).expect("a file");
    file.link(DataLink::ETHERNET, "eth0", "words")
        .expect("a link");
    for (seconds, bytes) in (0..).zip(packets) {
        for transport in [of_ethernet(bytes), of_erf(bytes), Some(*bytes)]
            .into_iter()
            .flatten()
        {
            described(transport);
        }
        file.packet(&Record {
            link: 0,
            time: Duration::from_secs(seconds),
            bytes,
            length: bytes.len(),
            outgoing: None,
            decoded: of_ethernet(bytes).and_then(packet),
        })
        .expect("a packet");
    }
    file.flush().expect("flushed");
    assert_eq!(file.count.packets, packets.len() as u64);
    assert_eq!(file.count.kinds.values().sum::<u64>(), file.count.packets);
    let written = memory.0.borrow();
    let mut reader = PcapNgReader::new(&written[..]).expect("a file");
    assert!(matches!(
        reader.next_block(),
        Some(Ok(Block::InterfaceDescription(_)))
    ));
    for (seconds, bytes) in (0..).zip(packets) {
        let Some(Ok(Block::EnhancedPacket(found))) = reader.next_block() else {
            panic!("no packet");
        };
        assert_eq!(
            (found.timestamp, &*found.data),
            (Duration::from_secs(seconds), *bytes)
        );
    }
    assert!(reader.next_block().is_none());
}

/// Checks the description of a packet, from the BTH on.
fn described(transport: &[u8]) {
    let Some(decoded) = packet(transport) else {
        return;
    };
    assert!(!decoded.words.is_empty() && transport.len() >= 12);
    assert!(decoded.words.chars().all(|c| !c.is_control()));
    let is_frame = matches!(decoded.kind, Kind::Datagram | Kind::Connection);
    assert!(is_frame || !decoded.numbered && !decoded.extended);
    let to = u32::from_be_bytes([0, transport[5], transport[6], transport[7]]);
    assert_eq!(decoded.kind == Kind::Management, to <= 1);
}

/// Checks a file of ib_hwsim's, which may be read while it grows: each packet comes once, whatever there was the first time.
pub fn growing(bytes: &[u8], first: usize) {
    let read = |bytes: &[u8], from| {
        let mut found = Vec::new();
        let end = records(bytes, from, &mut |time, packet| {
            found.push((time, packet.to_vec()));
            Ok(())
        });
        end.ok().map(|end| (found, end))
    };
    let Some((all, end)) = read(bytes, FILE) else {
        return;
    };
    assert!(end <= bytes.len());
    let Some((mut some, at)) = read(&bytes[..first.min(bytes.len())], FILE) else {
        return;
    };
    let (rest, last) = read(bytes, at).expect("the file is no shorter");
    some.extend(rest);
    assert_eq!((some, last), (all, end));
}
