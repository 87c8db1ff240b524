// SPDX-License-Identifier: GPL-2.0

//! Texts that administrators write: numbers, and which ports get an interface by themselves.

/// Reads a number as C does: decimal, hexadecimal behind `0x`, octal behind `0`; with white space around it.
pub fn number(text: &[u8]) -> Option<u32> {
    let text = text.trim_ascii();
    let (digits, radix) = match text {
        [b'0', b'x' | b'X', digits @ ..] => (digits, 16),
        [b'0', digits @ ..] if !digits.is_empty() => (digits, 8),
        digits => (digits, 10),
    };
    // `from_str_radix` would take a sign.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    u32::from_str_radix(core::str::from_utf8(digits).ok()?, radix).ok()
}

/// The name of a P_Key child: the first ten bytes of its parent's, a dot, and the P_Key as four hexadecimal digits.
/// A zero ends it.
pub fn child_name(parent: &[u8], pkey: u16) -> [u8; 16] {
    let mut name = [0; 16];
    let [a, b] = pkey.to_be_bytes();
    let digit = |nibble: u8| match nibble {
        0..=9 => b'0'.wrapping_add(nibble),
        _ => b'a'.wrapping_add(nibble.wrapping_sub(10)),
    };
    let key = [
        b'.',
        digit(a >> 4),
        digit(a & 15),
        digit(b >> 4),
        digit(b & 15),
    ];
    let text = parent.iter().take(10).chain(&key);
    for (to, from) in name.iter_mut().zip(text) {
        *to = *from;
    }
    name
}

/// The ports that get an interface by themselves, as the module parameter `ports` names them: `none`, `all` for each
/// InfiniBand port, or a list such as `mlx5_0:1,hwsim0:2`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Selection<'a> {
    /// None.
    None,
    /// All ports of InfiniBand.
    All,
    /// Those in the list, which has at least one, of whatever link layer.
    List(&'a [u8]),
}

/// A port of the list: the name of its device, and its number.
fn port(item: &[u8]) -> Option<(&[u8], u32)> {
    let at = item.iter().rposition(|byte| *byte == b':')?;
    let (device, rest) = item.split_at_checked(at)?;
    let digits = rest.get(1..)?;
    let plain = digits.iter().all(u8::is_ascii_digit);
    let number = core::str::from_utf8(digits).ok()?.parse().ok()?;
    (plain && number > 0 && !device.is_empty()).then_some((device, number))
}

impl<'a> Selection<'a> {
    /// Reads a parameter; `None` if it is malformed.
    pub fn parse(text: &'a [u8]) -> Option<Self> {
        let text = text.trim_ascii();
        match text {
            b"none" => Some(Self::None),
            b"all" => Some(Self::All),
            list => list
                .split(|byte| *byte == b',')
                .all(|item| port(item).is_some())
                .then_some(Self::List(list)),
        }
    }

    /// Returns true if port `number` of `device` gets an interface.
    pub fn has(&self, device: &[u8], number: u32, is_infiniband: bool) -> bool {
        match self {
            Self::None => false,
            Self::All => is_infiniband,
            Self::List(list) => list
                .split(|byte| *byte == b',')
                .any(|item| port(item) == Some((device, number))),
        }
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_text))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::{child_name, number, Selection};

    #[test]
    fn numbers_are_read_as_in_c() {
        for (text, value) in [
            ("0", 0),
            ("32769", 32769),
            ("0x8001", 0x8001),
            ("0XFFFF", 0xffff),
            ("0100", 64),
            (" 7\n", 7),
            ("4294967295", u32::MAX),
        ] {
            assert_eq!(number(text.as_bytes()), Some(value));
        }
        for text in [
            "",
            " ",
            "0x",
            "x",
            "-1",
            "+1",
            "0x+1",
            "8f",
            "09",
            "1 2",
            "4294967296",
            "0x1ffffffff",
            "1,",
        ] {
            assert_eq!(number(text.as_bytes()), None);
        }
        assert_eq!(number(b"\xff"), None);
    }

    #[test]
    fn a_child_is_named_after_its_parent_and_p_key() {
        assert_eq!(&child_name(b"ib0", 0x8001), b"ib0.8001\0\0\0\0\0\0\0\0");
        assert_eq!(&child_name(b"ib12", 0xfa9), b"ib12.0fa9\0\0\0\0\0\0\0");
        assert_eq!(&child_name(b"ibp129s0f0np0", 0xffff), b"ibp129s0f0.ffff\0");
    }

    #[test]
    fn words_stand_for_all_ports_or_none() {
        assert_eq!(Selection::parse(b"none"), Some(Selection::None));
        assert_eq!(Selection::parse(b"all\n"), Some(Selection::All));
        assert!(Selection::All.has(b"hwsim0", 1, true));
        assert!(!Selection::All.has(b"rxe0", 1, false));
        assert!(!Selection::None.has(b"hwsim0", 1, true));
    }

    #[test]
    fn a_list_names_its_ports() {
        let list = Selection::parse(b"mlx5_0:1,hwsim0:2,a:b:3").unwrap();
        for (device, number) in [("mlx5_0", 1), ("hwsim0", 2), ("a:b", 3)] {
            assert!(list.has(device.as_bytes(), number, true));
            assert!(list.has(device.as_bytes(), number, false));
        }
        for (device, number) in [
            ("mlx5_0", 2),
            ("hwsim0", 1),
            ("mlx5_", 1),
            ("mlx5_01", 1),
            ("a", 3),
        ] {
            assert!(!list.has(device.as_bytes(), number, true));
        }
    }

    #[test]
    fn what_names_no_port_is_malformed() {
        for text in [
            "",
            ",",
            "mlx5_0",
            "mlx5_0:",
            ":1",
            "mlx5_0:0",
            "mlx5_0:-1",
            "mlx5_0:+1",
            "mlx5_0:x",
            "mlx5_0:1,",
            ",mlx5_0:1",
            "mlx5_0:1,all",
            "mlx5_0:4294967296",
            "ALL",
            "all,none",
        ] {
            assert_eq!(Selection::parse(text.as_bytes()), None);
        }
    }
}
