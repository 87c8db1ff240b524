// SPDX-License-Identifier: GPL-2.0

//! Rules as the programs of distributions write them, and each part of a rule by itself.

use super::{Answer, Kind, Packet, Rules, Way, checks};

const GID: &str = "fe80::5054:ff:fe00:1";

/// Answers for packets that come: to the host alone, and to a group.
fn incoming(nft: &str, ip6tables: &str) -> [&'static str; 2] {
    checks::filter(nft, "", ip6tables);
    [false, true].map(|multicast| answer(&Rules::read(nft, "", ip6tables), Way::In, multicast, GID))
}

fn answer(rules: &Rules, way: Way, multicast: bool, own: &str) -> &'static str {
    let packet = Packet {
        kind: Kind::Roce,
        way,
        multicast,
        own: own.parse().expect("an address"),
        interface: "eth0",
        master: None,
        bridge: false,
    };
    match rules.judge(&packet) {
        Answer::Passes => "passes",
        Answer::Unknown(_) => "unknown",
        Answer::Dropped(_) => "dropped",
    }
}

const PASS: [&str; 2] = ["passes"; 2];
const DROP: [&str; 2] = ["dropped"; 2];
const DOUBT: [&str; 2] = ["unknown"; 2];

/// A base chain for input with these rules.
fn input(rules: &str) -> String {
    format!(
        "table inet f {{\n\tset ports {{\n\t\ttype inet_service\n\t\tflags interval\n\t\telements = {{ 22, 4000-5000,\n\t\t\t     9000 }}\n\t}}\n\
         \tset none {{\n\t\ttype inet_service\n\t}}\n\
         \tmap ways {{\n\t\ttype ifname : verdict\n\t\telements = {{ \"lo\" : accept, \"eth0\" : jump lan }}\n\t}}\n\
         \tchain lan {{\n\t\tudp dport 4791 drop\n\t}}\n\
         \tchain in {{\n\t\ttype filter hook input priority filter; policy accept;\n{rules}\n\t}}\n}}\n"
    )
}

