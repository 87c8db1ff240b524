// SPDX-License-Identifier: GPL-2.0

//! Rules of packet filters, as ipoibctl reads what nft, iptables and ip6tables list: three texts with a zero between them.

#![no_main]

use ipoibctl::checks;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let mut texts = text.split('\0');
    let mut next = || texts.next().unwrap_or_default();
    checks::filter(next(), next(), next());
});
