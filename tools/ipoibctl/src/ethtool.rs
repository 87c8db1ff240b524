// SPDX-License-Identifier: GPL-2.0

//! Counters, ring sizes and offloads, by the ioctl SIOCETHTOOL: ethtool's netlink family has no counters of drivers.

use crate::facts::Ring;
use crate::sys;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::io::Error;
use std::os::fd::{AsRawFd, OwnedFd};

const SIOCETHTOOL: libc::c_ulong = 0x8946;
const GDRVINFO: u32 = 0x03;
const GCOALESCE: u32 = 0x0e;
const SCOALESCE: u32 = 0x0f;
const GRINGPARAM: u32 = 0x10;
const GSTRINGS: u32 = 0x1b;
const GSTATS: u32 = 0x1d;
const GGSO: u32 = 0x23;
const SGSO: u32 = 0x24;
const GTSO: u32 = 0x1e;
const GGRO: u32 = 0x2b;
const GSSET_INFO: u32 = 0x37;
/// The set of the names of counters.
const STATS: u32 = 1;
/// Length of a name.
const NAME: usize = 32;
/// More counters than any driver has.
const MOST: usize = 1 << 16;

/// A socket that takes requests about an interface.
pub(crate) struct Ethtool {
    socket: OwnedFd,
    name: [libc::c_char; libc::IFNAMSIZ],
}

impl Ethtool {
    /// For the interface `name`.
    pub(crate) fn new(name: &str) -> Result<Ethtool> {
        ensure!(
            name.len() < libc::IFNAMSIZ,
            "{name}: too long for an interface"
        );
        let mut bytes = [0; libc::IFNAMSIZ];
        for (to, from) in bytes.iter_mut().zip(name.bytes()) {
            *to = libc::c_char::from_ne_bytes([from]);
        }
        let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
        Ok(Ethtool {
            socket,
            name: bytes,
        })
    }

    /// Makes a request. `words` begins with the command, and gets the answer.
    ///
    /// # Safety
    ///
    /// `words` must have room for all of the answer: the structure of the command, and as many entries behind it as it
    /// says itself, which must not be none.
    unsafe fn ask(&self, words: &mut [u32]) -> Result<()> {
        // SAFETY: All zeroes is a valid `ifreq`.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_name = self.name;
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: The kernel reads and writes `request`, and what `words` has room for by this function's requirements.
        let result =
            unsafe { libc::ioctl(self.socket.as_raw_fd(), SIOCETHTOOL as _, &raw mut request) };
        if result != 0 {
            return Err(Error::last_os_error().into());
        }
        Ok(())
    }

    /// A request whose answer is `COUNT` words behind the command.
    ///
    /// # Safety
    ///
    /// The structure of `command` must have no more than that.
    unsafe fn words<const COUNT: usize>(&self, command: u32) -> Result<[u32; COUNT]> {
        let mut words = vec![0; COUNT + 1];
        words[0] = command;
        // SAFETY: There is room by this function's requirements.
        unsafe { self.ask(&mut words)? };
        words[1..].try_into().context("ethtool")
    }

    /// The name of the driver.
    pub(crate) fn driver(&self) -> Result<String> {
        // SAFETY: `struct ethtool_drvinfo` has 196 bytes.
        let words = unsafe { self.words::<48>(GDRVINFO)? };
        Ok(text(&words[..NAME / 4]))
    }

    /// Sizes of the rings.
    pub(crate) fn ring(&self) -> Result<Ring> {
        // SAFETY: `struct ethtool_ringparam` has 9 words.
        let [rx_max, _, _, tx_max, rx, _, _, tx] = unsafe { self.words(GRINGPARAM)? };
        Ok(Ring {
            rx,
            rx_max,
            tx,
            tx_max,
        })
    }

    /// Microseconds and frames after which the device reports what it received.
    pub(crate) fn moderation(&self) -> Result<(u32, u32)> {
        // SAFETY: `struct ethtool_coalesce` has 23 words.
        let words = unsafe { self.words::<22>(GCOALESCE)? };
        // rx_coalesce_usecs and rx_max_coalesced_frames.
        Ok((words[0], words[1]))
    }

