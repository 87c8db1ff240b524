// SPDX-License-Identifier: GPL-2.0

//! Fields of management datagrams: big-endian numbers and groups of bits.

/// A field at a fixed place. Bytes beyond the end of a buffer read as zero and swallow writes.
#[derive(Clone, Copy)]
pub(crate) struct Field {
    byte: usize,
    len: usize,
    shift: u32,
    mask: u64,
}

impl Field {
    /// Describes a number of `len` whole bytes, at most eight.
    pub(crate) const fn bytes(byte: usize, len: usize) -> Field {
        let unused = 64u32.saturating_sub((len as u32).saturating_mul(8));
        Field {
            byte,
            len,
            shift: 0,
            mask: u64::MAX.wrapping_shr(unused),
        }
    }

    /// Describes `width` bits within one byte, the lowest of them bit `shift`.
    pub(crate) const fn bits(byte: usize, shift: u32, width: u32) -> Field {
        Field::within(byte, 1, shift, width)
    }

    /// Describes `width` bits within a number of `len` bytes, the lowest of them bit `shift`.
    pub(crate) const fn within(byte: usize, len: usize, shift: u32, width: u32) -> Field {
        Field {
            byte,
            len,
            shift,
            mask: !u64::MAX.wrapping_shl(width),
        }
    }

    /// Returns the largest number that the field can hold.
    pub(crate) const fn max(self) -> u64 {
        self.mask
    }

    /// Reads the bytes that hold the field as one number.
    fn raw(self, buffer: &[u8]) -> u64 {
        (0..self.len).fold(0, |number, i| {
            let byte = buffer.get(self.byte.saturating_add(i));
            (number << 8) | u64::from(byte.copied().unwrap_or(0))
        })
    }

    /// Reads the field.
    pub(crate) fn u64(self, buffer: &[u8]) -> u64 {
        self.raw(buffer).wrapping_shr(self.shift) & self.mask
    }

    /// Reads the low 32 bits of the field.
    pub(crate) fn u32(self, buffer: &[u8]) -> u32 {
        self.u64(buffer) as u32
    }

    /// Reads the low 16 bits of the field.
    pub(crate) fn u16(self, buffer: &[u8]) -> u16 {
        self.u64(buffer) as u16
    }

    /// Reads the low 8 bits of the field.
    pub(crate) fn u8(self, buffer: &[u8]) -> u8 {
        self.u64(buffer) as u8
    }

    /// Writes the field and leaves the bits around it.
    pub(crate) fn put(self, buffer: &mut [u8], value: impl Into<u64>) {
        let mask = self.mask.wrapping_shl(self.shift);
        let value = value.into().wrapping_shl(self.shift) & mask;
        let mut number = (self.raw(buffer) & !mask) | value;
        for i in (0..self.len).rev() {
            if let Some(byte) = buffer.get_mut(self.byte.saturating_add(i)) {
                *byte = number as u8;
            }
            number >>= 8;
        }
    }
}

/// Copies as many bytes as both slices have.
pub(crate) fn copy(from: &[u8], to: &mut [u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to = *from;
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ib_fabric_bits))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn whole_bytes_are_big_endian() {
        let mut buffer = [0xaa; 10];
        Field::bytes(1, 2).put(&mut buffer, 0x1234_u16);
        assert_eq!(buffer[..4], [0xaa, 0x12, 0x34, 0xaa]);
        Field::bytes(2, 8).put(&mut buffer, 0x0102_0304_0506_0708_u64);
        assert_eq!(buffer, [0xaa, 0x12, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(Field::bytes(2, 8).u64(&buffer), 0x0102_0304_0506_0708);
        assert_eq!(Field::bytes(3, 3).u32(&buffer), 0x02_0304);
    }

    #[test]
    fn bits_leave_their_neighbours() {
        let mut buffer = [0xff; 2];
        Field::bits(1, 3, 3).put(&mut buffer, 0b010_u8);
        assert_eq!(buffer, [0xff, 0b1101_0111]);
        assert_eq!(Field::bits(1, 3, 3).u8(&buffer), 0b010);
        assert_eq!(Field::bits(1, 0, 8).u8(&buffer), 0b1101_0111);
    }

    #[test]
    fn too_large_a_number_is_cut() {
        let mut buffer = [0];
        Field::bits(0, 4, 4).put(&mut buffer, 0x1f_u8);
        assert_eq!(buffer, [0xf0]);
        assert_eq!(Field::bits(0, 4, 4).max(), 15);
        assert_eq!(Field::bytes(0, 8).max(), u64::MAX);
    }

    #[test]
    fn beyond_the_end_is_nothing() {
        let mut buffer = [0x11];
        Field::bytes(0, 2).put(&mut buffer, 0xabcd_u16);
        assert_eq!(buffer, [0xab]);
        assert_eq!(Field::bytes(0, 2).u16(&buffer), 0xab00);
        assert_eq!(Field::bytes(9, 4).u32(&buffer), 0);
    }

    #[test]
    fn copy_stops_at_the_shorter_end() {
        let mut buffer = [9; 3];
        copy(&[1, 2], &mut buffer);
        assert_eq!(buffer, [1, 2, 9]);
        copy(&[3, 4, 5, 6], &mut buffer);
        assert_eq!(buffer, [3, 4, 5]);
    }
}