#[test]
fn each_part_of_a_rule() {
    for (rules, expected) in [
        ("drop", DROP),
        ("counter packets 5 bytes 300 drop", DROP),
        ("reject with icmpx admin-prohibited", DROP),
        ("reject with icmpv6 admin-prohibited", DROP),
        ("reject with icmp port-unreachable", PASS),
        ("reject with tcp reset", PASS),
        ("log prefix \"accept \" level info drop", DROP),
        ("comment \"drop\" accept\ndrop", PASS),
        (
            "udp dport 4791 counter packets 0 bytes 0 drop comment \"RoCE\"",
            DROP,
        ),
        ("udp dport != 4791 drop", PASS),
        ("udp dport != 22 drop", DROP),
        ("udp dport { 53, 4791 } accept\ndrop", PASS),
        ("udp dport 4000-5000 drop", DROP),
        ("udp dport @ports drop", DROP),
        ("udp dport @none drop", PASS),
        ("udp dport @gone drop", DOUBT),
        ("th dport 4791 drop", DROP),
        ("@th,16,16 4791 drop", DROP),
        ("@th,16,16 0x12b7 drop", DROP),
        ("udp sport 53 accept\ndrop", DROP),
        ("udp sport 1024-65535 accept\ndrop", PASS),
        ("udp sport 50000 accept\ndrop", DOUBT),
        ("tcp dport 22 accept\ndrop", DROP),
        ("tcp flags syn / fin,syn,rst,ack drop", PASS),
        (
            "icmpv6 type { nd-neighbor-solicit, nd-router-advert } drop",
            PASS,
        ),
        ("meta l4proto { tcp, udp } th dport 4791 drop", DROP),
        ("meta l4proto { icmp, ipv6-icmp } accept\ndrop", DROP),
        ("meta l4proto 17 drop", DROP),
        ("meta l4proto != udp accept\ndrop", DROP),
        ("ip6 nexthdr udp drop", DROP),
        ("ip protocol udp drop", PASS),
        ("meta nfproto ipv4 drop", PASS),
        ("meta nfproto ipv6 drop", DROP),
        ("meta protocol ip6 drop", DROP),
        ("ip saddr 10.0.0.0/8 drop", PASS),
        ("ip6 saddr fe80::/10 accept\ndrop", PASS),
        ("ip6 saddr fe80::5054:ff:fe00:2 accept\ndrop", DOUBT),
        ("ip6 saddr { fd00::/8, 2000::/3 } accept\ndrop", DROP),
        ("ip6 daddr ff00::/8 drop", ["passes", "dropped"]),
        (
            "ip6 daddr fe80::5054:ff:fe00:1 accept\ndrop",
            ["passes", "dropped"],
        ),
        ("meta pkttype multicast drop", ["passes", "dropped"]),
        ("meta pkttype host accept\ndrop", ["passes", "dropped"]),
        ("fib daddr type local accept\ndrop", ["passes", "dropped"]),
        ("fib daddr type { local, multicast } accept\ndrop", PASS),
        (
            "meta nfproto ipv6 fib saddr . mark . iif oif missing drop",
            PASS,
        ),
        ("fib saddr . iif oif 0 drop", PASS),
        ("iifname \"eth0\" drop", DROP),
        ("iif \"lo\" accept\ndrop", DROP),
        ("iifname != \"lo\" drop", DROP),
        ("iifname \"eth*\" drop", DROP),
        ("iifname { \"eth1\", \"wlan0\" } drop", PASS),
        ("oifname \"eth0\" drop", PASS),
        ("iifname . udp dport { \"eth0\" . 4791 } drop", DROP),
        (
            "iifname . udp dport { \"eth1\" . 4791, \"eth0\" . 53 } drop",
            PASS,
        ),
        ("ct state established,related accept\ndrop", DROP),
        ("ct state { established, related, new } accept\ndrop", PASS),
        ("ct state invalid drop", PASS),
        ("ct state new udp dport 4791 drop", DROP),
        (
            "ct state vmap { established : accept, related : accept, invalid : drop }\nreject",
            DROP,
        ),
        (
            "ct state vmap { invalid : drop, new : accept }\nreject",
            PASS,
        ),
        ("ct status dnat accept\ndrop", DROP),
        ("meta mark & 0x00008000 == 0x00008000 drop", PASS),
        ("meta mark 0x00000001 drop", PASS),
        (
            "ip6 saddr fd00::1 meta mark set 0x00000001\nmeta mark 0x00000001 drop",
            PASS,
        ),
        (
            "udp dport 4791 meta mark set 0x00000001\nmeta mark 0x00000001 drop",
            DOUBT,
        ),
        ("limit rate 10/second burst 5 packets accept\ndrop", DOUBT),
        ("limit rate over 10/second burst 5 packets drop", DOUBT),
        ("udp length > 1000 drop", DOUBT),
        ("meta skuid 0 drop", DOUBT),
        ("queue num 0", DOUBT),
        ("jump lan", DROP),
        ("goto lan", DROP),
        ("jump gone", DOUBT),
        ("return\ndrop", PASS),
        (
            "iifname vmap { \"lo\" : accept, \"eth0\" : jump lan }",
            DROP,
        ),
        ("iifname vmap { \"eth1\" : drop, \"lo\" : drop }", PASS),
        ("iifname vmap @ways", DROP),
        ("udp dport vmap { 4791 : accept, * : drop }", PASS),
        (
            "iifname . udp dport vmap { * : accept, \"eth0\" . 4791 : drop }",
            DROP,
        ),
        (
            "iifname . udp dport vmap { \"eth0\" . 53 : drop, * : accept }\ndrop",
            PASS,
        ),
        ("udp dport vmap { 53 : accept, 0-65535 : drop }", DROP),
        ("add @seen { ip6 saddr timeout 1m } accept\ndrop", PASS),
        ("xt match \"recent\" drop", DOUBT),
        (
            "xt match \"comment\" counter packets 0 bytes 0 xt target \"REJECT\"",
            DROP,
        ),
    ] {
        assert_eq!(incoming(&input(rules), ""), expected, "{rules}");
    }
}

