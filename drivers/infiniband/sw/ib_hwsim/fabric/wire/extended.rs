// SPDX-License-Identifier: GPL-2.0

//! Extended transport headers (section 9.3).

use super::Malformed;
use crate::bits::Field;
use crate::rc::{Aeth, AtomicOp, Nak, Reth, Syndrome};

/// Numbers in a row, from the first byte of a header on.
const fn word(byte: usize) -> Field {
    Field::bytes(byte, 4)
}

const fn long(byte: usize) -> Field {
    Field::bytes(byte, 8)
}

const fn queue_pair(byte: usize) -> Field {
    Field::bytes(byte, 3)
}

/// The DETH (section 9.3.3): Q_Key and source queue pair.
pub(super) fn deth(qkey: u32, src_qp: u32) -> [u8; 8] {
    let mut bytes = [0; 8];
    word(0).put(&mut bytes, qkey);
    queue_pair(5).put(&mut bytes, src_qp);
    bytes
}

/// Reads a DETH: Q_Key and source queue pair.
pub(super) fn read_deth(bytes: &[u8; 8]) -> (u32, u32) {
    (word(0).u32(bytes), queue_pair(5).u32(bytes))
}

/// The RETH (section 9.3.1).
pub(super) fn reth(reth: &Reth) -> [u8; 16] {
    let mut bytes = [0; 16];
    long(0).put(&mut bytes, reth.address);
    word(8).put(&mut bytes, reth.key);
    word(12).put(&mut bytes, reth.len);
    bytes
}

/// Reads an RETH.
pub(super) fn read_reth(bytes: &[u8; 16]) -> Reth {
    Reth {
        address: long(0).u64(bytes),
        key: word(8).u32(bytes),
        len: word(12).u32(bytes),
    }
}

/// The AtomicETH (section 9.3.2).
pub(super) fn atomic(address: u64, key: u32, op: &AtomicOp) -> [u8; 28] {
    let (swap_or_add, compare) = match *op {
        AtomicOp::CompareSwap { compare, swap } => (swap, compare),
        AtomicOp::FetchAdd(n) => (n, 0),
    };
    let mut bytes = [0; 28];
    long(0).put(&mut bytes, address);
    word(8).put(&mut bytes, key);
    long(12).put(&mut bytes, swap_or_add);
    long(20).put(&mut bytes, compare);
    bytes
}

/// Reads an AtomicETH: address, key, what is swapped in or added, and what is compared.
pub(super) fn read_atomic(bytes: &[u8; 28]) -> (u64, u32, u64, u64) {
    let number = |byte| long(byte).u64(bytes);
    (number(0), word(8).u32(bytes), number(12), number(20))
}

/// Fields of the AETH (section 9.3.4).
const KIND: Field = Field::bits(0, 5, 3);
const VALUE: Field = Field::bits(0, 0, 5);
const MSN: Field = Field::bytes(1, 3);

/// Kinds of a syndrome (section 9.7.5.1.2, table 44).
const ACK: u8 = 0b000;
const RNR: u8 = 0b001;
const NAK: u8 = 0b011;

/// The credit count of an acknowledgement that has none.
const NO_CREDITS: u8 = 31;

/// The AETH.
pub(super) fn aeth(aeth: &Aeth) -> [u8; 4] {
    let (kind, value) = match aeth.syndrome {
        Syndrome::Ack => (ACK, NO_CREDITS),
        Syndrome::ReceiverNotReady(timer) => (RNR, timer),
        Syndrome::Nak(Nak::Sequence) => (NAK, 0),
        Syndrome::Nak(Nak::InvalidRequest) => (NAK, 1),
        Syndrome::Nak(Nak::RemoteAccess) => (NAK, 2),
        Syndrome::Nak(Nak::RemoteOperation) => (NAK, 3),
    };
    let mut bytes = [0; 4];
    KIND.put(&mut bytes, kind);
    VALUE.put(&mut bytes, value);
    MSN.put(&mut bytes, aeth.msn);
    bytes
}

/// Reads an AETH.
///
/// # Errors
///
/// [`Malformed::Syndrome`].
pub(super) fn read_aeth(bytes: &[u8; 4]) -> Result<Aeth, Malformed> {
    let syndrome = match (KIND.u8(bytes), VALUE.u8(bytes)) {
        (ACK, _) => Syndrome::Ack,
        (RNR, timer) => Syndrome::ReceiverNotReady(timer),
        (NAK, 0) => Syndrome::Nak(Nak::Sequence),
        (NAK, 1) => Syndrome::Nak(Nak::InvalidRequest),
        (NAK, 2) => Syndrome::Nak(Nak::RemoteAccess),
        (NAK, 3) => Syndrome::Nak(Nak::RemoteOperation),
        _ => return Err(Malformed::Syndrome),
    };
    let msn = MSN.u32(bytes);
    Ok(Aeth { syndrome, msn })
}
