// SPDX-License-Identifier: GPL-2.0

//! A host on which all is well, which tests and checks change.

use crate::facts::{Address, Facts, Gid, Interface, Link, Module, Neighbour, Port, Ring};
use crate::table::Row;

fn link(index: u32, name: &str, address: &str, kind: &str) -> Link {
    Link {
        index,
        name: name.into(),
        kind: kind.into(),
        up: true,
        carrier: true,
        arp: true,
        multicast: true,
        mtu: 4092,
        qdisc: "fq_codel".into(),
        addresses: vec![Address {
            ip: address.parse().expect("an address"),
            prefix: 24,
            duplicate: false,
        }],
        ..Link::default()
    }
}

fn port(roce: bool) -> Port {
    Port {
        device: "dev0".into(),
        number: 1,
        link_layer: if roce { "Ethernet" } else { "InfiniBand" }.into(),
        software: true,
        state: "ACTIVE".into(),
        physical: "LinkUp".into(),
        rate: "100 Gb/sec (4X EDR)".into(),
        lid: if roce { 0 } else { 3 },
        sm_lid: if roce { 0 } else { 1 },
        pkeys: vec![0xffff],
        gids: vec![Gid {
            gid: "fe80::1".into(),
            kind: if roce { "RoCE v2" } else { "IB/RoCE v1" }.into(),
            netdev: if roce { "eth0" } else { "" }.into(),
        }],
    }
}

/// A host with one interface and one peer.
pub(crate) fn healthy(roce: bool) -> Facts {
    let peer = Neighbour {
        ip: "10.1.0.2".parse().expect("an address"),
        state: "reachable".into(),
        flags: 0xb0,
        gid: "fe80::2".into(),
        qpn: 0x12,
    };
    let tables = [
        (
            "paths",
            Row::of(&[
                ("gid", "fe80::2"),
                ("qpn", "0x000012"),
                ("state", "ready"),
                ("waiting", "0"),
            ]),
        ),
        (
            "groups",
            Row::of(&[
                ("mgid", "ff12:401b:ffff::ffff:ffff"),
                ("state", "joined"),
                ("wanted", "1"),
            ]),
        ),
        (
            "sources",
            Row::of(&[("gid", "fe80::2"), ("qpn", "0x000012")]),
        ),
        (
            "connections",
            Row::of(&[("gid", "fe80::2"), ("qpn", "0x000012"), ("state", "up")]),
        ),
        ("device", Row::of(&[("device", "dev0"), ("buffers", "512")])),
    ];
    let ib0 = Interface {
        name: "ib0".into(),
        ours: true,
        mode: "connected".into(),
        pkey: 0xffff,
        gid: "fe80::1".into(),
        qpn: 0x11,
        device: "dev0".into(),
        port: 1,
        counters: [
            ("rx_frames", 5000),
            ("tx_frames", 5000),
            ("rx_seq_in_order", 5000),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into(),
        ring: Some(Ring {
            rx: 512,
            rx_max: 2048,
            tx: 512,
            tx_max: 2048,
        }),
        rx_frames: 1,
        gso: true,
        gro: true,
        neighbours: vec![peer],
        tables: tables
            .map(|(name, row)| (name.to_owned(), vec![row]))
            .into(),
        ..Interface::default()
    };
    let mut ib = link(3, "ib0", "10.1.0.1", "ipoib_rs");
    ib.below = roce.then_some(2);
    let mut eth = link(2, "eth0", "192.0.2.1", "");
    eth.mtu = 4400;
    let own = link(2, "eth0", "fe80::1", "").addresses;
    eth.addresses.extend(own);
    let sysctls = [
        ("net/ipv4/tcp_rmem", "4096 131072 6291456"),
        ("net/ipv4/tcp_wmem", "4096 16384 4194304"),
        ("net/ipv4/tcp_sack", "1"),
        ("net/ipv4/tcp_window_scaling", "1"),
        ("net/ipv4/ip_no_pmtu_disc", "0"),
        ("net/ipv4/neigh/default/gc_thresh3", "1024"),
        ("net/ipv4/icmp_echo_ignore_all", "0"),
        ("net/ipv6/conf/eth0/disable_ipv6", "0"),
        ("net/ipv6/conf/ib0/disable_ipv6", "0"),
        ("net/ipv4/conf/ib0/arp_ignore", "0"),
        ("net/ipv4/conf/ib0/arp_filter", "0"),
        ("net/ipv4/conf/all/arp_ignore", "0"),
        ("net/ipv4/conf/all/arp_filter", "0"),
        ("net/ipoib/ib0/reorder_window", "32"),
        ("net/ipoib/ib0/reorder_timeout_us", "5000"),
        ("net/ipoib/ib0/extensions", "1"),
        ("net/ipoib/ib0/napi_budget", "64"),
        ("net/ipoib/ib0/icrc", "1"),
        ("net/ipoib/ib0/large_frames", "1"),
        ("net/ipoib/ib0/rc_max_connections", "64"),
    ];
    Facts {
        module: Module {
            release: "7.3.4".into(),
            loaded: true,
            installed: true,
            ..Module::default()
        },
        ports: vec![port(roce)],
        links: vec![eth, ib],
        interfaces: vec![ib0],
        sysctls: sysctls
            .map(|(name, value)| (name.into(), value.into()))
            .into(),
        ..Facts::default()
    }
}
