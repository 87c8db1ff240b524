// SPDX-License-Identifier: GPL-2.0

//! The header of an extended frame, which is described in [`crate::wire::extended`].

use super::{ExtendedError, PartialChecksum, NEEDS_CSUM};
use crate::wire::header::EtherType;

/// The header: two numbers, so that it is read and written in two pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtendedHeader {
    /// Flags, kind, payload of a segment, start and offset of the checksum.
    pub(super) front: u64,
    /// EtherType, and credit limit or 0.
    pub(super) back: u32,
}

impl ExtendedHeader {
    /// The length of the header in bytes, without the encapsulation header.
    pub const LEN: usize = 12;

    /// Reads it.
    #[inline(always)]
    pub const fn from_bytes(header: &[u8; Self::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *header;
        Self {
            front: u64::from_be_bytes([a, b, c, d, e, f, g, h]),
            back: u32::from_be_bytes([i, j, k, l]),
        }
    }

    /// Writes it.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut header = [0; Self::LEN];
        let (front, back) = header.split_at_mut(size_of::<u64>());
        front.copy_from_slice(&self.front.to_be_bytes());
        back.copy_from_slice(&self.back.to_be_bytes());
        header
    }

    /// Of a packet that is not to be segmented.
    #[inline(always)]
    pub(super) const fn new(ether_type: EtherType, checksum: Option<PartialChecksum>) -> Self {
        let front = match checksum {
            Some(PartialChecksum { start, offset }) => {
                ((NEEDS_CSUM as u64) << 56) | ((start as u64) << 16) | offset as u64
            }
            None => 0,
        };
        Self {
            front,
            back: (ether_type.0 as u32) << 16,
        }
    }

    /// One that carries nothing but a credit limit.
    pub const fn credit_only(limit: u16) -> Self {
        Self {
            front: 0,
            back: limit as u32,
        }
    }

    /// Returns the credit limit, if the header carries nothing else, with `len` bytes behind.
    #[inline]
    pub const fn credit_only_limit(&self, len: usize) -> Option<u16> {
        if self.front | len as u64 == 0 && self.ether_type().0 == 0 {
            Some(self.back as u16)
        } else {
            None
        }
    }

    /// Returns true if there is something to segment.
    #[inline]
    pub(super) const fn is_large(&self) -> bool {
        self.kind() != 0 || self.size() != 0
    }

    /// The packet's type, as it says.
    #[inline]
    pub const fn ether_type(&self) -> EtherType {
        EtherType((self.back >> 16) as u16)
    }

    #[inline]
    const fn flags(&self) -> u8 {
        (self.front >> 56) as u8
    }

    #[inline]
    pub(super) const fn kind(&self) -> u8 {
        (self.front >> 48) as u8
    }

    #[inline]
    pub(super) const fn size(&self) -> u16 {
        (self.front >> 32) as u16
    }

    #[inline]
    const fn start(&self) -> u16 {
        (self.front >> 16) as u16
    }

    #[inline]
    const fn offset(&self) -> u16 {
        self.front as u16
    }

    /// The packet's checksum, if it is to be computed.
    ///
    /// # Errors
    ///
    /// [`ExtendedError::Undefined`] if it says more than that, or something else.
    #[inline(always)]
    pub const fn checksum(&self) -> Result<Option<PartialChecksum>, ExtendedError> {
        let (start, offset) = (self.start(), self.offset());
        match self.flags() {
            NEEDS_CSUM => Ok(Some(PartialChecksum { start, offset })),
            0 if start == 0 && offset == 0 => Ok(None),
            _ => Err(ExtendedError::Undefined),
        }
    }
}