/// Answers for neighbour discovery: for a solicitation, and for an advertisement.
fn discovery(nft: &str, ip6tables: &str) -> [&'static str; 2] {
    let rules = Rules::read(nft, "", ip6tables);
    let kinds = [(Kind::Solicitation, true), (Kind::Advertisement, false)];
    kinds.map(|(kind, multicast)| {
        let packet = Packet {
            kind,
            way: Way::In,
            multicast,
            own: GID.parse().expect("an address"),
            interface: "eth0",
            master: None,
            bridge: false,
        };
        match rules.judge(&packet) {
            Answer::Passes => "passes",
            Answer::Unknown(_) => "unknown",
            Answer::Dropped(_) => "dropped",
        }
    })
}

#[test]
fn neighbour_discovery_is_no_udp() {
    for (rules, expected) in [
        ("udp dport 4791 accept\ndrop", DROP),
        ("th dport 4791 drop", PASS),
        (
            "icmpv6 type nd-neighbor-solicit accept\ndrop",
            ["passes", "dropped"],
        ),
        (
            "icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } accept\ndrop",
            PASS,
        ),
        ("icmpv6 type 135-136 accept\ndrop", PASS),
        ("icmpv6 type echo-request accept\ndrop", DROP),
        ("ip6 nexthdr ipv6-icmp accept\ndrop", PASS),
        ("meta l4proto ipv6-icmp accept\ndrop", PASS),
        ("meta l4proto 58 ip6 hoplimit 255 accept\ndrop", PASS),
        ("icmp type echo-request accept\ndrop", DROP),
        ("ct state new accept\ndrop", DROP),
        ("ct state established,related,untracked accept\ndrop", PASS),
        ("ct state invalid drop", PASS),
        ("ip6 daddr ff02::/16 accept\ndrop", ["passes", "dropped"]),
        (
            "icmpv6 type vmap { nd-neighbor-solicit : accept, nd-neighbor-advert : drop }",
            ["passes", "dropped"],
        ),
    ] {
        assert_eq!(discovery(&input(rules), ""), expected, "{rules}");
    }
    assert_eq!(discovery(&FIREWALLD.replace("PORT", ""), ""), PASS);
    assert_eq!(discovery("", IP6TABLES), PASS);
    let solicited = "-A ufw6-before-input -p ipv6-icmp -m icmp6 --icmpv6-type 135 -m hl --hl-eq 255 -j ACCEPT\nCOMMIT";
    let ufw = UFW.replace("USER", "").replace("COMMIT", solicited);
    assert_eq!(discovery("", &ufw), PASS);
    assert_eq!(
        discovery("", &UFW.replace("USER", "")),
        ["dropped", "passes"]
    );
}

/// The last rule has no end of a line behind it, and a listing may be cut.
#[test]
fn any_text_is_read() {
    let whole = input("iifname vmap { \"lo\" : accept, \"eth0\" : jump lan }\ndrop");
    for end in 0..=whole.len() {
        incoming(&whole[..end], &whole[..end]);
    }
    incoming(
        "}}} { ; , \" # \n : . @ vmap ! set set",
        "-A\n:\n*\n-A INPUT !\n-A INPUT -j\n-A INPUT -p",
    );
    let round = "table inet f {\n chain in {\n type filter hook input priority 0;\n jump a\n }\n chain a {\n jump a\n jump a\n }\n}";
    assert_eq!(incoming(round, ""), DOUBT);
}

