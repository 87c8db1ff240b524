// SPDX-License-Identifier: GPL-2.0

//! A fabric as configfs has it, and as the diagnostics see it.

use super::make;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use regex::Regex;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Where the fabrics are.
pub(super) const CONFIGFS: &str = "/sys/kernel/config/ib_hwsim";

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) guid: u64,
    pub(super) ports: u8,
    /// The name of an HCA's RDMA device; empty if it is off.
    pub(super) device: String,
    on: bool,
}

/// An end of a link: the node's GUID, and the port.
type End = (u64, u8);
/// The two ends of each link, in order.
type Links = BTreeSet<[End; 2]>;

/// A fabric.
pub(super) struct Fabric {
    host: Host,
    name: String,
    pub(super) hcas: BTreeMap<String, Node>,
    pub(super) switches: BTreeMap<String, Node>,
    /// Which ports each plugged cable connects, by the names of nodes.
    pub(super) cables: BTreeMap<String, [(String, u8); 2]>,
}

impl Fabric {
    /// Makes a fabric of a topology, which begins with its name.
    pub(super) fn make(host: &Host, topology: &str) -> Result<Fabric> {
        make(host, topology)?;
        let name = topology.split(' ').next().unwrap_or_default();
        let mut fabric = Fabric {
            host: host.clone(),
            name: name.to_owned(),
            hcas: BTreeMap::new(),
            switches: BTreeMap::new(),
            cables: BTreeMap::new(),
        };
        fabric.read()?;
        Ok(fabric)
    }

    /// Reads it again.
    pub(super) fn read(&mut self) -> Result<()> {
        let text = self.host.ok(&format!(
            "cd {CONFIGFS}/{} && grep -r '' hcas switches cables",
            self.name
        ))?;
        let mut items: BTreeMap<(&str, &str), BTreeMap<&str, &str>> = BTreeMap::new();
        for line in text.lines() {
            let (path, value) = line.split_once(':').with_context(|| line.to_owned())?;
            let [group, item, attribute] = path.split('/').collect::<Vec<_>>()[..] else {
                anyhow::bail!("{line}");
            };
            items
                .entry((group, item))
                .or_default()
                .insert(attribute, value);
        }
        self.hcas.clear();
        self.switches.clear();
        self.cables.clear();
        for ((group, name), attributes) in items {
            let value = |key: &str| attributes.get(key).copied();
            let need = |key: &str| value(key).with_context(|| format!("{name} has no {key}"));
            if group == "cables" {
                if need("plugged")? == "1" {
                    self.cables.insert(name.to_owned(), ends(need("ends")?)?);
                }
                continue;
            }
            let guid = need("node_guid")?;
            let node = Node {
                guid: u64::from_str_radix(guid.trim_start_matches("0x"), 16).context("a GUID")?,
                ports: need("ports")?.parse()?,
                device: value("device").unwrap_or_default().to_owned(),
                on: need("power")? == "1",
            };
            let nodes = if group == "hcas" {
                &mut self.hcas
            } else {
                &mut self.switches
            };
            nodes.insert(name.to_owned(), node);
        }
        Ok(())
    }

    /// Writes an attribute, which has to take it.
    pub(super) fn write(&self, path: &str, value: &str) -> Result<()> {
        self.host
            .ok(&format!("echo '{value}' >{CONFIGFS}/{}/{path}", self.name))?;
        Ok(())
    }

    /// The RDMA device of an HCA.
    pub(super) fn device(&self, hca: &str) -> Result<&str> {
        let node = self
            .hcas
            .get(hca)
            .with_context(|| format!("no HCA {hca}"))?;
        ensure!(!node.device.is_empty(), "{hca} is off");
        Ok(&node.device)
    }

    /// The options of the diagnostics that begin at an HCA.
    pub(super) fn from(&self, hca: &str) -> Result<String> {
        Ok(format!("-C {} -P 1", self.device(hca)?))
    }

