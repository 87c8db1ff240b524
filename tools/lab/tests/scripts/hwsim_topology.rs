// SPDX-License-Identifier: GPL-2.0

//! The topologies of `tools/ib-hwsim`, as they arrive in configfs.

use super::hwsim_host::Host;
use std::collections::{BTreeMap, BTreeSet};

/// A fabric: how many ports each node has, and which two are the ends of each cable.
struct Fabric {
    ports: BTreeMap<String, u32>,
    cables: BTreeMap<String, [(String, u32); 2]>,
}

impl Fabric {
    /// Reads it, and checks that each cable leads from a port that there is to another, and no port has two.
    fn read(host: &Host, name: &str) -> Fabric {
        assert_eq!(
            host.read(&format!("sys/kernel/config/ib_hwsim/{name}/live")),
            "1\n"
        );
        let mut ports = host.items(name, "hcas", "ports");
        ports.extend(host.items(name, "switches", "ports"));
        let ports: BTreeMap<String, u32> = ports
            .into_iter()
            .map(|(node, ports)| (node, ports.parse().expect("a number")))
            .collect();
        let end = |text: &str| {
            let (node, port) = text.split_once('/').expect("a port");
            (node.to_owned(), port.parse::<u32>().expect("a number"))
        };
        let cables: BTreeMap<String, [(String, u32); 2]> = host
            .items(name, "cables", "ends")
            .into_iter()
            .map(|(cable, ends)| {
                let (a, b) = ends.split_once(' ').expect("two ends");
                (cable, [end(a), end(b)])
            })
            .collect();
        let mut used = BTreeSet::new();
        for (node, port) in cables.values().flatten() {
            assert!((1..=ports[node]).contains(port), "{node}/{port}");
            assert!(used.insert((node, port)), "{node}/{port} twice");
        }
        let fabric = Fabric { ports, cables };
        assert_eq!(
            fabric.reached().len(),
            fabric.ports.len(),
            "it is in several parts"
        );
        fabric
    }

    fn nodes<'a>(&'a self, kind: &'a str) -> impl Iterator<Item = &'a String> {
        self.ports.keys().filter(move |name| level(name) == kind)
    }

    /// Nodes at the other ends of a node's cables, with how many cables lead there.
    fn neighbours(&self, node: &str) -> BTreeMap<&str, u32> {
        let mut neighbours = BTreeMap::new();
        for [a, b] in self.cables.values() {
            for (near, far) in [(a, b), (b, a)] {
                if near.0 == node {
                    *neighbours.entry(far.0.as_str()).or_default() += 1;
                }
            }
        }
        neighbours
    }

    /// Nodes that can be reached from the first.
    fn reached(&self) -> BTreeSet<&str> {
        let mut reached = BTreeSet::new();
        let mut next: Vec<&str> = self.ports.keys().take(1).map(String::as_str).collect();
        while let Some(node) = next.pop() {
            if reached.insert(node) {
                next.extend(self.neighbours(node).into_keys());
            }
        }
        reached
    }
}