const FIREWALLD: &str = "
table inet firewalld { # progname firewalld
	flags owner,persist

	ct helper helper-tftp-udp {
		type \"tftp\" protocol udp
		l3proto inet
	}

	chain mangle_PREROUTING {
		type filter hook prerouting priority mangle + 10; policy accept;
		jump mangle_PREROUTING_ZONES
	}

	chain mangle_PREROUTING_ZONES {
		goto mangle_PRE_public
	}

	chain mangle_PRE_public {
	}

	chain filter_PREROUTING {
		type filter hook prerouting priority filter + 10; policy accept;
		icmpv6 type { nd-router-advert, nd-neighbor-solicit } accept
		meta nfproto ipv6 fib saddr . mark . iif oif missing drop
	}

	chain filter_INPUT {
		type filter hook input priority filter + 10; policy accept;
		ct state { established, related } accept
		ct status dnat accept
		iifname \"lo\" accept
		ct state invalid drop
		jump filter_INPUT_ZONES
		reject with icmpx admin-prohibited
	}

	chain filter_OUTPUT {
		type filter hook output priority filter + 10; policy accept;
		ct state { established, related } accept
		oifname \"lo\" accept
		ip6 daddr { ::/96, ::ffff:0.0.0.0/96, 2002::/24, 2002:a00::/24 } reject with icmpv6 addr-unreachable
	}

	chain filter_INPUT_ZONES {
		iifname \"eth0\" goto filter_IN_public
		goto filter_IN_public
	}

	chain filter_IN_public {
		jump filter_IN_public_deny
		jump filter_IN_public_allow
		meta l4proto { icmp, ipv6-icmp } accept
		reject with icmpx admin-prohibited
	}

	chain filter_IN_public_deny {
	}

	chain filter_IN_public_allow {
		tcp dport 22 accept
		ip6 daddr fe80::/64 udp dport 546 accept
		PORT
	}
}
";

#[test]
fn firewalld() {
    assert_eq!(incoming(&FIREWALLD.replace("PORT", ""), ""), DROP);
    let open = FIREWALLD.replace("PORT", "udp dport 4791 accept");
    assert_eq!(incoming(&open, ""), PASS);
    let trusted = FIREWALLD.replace("goto filter_IN_public\n\t\tgoto", "accept\n\t\tgoto");
    assert_eq!(incoming(&trusted.replace("PORT", ""), ""), PASS);
    // What the host sends passes.
    let rules = Rules::read(FIREWALLD, "", "");
    assert_eq!(answer(&rules, Way::Out, false, GID), "passes");
}

