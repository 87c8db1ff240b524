// SPDX-License-Identifier: GPL-2.0

//! Captures of what an adapter sends and receives.

use ib_fabric::wire::{pcap, Head};
use ib_fabric::Packet;
use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_spinlock_irq, SpinLockIrq};
use rdma_provider::{wall_clock, Payload};

/// The most bytes that a capture may have.
pub(crate) const MOST: usize = 64 << 20;

/// A capture of the packets that an adapter sends by cable, and of those that its ports accept from there. Once the buffer
/// is full, packets are counted as dropped.
///
/// Its lock is the innermost one: no other is taken under it.
#[pin_data]
pub(crate) struct Capture {
    on: Atomic<bool>,
    dropped: Atomic<u64>,
    #[pin]
    records: SpinLockIrq<Records>,
}

/// Records of a capture file, without its header.
struct Records {
    /// The buffer.
    bytes: KVVec<u8>,
    /// Bytes of it that are in use.
    len: usize,
}

impl Records {
    /// Returns true if there is room for `len` bytes.
    fn has_room(&self, len: usize) -> bool {
        self.bytes.len() - self.len >= len
    }

    /// Adds a record. False if there is no room.
    fn add(&mut self, record: &[u8]) -> bool {
        let end = self.len + record.len();
        match self.bytes.get_mut(self.len..end) {
            Some(place) => place.copy_from_slice(record),
            None => return false,
        }
        self.len = end;
        true
    }
}

impl Capture {
    /// A capture that is off.
    pub(crate) fn new() -> impl PinInit<Self> {
        let records = Records {
            bytes: KVVec::new(),
            len: 0,
        };
        pin_init!(Self {
            on: Atomic::new(false),
            dropped: Atomic::new(0),
            records <- new_spinlock_irq!(records, "ib_hwsim::capture"),
        })
    }

    /// Begins a new capture with room for `size` bytes of records; 0 switches it off.
    ///
    /// # Errors
    ///
    /// `EINVAL` for more than [`MOST`]; `ENOMEM`. Nothing has changed then.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn begin(&self, size: usize) -> Result {
        if size > MOST {
            return Err(EINVAL);
        }
        let bytes = KVVec::from_elem(0, size, GFP_KERNEL)?;
        let old = {
            let mut records = self.records.lock();
            self.on.store(size > 0, Relaxed);
            self.dropped.store(0, Relaxed);
            records.len = 0;
            core::mem::replace(&mut records.bytes, bytes)
        };
        drop(old);
        Ok(())
    }

    /// Bytes of records that there is room for.
    pub(crate) fn size(&self) -> usize {
        self.records.lock().bytes.len()
    }

    /// Packets for which there was no room.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Records a packet, or a run of packets, if the capture is on.
    ///
    /// # Context
    ///
    /// As for [`crate::carry::carry`].
    #[inline]
    pub(crate) fn take(&self, packet: &Packet, payload: &Payload<'_>) {
        if self.on.load(Relaxed) {
            self.record(packet, payload);
        }
    }

    /// Returns true if the capture is on.
    #[inline]
    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Relaxed)
    }

    #[cold]
    #[inline(never)]
    fn record(&self, packet: &Packet, payload: &Payload<'_>) {
        let time = wall_clock();
        for n in 0..packet.packets() {
            let Some(head) = Head::new(packet, n) else {
                break;
            };
            let has_room = self.records.lock().has_room(pcap::RECORD + head.len());
            // No lock is held while the payload is read.
            let record = has_room.then(|| make(time, &head, payload)).flatten();
            let kept = record.is_some_and(|record| self.records.lock().add(&record));
            if !kept {
                self.dropped.fetch_add(1, Relaxed);
            }
        }
    }

    /// Bytes of the capture file.
    pub(crate) fn file_len(&self) -> usize {
        pcap::FILE + self.records.lock().len
    }

    /// A copy of the first `len` bytes of the records. [`Capture::begin`] must not be called meanwhile.
    ///
    /// # Errors
    ///
    /// `ENOMEM`; `EAGAIN` if there are fewer, as it has begun anew before.
    ///
    /// # Context
    ///
    /// Process context; may sleep.
    pub(crate) fn copy(&self, len: usize) -> Result<KVVec<u8>> {
        let mut copy = KVVec::from_elem(0, len, GFP_KERNEL)?;
        // In chunks, as interrupts are disabled meanwhile.
        let mut at = 0;
        for part in copy.chunks_mut(1 << 16) {
            let records = self.records.lock();
            let end = at + part.len();
            if end > records.len {
                return Err(EAGAIN);
            }
            part.copy_from_slice(records.bytes.get(at..end).ok_or(EAGAIN)?);
            at = end;
        }
        Ok(copy)
    }
}

/// Makes a record; `None` if there is no memory, or if the payload cannot be read.
fn make(time: u64, head: &Head, payload: &Payload<'_>) -> Option<KVec<u8>> {
    let len = head.len();
    // The packet is counted as dropped then: no reason to warn.
    let flags = GFP_ATOMIC | __GFP_NOWARN;
    let mut record = KVec::with_capacity(pcap::RECORD + len, flags).ok()?;
    let header = pcap::record(time, u16::try_from(len).ok()?);
    record.extend_from_slice(&header, flags).ok()?;
    record.extend_with(len, 0, flags).ok()?;
    let place = record.get_mut(pcap::RECORD..)?;
    let done = head.write(place, |from, place| payload.copy_part(from, place));
    done.then_some(record)
}
