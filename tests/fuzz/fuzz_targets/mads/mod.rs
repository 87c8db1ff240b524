// SPDX-License-Identifier: GPL-2.0

//! MADs: any bytes, or a header that an agent listens to, and any bytes behind.

use arbitrary::Arbitrary;
use ib_fabric::Mad;

/// The bytes of a MAD. What is left out is 0.
#[derive(Arbitrary, Debug)]
pub(crate) enum Bytes<'a> {
    Any(&'a [u8]),
    /// Class, method, attribute, modifier, hop pointer, hop count, a path, and the data.
    Likely(u8, u8, u8, u32, u8, u8, [u8; 4], &'a [u8]),
}

impl Bytes<'_> {
    pub(crate) fn mad(&self) -> Mad {
        let mut mad = [0; 256];
        match *self {
            Bytes::Any(bytes) => put(&mut mad, bytes),
            Bytes::Likely(class, method, attribute, modifier, pointer, count, path, data) => {
                let class = [0x01, 0x81, 0x04][usize::from(class) % 3];
                let method = [0x01, 0x02, 0x07, 0x81][usize::from(method) % 4];
                put(&mut mad, &[1, class, 1, method]);
                put(&mut mad[6..8], &[pointer % 8, count % 8]);
                put(&mut mad[16..18], &[0, 0x10 + attribute % 0x10]);
                put(&mut mad[20..24], &modifier.to_be_bytes());
                if class == 0x81 {
                    mad[32..36].fill(0xff);
                    put(&mut mad[129..], &path);
                    put(&mut mad[193..], &path);
                }
                put(&mut mad[64..128], data);
            }
        }
        mad
    }
}

/// Puts bytes into a place, as far as there is room.
fn put(place: &mut [u8], bytes: &[u8]) {
    for (to, from) in place.iter_mut().zip(bytes) {
        *to = *from;
    }
}
