// SPDX-License-Identifier: GPL-2.0

//! Fields of the headers.

/// The local route header (section 7.7).
pub(super) mod lrh {
    use crate::bits::Field;

    pub(in super::super) const LANE: Field = Field::bits(0, 4, 4);
    pub(in super::super) const VERSION: Field = Field::bits(0, 0, 4);
    pub(in super::super) const SL: Field = Field::bits(1, 4, 4);
    pub(in super::super) const NEXT: Field = Field::bits(1, 0, 2);
    pub(in super::super) const DLID: Field = Field::bytes(2, 2);
    /// In words of four bytes, from the header's first byte to the ICRC's last one.
    pub(in super::super) const LENGTH: Field = Field::within(4, 2, 0, 11);
    pub(in super::super) const SLID: Field = Field::bytes(6, 2);

    /// [`NEXT`] of a packet whose next header is a BTH.
    pub(in super::super) const LOCAL: u8 = 0b10;
    /// [`NEXT`] of a packet whose next header is a GRH.
    pub(in super::super) const GLOBAL: u8 = 0b11;
}

/// The base transport header (section 9.2).
pub(super) mod bth {
    use crate::bits::Field;

    pub(in super::super) const OPCODE: Field = Field::bytes(0, 1);
    pub(in super::super) const SOLICITED: Field = Field::bits(1, 7, 1);
    pub(in super::super) const MIGRATED: Field = Field::bits(1, 6, 1);
    pub(in super::super) const PAD: Field = Field::bits(1, 4, 2);
    pub(in super::super) const VERSION: Field = Field::bits(1, 0, 4);
    pub(in super::super) const PKEY: Field = Field::bytes(2, 2);
    pub(in super::super) const DEST_QP: Field = Field::bytes(5, 3);
    pub(in super::super) const ACK_REQUEST: Field = Field::bits(8, 7, 1);
    pub(in super::super) const PSN: Field = Field::bytes(9, 3);
}