    /// Sets after how many microseconds and frames the device reports what it received.
    ///
    /// # Errors
    ///
    /// The kernel's own, such as EOPNOTSUPP if the device cannot do that.
    pub(crate) fn set_moderation(&self, usecs: u32, frames: u32) -> Result<()> {
        // The other 20 are not for this driver.
        let mut words = [0; 23];
        words[..3].copy_from_slice(&[SCOALESCE, usecs, frames]);
        // SAFETY: `struct ethtool_coalesce` has 23 words.
        unsafe { self.ask(&mut words) }
    }

    /// Sets whether segmentation is left to the interface.
    ///
    /// # Errors
    ///
    /// The kernel's own.
    pub(crate) fn set_gso(&self, on: bool) -> Result<()> {
        // SAFETY: `struct ethtool_value` has two words.
        unsafe { self.ask(&mut [SGSO, on.into()]) }
    }

    /// Whether segmentation is left to the interface, and whether segments are put together again.
    pub(crate) fn offloads(&self) -> Result<(bool, bool)> {
        // SAFETY: `struct ethtool_value` has two words.
        let ([gso], [gro]) = unsafe { (self.words(GGSO)?, self.words(GGRO)?) };
        Ok((gso != 0, gro != 0))
    }

    /// Whether TCP leaves segmentation to the device.
    pub(crate) fn tso(&self) -> Result<bool> {
        // SAFETY: `struct ethtool_value` has two words.
        let [tso] = unsafe { self.words(GTSO)? };
        Ok(tso != 0)
    }

    /// The driver's counters.
    pub(crate) fn counters(&self) -> Result<BTreeMap<String, u64>> {
        // Command, reserved, a mask of 64 bits, and a count for each bit of the mask.
        let mut info = [GSSET_INFO, 0, 1 << STATS, 0, 0];
        // SAFETY: There is room for the structure and one count.
        unsafe { self.ask(&mut info)? };
        if info[2] == 0 || info[4] == 0 {
            return Ok(BTreeMap::new());
        }
        let count = usize::try_from(info[4])?;
        ensure!(count <= MOST, "{count} counters");
        let number = u32::try_from(count)?;
        // Command, set, length, names. The kernel says again how many there are, and gives none if it is not that.
        let mut names = vec![0; 3 + count * NAME / 4];
        names[..3].copy_from_slice(&[GSTRINGS, STATS, number]);
        // SAFETY: There is room for as many names as it says.
        unsafe { self.ask(&mut names)? };
        // Command, length, values of 64 bits.
        let mut values = vec![0; 2 + count * 2];
        values[..2].copy_from_slice(&[GSTATS, number]);
        // SAFETY: There is room for as many values as it says, which the kernel compares with what it has.
        unsafe { self.ask(&mut values)? };
        let names = names[3..].chunks_exact(NAME / 4).map(text);
        let values = values[2..].chunks_exact(2).map(|pair| {
            let bytes: Vec<u8> = pair.iter().flat_map(|word| word.to_ne_bytes()).collect();
            bytes.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
        });
        names
            .zip(values)
            .map(|(name, value)| Some((name, value?)))
            .collect::<Option<_>>()
            .context("counters")
    }
}

/// The text in words, up to its first NUL.
fn text(words: &[u32]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_errors() {
        assert!(Ethtool::new("a name that is too long").is_err());
        let nowhere = Ethtool::new("no-such-link").expect("a socket");
        assert!(nowhere.counters().is_err() && nowhere.driver().is_err());
    }

    #[test]
    fn the_loopback_interface_answers() {
        let lo = Ethtool::new("lo").expect("a socket");
        lo.offloads().expect("offloads");
    }

    #[test]
    fn text_ends_at_nul() {
        assert_eq!(
            text(&[u32::from_ne_bytes(*b"ib_i"), u32::from_ne_bytes(*b"p\0xy")]),
            "ib_ip"
        );
    }
}
