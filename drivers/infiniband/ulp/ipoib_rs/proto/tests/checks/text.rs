// SPDX-License-Identifier: GPL-2.0

//! Checks of texts that administrators write to files of an interface and to parameters of the module. The fuzz targets in
//! `tests/fuzz` use them as well.

use ipoib_proto::text::{child_name, number, Selection};

/// Checks that a number is read as C's `strtoul` with base 0 reads it, except that a sign is refused.
pub(crate) fn is_a_number(text: &[u8]) {
    let found = number(text);
    let trimmed = String::from_utf8_lossy(text.trim_ascii()).to_ascii_lowercase();
    let (digits, radix) = match trimmed.strip_prefix("0x") {
        Some(digits) => (digits, 16),
        None if trimmed.len() > 1 && trimmed.starts_with('0') => (&trimmed[1..], 8),
        None => (&trimmed[..], 10),
    };
    let value = digits.chars().try_fold(0u32, |value, digit| {
        value
            .checked_mul(radix)?
            .checked_add(digit.to_digit(radix)?)
    });
    assert_eq!(found, value.filter(|_| !digits.is_empty()), "{trimmed:?}");
}

/// Checks that a list of ports has the ports that it names, and no others.
pub(crate) fn is_a_selection(text: &[u8]) {
    let Some(selection) = Selection::parse(text) else {
        return;
    };
    let Selection::List(list) = selection else {
        assert_eq!(selection.has(b"any", 1, true), selection == Selection::All);
        assert!(!selection.has(b"any", 1, false));
        return;
    };
    assert_eq!(Selection::parse(list), Some(selection));
    for item in list.split(|byte| *byte == b',') {
        let at = item.iter().rposition(|byte| *byte == b':').unwrap();
        let port: u32 = String::from_utf8_lossy(&item[at + 1..]).parse().unwrap();
        assert!(port > 0 && selection.has(&item[..at], port, false));
        assert!(!selection.has(&[&item[..at], b","].concat(), port, true));
        assert!(!selection.has(&item[..at], 0, true));
    }
}

/// Checks that the name of a child has room in an interface's, and tells the P_Key.
pub(crate) fn is_a_name(parent: &[u8], pkey: u16) {
    let name = child_name(parent, pkey);
    let front = &parent[..parent.len().min(10)];
    let expected = [front, format!(".{pkey:04x}").as_bytes()].concat();
    assert_eq!(name[..expected.len()], expected);
    assert!(name[expected.len()..].iter().all(|byte| *byte == 0));
    assert_eq!(name[15], 0);
}