const UFW: &str = "
*filter
:INPUT DROP [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:ufw6-after-input - [0:0]
:ufw6-after-logging-input - [0:0]
:ufw6-before-input - [0:0]
:ufw6-before-logging-input - [0:0]
:ufw6-logging-deny - [0:0]
:ufw6-reject-input - [0:0]
:ufw6-skip-to-policy-input - [0:0]
:ufw6-track-input - [0:0]
:ufw6-user-input - [0:0]
-A INPUT -j ufw6-before-logging-input
-A INPUT -j ufw6-before-input
-A INPUT -j ufw6-after-input
-A INPUT -j ufw6-after-logging-input
-A INPUT -j ufw6-reject-input
-A INPUT -j ufw6-track-input
-A ufw6-after-input -p udp -m udp --dport 137 -j ufw6-skip-to-policy-input
-A ufw6-after-logging-input -m limit --limit 3/min --limit-burst 10 -j LOG --log-prefix \"[UFW BLOCK] \"
-A ufw6-before-input -i lo -j ACCEPT
-A ufw6-before-input -m rt --rt-type 0 -j DROP
-A ufw6-before-input -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A ufw6-before-input -p ipv6-icmp -m icmp6 --icmpv6-type 129 -j ACCEPT
-A ufw6-before-input -m conntrack --ctstate INVALID -j ufw6-logging-deny
-A ufw6-before-input -m conntrack --ctstate INVALID -j DROP
-A ufw6-before-input -s fe80::/10 -p ipv6-icmp -m icmp6 --icmpv6-type 136 -m hl --hl-eq 255 -j ACCEPT
-A ufw6-before-input -s fe80::/10 -d fe80::/10 -p udp -m udp --sport 547 --dport 546 -j ACCEPT
-A ufw6-before-input -d ff02::fb/128 -p udp -m udp --dport 5353 -j ACCEPT
-A ufw6-before-input -j ufw6-user-input
-A ufw6-logging-deny -m conntrack --ctstate INVALID -m limit --limit 3/min --limit-burst 10 -j RETURN
-A ufw6-skip-to-policy-input -j DROP
-A ufw6-user-input -p tcp -m tcp --dport 22 -j ACCEPT
USER
COMMIT
";

#[test]
fn ufw() {
    assert_eq!(incoming("", &UFW.replace("USER", "")), DROP);
    for open in [
        "-A ufw6-user-input -p udp -m udp --dport 4791 -j ACCEPT",
        "-A ufw6-user-input -p udp -m multiport --dports 53,4789:4800 -j ACCEPT",
        "-A ufw6-user-input -i eth0 -j ACCEPT",
        "-A ufw6-user-input -i eth+ -p udp -j ACCEPT",
        "-A ufw6-user-input ! -i lo -s fe80::/10 -j ACCEPT",
    ] {
        assert_eq!(incoming("", &UFW.replace("USER", open)), PASS, "{open}");
    }
    for closed in [
        "-A ufw6-user-input -i eth1 -j ACCEPT",
        "-A ufw6-user-input ! -i eth0 -j ACCEPT",
        "-A ufw6-user-input -p udp -m udp --dport 4791 -j REJECT --reject-with icmp6-port-unreachable",
        "-A ufw6-user-input -m comment --comment \"-j ACCEPT\" -p tcp -j ACCEPT",
    ] {
        assert_eq!(incoming("", &UFW.replace("USER", closed)), DROP, "{closed}");
    }
    for doubt in [
        "-A ufw6-user-input -s fe80::7/128 -j ACCEPT",
        "-A ufw6-user-input -m set --match-set friends src -j ACCEPT",
        "-A ufw6-user-input -m limit --limit 3/min -j ACCEPT",
    ] {
        assert_eq!(incoming("", &UFW.replace("USER", doubt)), DOUBT, "{doubt}");
    }
}

const IP6TABLES: &str = "
# Generated by ip6tables-save v1.8.10 (nf_tables)
*filter
:INPUT ACCEPT [0:0]
:FORWARD ACCEPT [0:0]
:OUTPUT ACCEPT [20:1600]
-A INPUT -m state --state RELATED,ESTABLISHED -j ACCEPT
-A INPUT -p ipv6-icmp -j ACCEPT
-A INPUT -i lo -j ACCEPT
-A INPUT -d fe80::/64 -p udp -m udp --dport 546 -m state --state NEW -j ACCEPT
-A INPUT -p tcp -m state --state NEW -m tcp --dport 22 -j ACCEPT
-A INPUT -j REJECT --reject-with icmp6-adm-prohibited
-A FORWARD -j REJECT --reject-with icmp6-adm-prohibited
COMMIT
";

/// As nft lists the same, with what it has no words for.
const BY_NFT: &str = "
# Warning: table ip6 filter is managed by iptables-nft, do not touch!
table ip6 filter {
	chain INPUT {
		type filter hook input priority filter; policy accept;
		xt match \"state\" counter packets 0 bytes 0 accept
		meta l4proto ipv6-icmp counter packets 0 bytes 0 accept
		iifname \"lo\" counter packets 0 bytes 0 accept
		counter packets 0 bytes 0 xt target \"REJECT\"
	}
}
";

#[test]
fn iptables_of_red_hat() {
    assert_eq!(incoming("", IP6TABLES), DROP);
    assert_eq!(incoming(BY_NFT, IP6TABLES), DROP);
    // Without ip6tables-save, nobody tells what the first rule accepts.
    assert_eq!(incoming(BY_NFT, ""), DOUBT);
    let in_words = BY_NFT.replace("xt match \"state\"", "ct state related,established");
    assert_eq!(incoming(&in_words, ""), DROP);
    let open = IP6TABLES.replace(
        "-p ipv6-icmp",
        "-p udp -m state --state NEW -m udp --dport 4791",
    );
    assert_eq!(incoming("", &open), PASS);
    // Rules for IPv4 are for other packets than those of an IPv6 GID.
    let rules = Rules::read("", IP6TABLES, "");
    assert_eq!(answer(&rules, Way::In, false, GID), "passes");
    assert_eq!(answer(&rules, Way::In, false, "192.0.2.1"), "dropped");
}

#[test]
fn debian_and_other_hand_written_files() {
    let workstation = "
table inet filter {
	chain input {
		type filter hook input priority filter; policy accept;
		iif \"lo\" accept
		ct state established,related accept
		ip6 nexthdr ipv6-icmp icmpv6 type { nd-router-advert, nd-neighbor-solicit, nd-neighbor-advert } accept
		counter packets 12 bytes 960 drop
	}
}
";
    assert_eq!(incoming(workstation, ""), DROP);
    let server = "
table inet filter {
	chain inbound_ipv6 {
		icmpv6 type { nd-neighbor-solicit, nd-router-advert, nd-neighbor-advert } accept
	}
	chain inbound {
		type filter hook input priority filter; policy drop;
		ct state vmap { invalid : drop, established : accept, related : accept }
		iifname \"lo\" accept
		meta protocol vmap { ip : jump inbound_ipv4, ip6 : jump inbound_ipv6 }
		tcp dport { 22, 80, 443 } accept
	}
	chain inbound_ipv4 {
		icmp type echo-request limit rate 5/second burst 5 packets accept
	}
	chain forward {
		type filter hook forward priority filter; policy drop;
	}
}
";
    assert_eq!(incoming(server, ""), DROP);
    assert_eq!(
        incoming(
            &server.replace("tcp dport { 22, 80, 443 }", "udp dport 4791"),
            ""
        ),
        PASS
    );
}

/// Rules for containers are for what is forwarded.
#[test]
fn docker_and_kubernetes_are_no_obstacle() {
    let ip6tables = "
*nat
:PREROUTING ACCEPT [0:0]
:DOCKER - [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment \"kubernetes service portals\" -j KUBE-SERVICES
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A DOCKER -i docker0 -j RETURN
-A DOCKER ! -i docker0 -p tcp -m tcp --dport 8080 -j DNAT --to-destination [fd00::2]:80
-A KUBE-SERVICES -d fd00:10::a/128 -p udp -m udp --dport 53 -j KUBE-MARK-MASQ
COMMIT
*filter
:INPUT ACCEPT [0:0]
:FORWARD DROP [0:0]
:OUTPUT ACCEPT [0:0]
:DOCKER-USER - [0:0]
:KUBE-FIREWALL - [0:0]
:KUBE-PROXY-FIREWALL - [0:0]
-A INPUT -m conntrack --ctstate NEW -m comment --comment \"load balancer firewall\" -j KUBE-PROXY-FIREWALL
-A INPUT -j KUBE-FIREWALL
-A FORWARD -j DOCKER-USER
-A FORWARD -j DROP
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
COMMIT
";
    assert_eq!(incoming("", ip6tables), PASS);
    let nft = "
table ip6 kube-proxy {
	map service-ips {
		type ipv6_addr . inet_proto . inet_service : verdict
		elements = { fd00:10::a . udp . 53 comment \"dns\" : goto endpoint }
	}
	chain endpoint {
		drop
	}
	chain filter-prerouting {
		type filter hook prerouting priority dstnat - 10; policy accept;
		ct state new jump firewall-check
	}
	chain firewall-check {
		ip6 daddr . meta l4proto . th dport vmap @service-ips
	}
	chain filter-input {
		type filter hook input priority -110; policy accept;
		ct state new ip6 daddr . meta l4proto . th dport vmap @service-ips
	}
}
";
    assert_eq!(incoming(nft, ""), PASS);
}

#[test]
fn each_hook_that_packets_pass() {
    let chain = |family: &str, hook: &str, rule: &str| {
        format!(
            "table {family} t {{\n\tchain c {{\n\t\ttype filter hook {hook}; policy accept;\n\t\t{rule}\n\t}}\n}}\n"
        )
    };
    let drop = "udp dport 4791 drop";
    for (family, hook, comes, goes) in [
        (
            "netdev",
            "ingress device \"eth0\" priority filter",
            DROP,
            PASS,
        ),
        (
            "netdev",
            "ingress devices = { \"eth1\", \"eth0\" } priority 0",
            DROP,
            PASS,
        ),
        (
            "netdev",
            "ingress device \"eth1\" priority filter",
            PASS,
            PASS,
        ),
        (
            "netdev",
            "egress device \"eth0\" priority filter",
            PASS,
            DROP,
        ),
        ("netdev", "ingress device eth1 priority 0", PASS, PASS),
        ("netdev", "ingress device eth0 priority 0", DROP, PASS),
        ("inet", "prerouting priority raw", DROP, PASS),
        ("ip6", "input priority security", DROP, PASS),
        ("ip", "input priority filter", PASS, PASS),
        ("inet", "output priority filter", PASS, DROP),
        ("inet", "postrouting priority srcnat", PASS, DROP),
        ("inet", "forward priority filter", PASS, PASS),
        ("bridge", "input priority filter", PASS, PASS),
        ("arp", "input priority filter", PASS, PASS),
    ] {
        let text = chain(family, hook, drop);
        assert_eq!(incoming(&text, ""), comes, "{family} {hook}");
        let rules = Rules::read(&text, "", "");
        let sent = [false, true].map(|multicast| answer(&rules, Way::Out, multicast, GID));
        assert_eq!(sent, goes, "{family} {hook}");
    }
    // A packet that is not tracked is no new one.
    let text = chain("inet", "prerouting priority raw", "udp dport 4791 notrack")
        + "table inet f {\n chain in {\n type filter hook input priority filter; policy drop;\n RULE accept\n }\n}\n";
    assert_eq!(incoming(&text.replace("RULE", "ct state new"), ""), DROP);
    assert_eq!(
        incoming(&text.replace("RULE", "ct state untracked"), ""),
        PASS
    );
}

#[test]
fn the_rule_that_drops_is_named() {
    let rules = Rules::read(&FIREWALLD.replace("PORT", ""), "", "");
    let packet = Packet {
        kind: Kind::Roce,
        way: Way::In,
        multicast: false,
        own: GID.parse().expect("an address"),
        interface: "eth0",
        master: None,
        bridge: false,
    };
    let Answer::Dropped(culprit) = rules.judge(&packet) else {
        panic!("it passes");
    };
    assert_eq!(
        (&*culprit.table, &*culprit.base),
        ("firewalld", "filter_INPUT")
    );
    assert_eq!(
        (&*culprit.chain, &*culprit.rule),
        ("filter_IN_public", "reject with icmpx admin-prohibited")
    );
    // A part of a VRF may be known by either name.
    let by_name = Rules::read(&input("iifname \"eth0\" accept\ndrop"), "", "");
    let in_vrf = Packet {
        master: Some("red"),
        ..packet
    };
    assert!(matches!(by_name.judge(&in_vrf), Answer::Unknown(_)));
}