    /// Node and port at the other end of the cable in a port of a node.
    pub(super) fn peer(&self, node: &str, port: u8) -> Result<&(String, u8)> {
        self.cables
            .values()
            .find_map(|[a, b]| match (node, port) {
                near if near == (&a.0, a.1) => Some(b),
                near if near == (&b.0, b.1) => Some(a),
                _ => None,
            })
            .with_context(|| format!("no cable in {node}/{port}"))
    }

    /// Names of the nodes that cables connect with the HCA `h1`, and its own.
    fn reached(&self) -> BTreeSet<&str> {
        let mut reached = BTreeSet::from(["h1"]);
        loop {
            let before = reached.len();
            for [(a, _), (b, _)] in self.cables.values() {
                if reached.contains(&**a) || reached.contains(&**b) {
                    reached.extend([&**a, &**b]);
                }
            }
            if reached.len() == before {
                return reached;
            }
        }
    }

    /// Nodes of a kind that are on and can be reached.
    fn present<'a>(&self, nodes: &'a BTreeMap<String, Node>) -> Vec<&'a Node> {
        let reached = self.reached();
        let present = nodes
            .iter()
            .filter(|(name, node)| node.on && reached.contains(&***name));
        present.map(|(_, node)| node).collect()
    }

    /// Those nodes, by GUID: the number of their ports.
    fn nodes(&self) -> BTreeMap<u64, u8> {
        let [hcas, switches] = [self.present(&self.hcas), self.present(&self.switches)];
        let all = hcas.into_iter().chain(switches);
        all.map(|n| (n.guid, n.ports)).collect()
    }

    /// The links that its plugged cables make.
    fn links(&self) -> Result<Links> {
        let end = |(name, port): &(String, u8)| -> Result<End> {
            let node = self.hcas.get(name).or_else(|| self.switches.get(name));
            Ok((node.with_context(|| format!("no node {name}"))?.guid, *port))
        };
        self.cables
            .values()
            .map(|[a, b]| Ok(sorted(end(a)?, end(b)?)))
            .collect()
    }

    /// Waits until each port with a cable is Active, of switches as `iblinkinfo` sees them.
    pub(super) fn wait_active(&self, from: &str, limit: Duration) -> Result<()> {
        let count = |nodes: &BTreeMap<String, Node>| {
            let ends = self.cables.values().flatten();
            ends.filter(|(name, _)| nodes.contains_key(name)).count()
        };
        let (hcas, switches) = (count(&self.hcas), count(&self.switches));
        self.host.wait_until(
            &format!(
                "[ $(cat /sys/class/infiniband/hwsim*/ports/*/state | grep -c ACTIVE) = {hcas} ]"
            ),
            limit,
        )?;
        if switches > 0 {
            self.host.wait_until(
                &format!(
                    "text=$(iblinkinfo {from} -l --switches-only)
                     [ $(echo \"$text\" | grep -c 'Active/ *LinkUp') = {switches} ] ||
                     {{ echo \"$text\"; false; }}"
                ),
                limit,
            )?;
        }
        Ok(())
    }

    /// Checks that `ibnetdiscover`, `ibhosts` and `ibswitches` at `h1` see what configfs has, and nothing else.
    pub(super) fn is_discovered(&self, from: &str) -> Result<()> {
        let text = self.host.ok(&format!("ibnetdiscover {from}"))?;
        let (nodes, links) = discovered(&text)?;
        ensure!(nodes == self.nodes(), "{nodes:x?} in {text}");
        ensure!(links == self.links()?, "{links:x?} in {text}");
        for (program, nodes) in [("ibhosts", &self.hcas), ("ibswitches", &self.switches)] {
            let text = self.host.ok(&format!("{program} {from}"))?;
            let mut seen: Vec<&str> = text.lines().collect();
            let nodes = self.present(nodes);
            for node in &nodes {
                let node = format!(": {:#018x} ports {} ", node.guid, node.ports);
                seen.retain(|line| !line.contains(&node));
            }
            ensure!(
                seen.is_empty() && text.lines().count() == nodes.len(),
                "{program}: {text}"
            );
        }
        Ok(())
    }

    /// Checks that `ibtracert` between the LIDs of two HCAs goes from cable to cable; the number of these.
    pub(super) fn traces(&self, from: &str, lids: [u64; 2], hcas: [&str; 2]) -> Result<usize> {
        let [lid, target] = lids;
        let text = self.host.ok(&format!("ibtracert {from} {lid} {target}"))?;
        let hop = Regex::new(r"(?m)^\[(\d+)\] -> (ca|switch) port \{0x([0-9a-f]+)\}\[(\d+)\]")?;
        let mut at = hcas[0].to_owned();
        let mut hops = 0;
        for found in hop.captures_iter(&text) {
            let (_, [out, kind, guid, port]) = found.extract();
            let (node, entry) = self.peer(&at, out.parse()?)?;
            // The GUIDs of an HCA's ports follow its own.
            let expected = match (kind, self.hcas.get(node), self.switches.get(node)) {
                ("ca", Some(hca), _) => hca.guid + u64::from(*entry),
                ("switch", _, Some(switch)) => switch.guid,
                _ => anyhow::bail!("{node} is no {kind}: {text}"),
            };
            let seen = (u64::from_str_radix(guid, 16)?, port.parse::<u8>()?);
            ensure!(
                seen == (expected, *entry),
                "not {expected:x}, {entry}: {text}"
            );
            at.clone_from(node);
            hops += 1;
        }
        ensure!(at == hcas[1], "{text}");
        Ok(hops)
    }

    /// Clears all error counters: of packets that ULPs sent before their port, or one on the way, was Active.
    pub(super) fn forget_errors(&self, from: &str) -> Result<()> {
        self.host.run(&format!("ibqueryerrors {from} -k"))?;
        Ok(())
    }

    /// Checks that `ibqueryerrors` reaches all nodes and finds no error.
    pub(super) fn has_no_errors(&self, from: &str) -> Result<()> {
        let text = self.host.ok(&format!("ibqueryerrors {from}"))?;
        let nodes = self.nodes().len();
        let summary = format!("## Summary: {nodes} nodes checked, 0 bad nodes found");
        ensure!(text.contains(&summary), "no {summary:?} in {text}");
        ensure!(!text.contains("failures"), "{text}");
        Ok(())
    }
}

fn sorted(a: End, b: End) -> [End; 2] {
    if a < b { [a, b] } else { [b, a] }
}

/// Reads the two ends of a cable.
fn ends(text: &str) -> Result<[(String, u8); 2]> {
    let end = |text: &str| -> Result<(String, u8)> {
        let (node, port) = text.split_once('/').context("an end")?;
        Ok((node.to_owned(), port.parse()?))
    };
    let (a, b) = text.split_once(' ').context("two ends")?;
    Ok([end(a)?, end(b)?])
}

/// Reads the output of `ibnetdiscover`: nodes with the number of their ports, and links, each of which both of
/// its ends have to tell.
fn discovered(text: &str) -> Result<(BTreeMap<u64, u8>, Links)> {
    let header = Regex::new(r#"^(?:Switch|Ca)\s+(\d+) "[SH]-([0-9a-f]{16})""#)?;
    let link = Regex::new(r#"^\[(\d+)\](?:\([0-9a-f]+\))?\s+"[SH]-([0-9a-f]{16})"\[(\d+)\]"#)?;
    let mut nodes = BTreeMap::new();
    let mut halves: BTreeMap<[End; 2], u32> = BTreeMap::new();
    let mut node = 0;
    for line in text.lines() {
        if let Some(found) = header.captures(line) {
            let (_, [ports, guid]) = found.extract();
            node = u64::from_str_radix(guid, 16)?;
            nodes.insert(node, ports.parse()?);
        } else if let Some(found) = link.captures(line) {
            let (_, [port, guid, far]) = found.extract();
            let far = (u64::from_str_radix(guid, 16)?, far.parse()?);
            *halves
                .entry(sorted((node, port.parse()?), far))
                .or_default() += 1;
        }
    }
    ensure!(
        halves.values().all(|n| *n == 2),
        "half a link: {halves:x?} in {text}"
    );
    Ok((nodes, halves.into_keys().collect()))
}