/// A node's name without its number.
fn level(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

#[test]
fn a_pair_has_a_cable() {
    let host = Host::new();
    let text = host.passes("pair");
    assert_eq!(text, "pair is live: 2 HCAs, 1 cable.\n");
    let fabric = Fabric::read(&host, "pair");
    assert_eq!(
        fabric.cables["c1"],
        [("h1".to_owned(), 1), ("h2".to_owned(), 1)]
    );
    assert_eq!((fabric.ports.len(), fabric.cables.len()), (2, 1));
    assert_eq!(host.read("modules"), "ib_hwsim\nib_umad\n");
    // All is there now.
    host.passes("-n other pair");
    assert_eq!(host.read("modules"), "ib_hwsim\nib_umad\n");
    assert_eq!(host.fabrics(), ["other", "pair"]);
}

#[test]
fn a_star_has_a_switch() {
    for hcas in [1, 2, 16, 64] {
        let host = Host::new();
        host.passes(&format!("star {hcas} -n middle"));
        let fabric = Fabric::read(&host, "middle");
        assert_eq!(fabric.ports["s1"], hcas);
        assert_eq!(fabric.nodes("h").count(), hcas as usize);
        for n in 1..=hcas {
            let ends = [(format!("h{n}"), 1), ("s1".to_owned(), n)];
            assert_eq!(fabric.cables[&format!("c{n}")], ends);
        }
    }
}

#[test]
fn a_chain_has_an_hca_on_each_switch() {
    for switches in [1, 2, 4, 60] {
        let host = Host::new();
        host.passes(&format!("chain {switches}"));
        let fabric = Fabric::read(&host, "chain");
        assert_eq!(fabric.cables.len(), 2 * switches - 1);
        for n in 1..=switches {
            let hca = format!("h{n}");
            assert_eq!(fabric.cables[&format!("c{n}")][0], (hca, 1));
            let neighbours = fabric.neighbours(&format!("s{n}"));
            let at_an_end = usize::from(n == 1) + usize::from(n == switches);
            assert_eq!(neighbours.len(), 3 - at_an_end, "{neighbours:?}");
        }
    }
}

/// Fat trees: HCAs and ports of a switch, then leaves, spines and cores.
const FAT_TREES: [[usize; 5]; 12] = [
    [2, 4, 2, 1, 0],
    [5, 4, 3, 2, 0],
    [8, 4, 4, 2, 0],
    [9, 4, 6, 6, 4],
    [16, 4, 8, 8, 4],
    [20, 6, 9, 9, 9],
    [18, 12, 3, 2, 0],
    [72, 12, 12, 6, 0],
    [72, 36, 4, 2, 0],
    [100, 8, 28, 28, 16],
    [230, 36, 13, 9, 0],
    [648, 36, 36, 18, 0],
];

#[test]
fn fat_trees_have_full_bisection() {
    for [hcas, radix, leaves, spines, cores] in FAT_TREES {
        let host = Host::new();
        let text = host.passes(&format!("fat-tree {hcas} {radix}"));
        let what = format!("{hcas} {radix}: {text}");
        let fabric = Fabric::read(&host, "fat-tree");
        let found = ["h", "leaf", "spine", "core"].map(|kind| fabric.nodes(kind).count());
        assert_eq!(found, [hcas, leaves, spines, cores], "{what}");
        let levels = if cores == 0 { "two" } else { "three" };
        assert!(text.contains(&format!("{levels} levels")), "{what}");
        assert!(
            text.contains(&format!("{} cables", fabric.cables.len())),
            "{what}"
        );
        for n in 1..=hcas {
            assert_eq!(
                fabric.cables[&format!("c{n}")][0],
                (format!("h{n}"), 1),
                "{what}"
            );
        }
        for node in fabric.ports.keys().filter(|name| level(name) != "h") {
            assert_eq!(fabric.ports[node] as usize, radix, "{what}");
            is_balanced(&fabric, node, radix, cores > 0, &what);
        }
    }
}

/// A switch has as many cables up as it may have down, the same number to each switch above it.
fn is_balanced(fabric: &Fabric, node: &str, radix: usize, three_levels: bool, what: &str) {
    let above = match level(node) {
        "leaf" => "spine",
        "spine" if three_levels => "core",
        _ => return,
    };
    let (up, down): (Vec<_>, Vec<_>) = fabric
        .neighbours(node)
        .into_iter()
        .partition(|(name, _)| level(name) == above);
    let sum = |cables: &[(&str, u32)]| cables.iter().map(|(_, n)| *n as usize).sum::<usize>();
    assert_eq!(sum(&up), radix / 2, "{node} of {what}");
    assert!(sum(&down) <= radix / 2, "{node} of {what}");
    let counts: BTreeSet<u32> = up.iter().map(|(_, n)| *n).collect();
    assert_eq!(counts.len(), 1, "{node} of {what}: {up:?}");
}

#[test]
fn a_large_fabric_takes_few_programs() {
    let host = Host::new();
    host.passes("fat-tree 648 36");
    let programs = host.read("mkdirs").lines().count();
    assert!(programs <= 10, "{programs}");
}
