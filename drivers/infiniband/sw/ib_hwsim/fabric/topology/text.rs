// SPDX-License-Identifier: GPL-2.0

//! The texts of a topology: each is parsed from what a user types, and printed so that it can be
//! parsed again. White space around a text does not count.

use core::fmt::{self, Display, Formatter};

use crate::addr::Guid;
use crate::mtu::Mtu;
use crate::text::{decimal, words};

/// The longest name, in bytes.
pub const MAX_NAME: usize = 32;

/// Parses a GUID: `0x` and up to 16 hexadecimal digits. Zero is none.
pub fn guid(text: &str) -> Option<Guid> {
    let digits = text.trim_ascii().strip_prefix("0x")?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let guid = Guid::new(u64::from_str_radix(digits, 16).ok()?);
    (guid != Guid::NONE).then_some(guid)
}

/// Parses an MTU in bytes.
pub fn mtu(text: &str) -> Option<Mtu> {
    let bytes = decimal(text)?;
    (1..=5)
        .filter_map(Mtu::from_code)
        .find(|mtu| u64::from(mtu.bytes()) == bytes)
}

/// A name of a fabric, a node or a cable.
///
/// It begins with a letter or a digit; letters, digits, `-`, `_` and `.` follow, all of ASCII. It has 1 to
/// [`MAX_NAME`] bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Name {
    /// Zero behind the name.
    bytes: [u8; MAX_NAME],
    len: u8,
}

impl Name {
    /// Makes a name from a text, which is taken as it is; `None` if it is not a valid one.
    pub fn new(text: &str) -> Option<Name> {
        let all = text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte));
        if !all || !text.starts_with(|first: char| first.is_ascii_alphanumeric()) {
            return None;
        }
        let mut bytes = [0; MAX_NAME];
        bytes
            .get_mut(..text.len())?
            .copy_from_slice(text.as_bytes());
        Some(Name {
            bytes,
            len: u8::try_from(text.len()).ok()?,
        })
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        let bytes = self.bytes.get(..usize::from(self.len)).unwrap_or_default();
        core::str::from_utf8(bytes).unwrap_or_default()
    }
}

impl Display for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// An end of a cable: a port of a node. As a text: the name, and behind a slash the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// The name of the node.
    pub node: Name,
    /// The number of the port, 1 or more.
    pub port: u8,
}

impl End {
    /// Parses an end. Without a slash, port 1 is meant.
    pub fn parse(text: &str) -> Option<End> {
        let (node, port) = match text.split_once('/') {
            Some((node, port)) => (node, u8::try_from(decimal(port)?).ok()?),
            None => (text, 1),
        };
        let node = Name::new(node)?;
        (port != 0).then_some(End { node, port })
    }
}

impl Display for End {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.node, self.port)
    }
}

/// The longest name of a network device, in bytes.
const MAX_DEVICE: usize = 15;

/// A name of a network device. As a text, `dev:` stands before it.
///
/// It has 1 to 15 bytes of printable ASCII, without a slash or a colon, and is neither `.` nor `..`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Device {
    /// Zero behind the name.
    bytes: [u8; MAX_DEVICE + 1],
}

impl Device {
    /// Prefix of the name.
    const PREFIX: &'static str = "dev:";

    /// Parses a device at the end of a cable.
    pub fn parse(text: &str) -> Option<Device> {
        Device::named(text.strip_prefix(Device::PREFIX)?)
    }

    /// Makes a device of its name alone.
    pub fn named(name: &str) -> Option<Device> {
        let valid = |byte: u8| byte.is_ascii_graphic() && byte != b'/' && byte != b':';
        if matches!(name, "" | "." | "..") || !name.bytes().all(valid) {
            return None;
        }
        let mut bytes = [0; MAX_DEVICE + 1];
        let place = bytes.get_mut(..MAX_DEVICE)?.get_mut(..name.len())?;
        place.copy_from_slice(name.as_bytes());
        Some(Device { bytes })
    }

    /// Returns the name, with a zero behind it.
    pub const fn bytes(&self) -> &[u8; MAX_DEVICE + 1] {
        &self.bytes
    }

    /// Returns the name.
    pub fn as_str(&self) -> &str {
        let text = core::str::from_utf8(&self.bytes).unwrap_or_default();
        text.trim_end_matches('\0')
    }
}

impl Display for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", Device::PREFIX, self.as_str())
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// The second end of a cable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FarEnd {
    /// A port.
    Port(End),
    /// A network device, through which the cable leads to another kernel.
    Device(Device),
}

impl Display for FarEnd {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            FarEnd::Port(end) => write!(f, "{end}"),
            FarEnd::Device(device) => write!(f, "{device}"),
        }
    }
}

/// The two ends of a cable. As a text: both, and white space between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ends(pub End, pub FarEnd);

impl Ends {
    /// Parses two ends.
    pub fn parse(text: &str) -> Option<Ends> {
        let mut words = text.split_ascii_whitespace();
        let near = End::parse(words.next()?)?;
        let word = words.next()?;
        let far = match Device::parse(word) {
            Some(device) => FarEnd::Device(device),
            None => FarEnd::Port(End::parse(word)?),
        };
        words.next().is_none().then_some(Ends(near, far))
    }

    /// Returns those that are ports.
    pub fn ports(&self) -> impl Iterator<Item = End> + Clone {
        let second = match self.1 {
            FarEnd::Port(end) => Some(end),
            FarEnd::Device(_) => None,
        };
        [Some(self.0), second].into_iter().flatten()
    }
}

impl Display for Ends {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.0, self.1)
    }
}

words! {
    /// The most lanes that a cable has.
    pub enum Width {
        /// One lane.
        X1 = "1x",
        /// Four lanes; one alone can be used as well.
        X4 = "4x",
    }
}

impl Width {
    /// Returns the widths that the cable can be used with, as a mask of section 14.2.5.6.
    pub const fn mask(self) -> u8 {
        match self {
            Width::X1 => 0b01,
            Width::X4 => 0b11,
        }
    }
}

words! {
    /// The highest speed of a cable's lane.
    pub enum Speed {
        /// 2.5 Gbit/s.
        Sdr = "sdr",
        /// 5 Gbit/s, or less.
        Ddr = "ddr",
        /// 10 Gbit/s, or less.
        Qdr = "qdr",
    }
}

impl Speed {
    /// Returns the speeds that the cable can be used with, as a mask of section 14.2.5.6.
    pub const fn mask(self) -> u8 {
        match self {
            Speed::Sdr => 0b001,
            Speed::Ddr => 0b011,
            Speed::Qdr => 0b111,
        }
    }
}
