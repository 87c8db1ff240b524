// SPDX-License-Identifier: GPL-2.0

//! Checks of the rules of packet filters, as other programs list them.

use super::{Answer, Kind, Packet, Rules, Table, Way};
use std::net::IpAddr;

/// Checks that a packet of each kind gets an answer, which names a rule that there is if one drops it.
pub fn filter(nft: &str, iptables: &str, ip6tables: &str) {
    let rules = Rules::read(nft, iptables, ip6tables);
    assert_eq!(Rules::read(nft, iptables, ip6tables), rules);
    for own in ["192.0.2.1", "fe80::1"] {
        let own: IpAddr = own.parse().expect("an address");
        for kind in [Kind::Roce, Kind::Solicitation, Kind::Advertisement] {
            for (way, multicast) in [(Way::In, false), (Way::Out, true)] {
                judged(
                    &rules,
                    &Packet {
                        kind,
                        way,
                        multicast,
                        own,
                        interface: "eth0",
                        master: Some("br0"),
                        bridge: multicast,
                    },
                );
            }
        }
    }
}

fn judged(rules: &Rules, packet: &Packet<'_>) {
    let (Answer::Dropped(culprit) | Answer::Unknown(culprit)) = rules.judge(packet) else {
        return;
    };
    let names = |table: &Table| {
        let base = table
            .chains
            .get(&culprit.base)
            .and_then(|chain| chain.base.as_ref());
        table.name == culprit.table
            && table.chains.contains_key(&culprit.chain)
            && base.is_some_and(|base| base.hook == culprit.hook)
    };
    assert!(rules.tables.iter().any(names), "{culprit:?}");
}
