// SPDX-License-Identifier: GPL-2.0

//! The order of a crate's layers: a file imports from its own layer and those below it, and no two files import
//! each other. Some files are for few others.

use crate::modules::{self, Graph};
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::path::Path;

/// Modules of a layer. One that is not named belongs to the layer of the module around it.
type Layer = &'static [&'static str];

/// A crate whose modules have an order.
struct Layered {
    /// Root file of the crate. What it declares itself is nobody's import.
    root: &'static str,
    /// The layers, the lowest first.
    layers: &'static [Layer],
    /// Files that may import each other, since their types hold each other.
    knots: &'static [&'static [&'static str]],
    /// Modules that only few may import, with those few.
    reserved: &'static [(&'static str, Layer)],
}

const CRATES: &[Layered] = &[
    Layered {
        root: "drivers/infiniband/ulp/ipoib_rs/main.rs",
        layers: &[&["base"], &["ud"], &["rc"], &["data"], &["ctl"]],
        knots: &[],
        // `ud` and `rc` answer by values; their callers queue work items.
        reserved: &[("base::work", &["base::interface", "data", "ctl"])],
    },
    Layered {
        root: "drivers/infiniband/ulp/ipoib_rs/proto/lib.rs",
        layers: &[
            &["drop", "fmt", "text", "wire"],
            &["table"],
            &["seq"],
            &["flow"],
            &["fsm"],
        ],
        // A packet makes its header, which describes the packet.
        knots: &[&["wire::extended", "wire::extended::header"]],
        reserved: &[],
    },
    Layered {
        root: "drivers/infiniband/sw/ib_hwsim/fabric/lib.rs",
        layers: &[
            // Numbers, names and settings.
            &[
                "addr",
                "bits",
                "capability",
                "completion",
                "config",
                "counters",
                "event",
                "fault",
                "grh",
                "keys",
                "limits",
                "link",
                "mkey",
                "moderation",
                "mtu",
                "offload",
                "text",
            ],
            // What is on the wire.
            &[
                "discard",
                "mad",
                "nodeinfo",
                "opcode",
                "packet",
                "rc::header",
                "rc::psn",
                "roce::header",
                "trunk",
                "wire",
            ],
            // A port.
            &[
                "addresses",
                "notice",
                "port",
                "portinfo",
                "roce",
                "settings",
                "tables",
                "transition",
                "trap",
            ],
            // The rules of nodes, connections and cables.
            &[
                "agents", "hca", "impair", "pma", "rc", "retrain", "sma", "switch", "tally", "ud",
            ],
            &["topology"],
        ],
        knots: &[],
        reserved: &[],
    },
    Layered {
        root: "drivers/infiniband/sw/ib_hwsim/main.rs",
        layers: &[
            // What nodes and cables are made of.
            &[
                "capture",
                "groups",
                "in_flight",
                "places",
                "qps",
                "stats",
                "timers",
                "trunk::counters",
                "trunk::queue",
            ],
            &["cable", "host", "impaired", "node", "switch", "trunk"],
            // Packets on their way.
            &["carry", "deliver", "faults", "rc", "send"],
            // What runs by itself.
            &["host::job", "impaired::job", "switch::job", "trunk::listen"],
            &["adapter", "change", "debugfs", "power", "topology"],
            // What users see.
            &["directories", "files", "tree"],
        ],
        // Nodes hold their cables, and cables their nodes.
        knots: &[&["cable", "host", "impaired", "node", "switch", "trunk"]],
        reserved: &[],
    },
    Layered {
        root: "rust/netdev/lib.rs",
        layers: &[
            &[
                "address",
                "attributes",
                "clock",
                "extack",
                "faults",
                "joined",
                "log",
                "mapper",
                "net",
                "notifier",
                "optional",
                "packet",
                "random",
                "raw_device",
                "relaxed",
                "rtnl",
                "sizes",
                "stats",
                "task",
            ],
            // Packets, and who polls them.
            &["header", "napi", "page_pool", "parts", "pool", "skb"],
            &["device", "features", "own_address", "queue"],
            // What a driver may have.
            &["debugfs", "ethtool", "files", "ops", "sysctl", "vf"],
            &["link"],
            &["dummy", "named"],
        ],
        knots: &[],
        reserved: &[],
    },
    Layered {
        root: "rust/rdma/lib.rs",
        layers: &[
            &[
                "deferred",
                "device",
                "dummy",
                "flush_time",
                "left",
                "members",
                "recv::received",
                "recv_chain",
            ],
            // A device and its ports.
            &[
                "client",
                "event",
                "failure",
                "gid",
                "neighbour",
                "pd",
                "port",
                "sa",
                "vf",
            ],
            &[
                "ah",
                "cq",
                "intake_ring::mapping",
                "mcast",
                "qp",
                "send::mapping",
                "send::ring",
                "send_chain",
            ],
            &["intake", "intake_ring", "rc", "rc_send", "recv", "send"],
            &["cm"],
        ],
        // The halves of a ring, which one call makes.
        knots: &[
            &["rc_send", "rc_send::completions"],
            &["send", "send::completions"],
        ],
        reserved: &[],
    },
    Layered {
        root: "rust/rdma_provider/lib.rs",
        layers: &[
            &[
                "ah", "bh_work", "clock", "domain", "faults", "handle", "memory", "netns",
                "object", "owed", "readers", "region", "state", "work",
            ],
            // What a queue pair is made of.
            &[
                "qp::abilities",
                "qp::frames",
                "qp::kind",
                "qp::parse",
                "qp::payload",
                "qp::queue",
                "qp::store",
            ],
            &["cq", "qp", "srq", "wakeups"],
            &["adapter", "attributes", "netdev"],
            &["verbs"],
            &["registration"],
        ],
        // A queue pair has queues, which know their users; who waits for an event is told by way of all of them.
        knots: &[&["cq", "qp", "qp::attributes", "qp::events", "srq", "wakeups"]],
        reserved: &[],
    },
    Layered {
        root: "rust/configfs_tree/lib.rs",
        layers: &[&["binary", "directory", "file"], &["subsystem"]],
        // A file belongs to a type of directories, which lists its files.
        knots: &[&["binary", "directory", "file"]],
        reserved: &[],
    },
    Layered {
        root: "rust/raw_ether/lib.rs",
        layers: &[&["frame", "notifier"], &["interface"], &["attachment"]],
        knots: &[],
        reserved: &[],
    },
    Layered {
        root: "rust/rings/lib.rs",
        layers: &[
            &["atomics", "cell", "line", "ops"],
            &["unsent"],
            &["deferred", "generations", "quiet", "ring", "shares"],
        ],
        knots: &[],
        reserved: &[],
    },
];

/// Checks all crates that have layers.
///
/// # Errors
///
/// Each import that leads up, each circle, each import of a module that is for others, and each module without a layer, a
/// line each.
pub fn check(checkout: &Path) -> Result<()> {
    let mut wrong = Vec::new();
    for layered in CRATES {
        let graph = modules::read(&checkout.join(layered.root))?;
        let complaints = complaints(&graph, layered);
        wrong.extend(complaints.map(|complaint| format!("{}: {complaint}", layered.root)));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

fn complaints(graph: &Graph, layered: &Layered) -> impl Iterator<Item = String> {
    let mut wrong = upward(graph, layered.layers);
    wrong.extend(circles(graph, layered.knots));
    wrong.extend(trespasses(graph, layered.reserved));
    wrong.into_iter()
}

/// Height of a module: that of the closest one around it that is named.
fn height(name: &str, layers: &[Layer]) -> Option<usize> {
    let at = layers.iter().position(|layer| layer.contains(&name));
    at.or_else(|| height(name.rsplit_once("::")?.0, layers))
}

/// The modules without a layer, and the imports that lead from a layer to one above it.
fn upward(graph: &Graph, layers: &[Layer]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (from, targets) in graph {
        let Some(floor) = height(from, layers) else {
            wrong.push(format!("{from} is in no layer"));
            continue;
        };
        let up = targets.iter().filter(|to| height(to, layers) > Some(floor));
        wrong.extend(up.map(|to| format!("{from} imports from {to}, which is above it")));
    }
    wrong
}

/// The files that a file imports from, also by way of others.
fn reach<'a>(graph: &'a Graph, start: &str) -> BTreeSet<&'a str> {
    let mut seen = BTreeSet::new();
    let mut rest = Vec::new();
    let mut imports = graph.get(start);
    loop {
        for name in imports.into_iter().flatten() {
            if seen.insert(name.as_str()) {
                rest.push(name);
            }
        }
        let Some(name) = rest.pop() else {
            return seen;
        };
        imports = graph.get(name);
    }
}

/// The files that import themselves by way of others, but for those of one knot.
fn circles(graph: &Graph, knots: &[&[&str]]) -> Vec<String> {
    let mut wrong = Vec::new();
    for name in graph.keys() {
        let all = reach(graph, name);
        let back = |other: &&str| *other != name && reach(graph, other).contains(name.as_str());
        let circle: Vec<_> = all.iter().copied().filter(back).collect();
        let tied = |knot: &&&[&str]| {
            knot.contains(&name.as_str()) && circle.iter().all(|other| knot.contains(other))
        };
        if !circle.is_empty() && !knots.iter().any(|knot| tied(&knot)) {
            wrong.push(format!(
                "{name} imports itself by way of {}",
                circle.join(", ")
            ));
        }
    }
    wrong
}

/// The imports of reserved modules by those that they are not for.
fn trespasses(graph: &Graph, reserved: &[(&str, Layer)]) -> Vec<String> {
    let mut wrong = Vec::new();
    for (module, few) in reserved {
        if !graph.contains_key(*module) {
            wrong.push(format!("{module} is reserved, and there is none"));
        }
        let others = graph
            .iter()
            .filter(|(from, targets)| targets.contains(*module) && height(from, &[*few]).is_none());
        wrong.extend(others.map(|(from, _)| {
            format!(
                "{from} imports from {module}, which is for {}",
                few.join(", ")
            )
        }));
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph(list: &[(&str, &[&str])]) -> Graph {
        list.iter()
            .map(|(from, to)| {
                let to = to.iter().map(|name| (*name).to_owned()).collect();
                ((*from).to_owned(), to)
            })
            .collect()
    }

    #[test]
    fn imports_lead_down() {
        const LAYERS: &[Layer] = &[&["low", "high::deep"], &["high", "other"]];
        let down = graph(&[
            ("high::a", &["low::b", "other"]),
            ("low::b", &["low::c", "high::deep::d"]),
        ]);
        assert!(upward(&down, LAYERS).is_empty());
        let up = graph(&[("low::b", &["high::a"]), ("high::deep", &["high"])]);
        assert_eq!(
            upward(&up, LAYERS),
            [
                "high::deep imports from high, which is above it",
                "low::b imports from high::a, which is above it"
            ]
        );
        let stray = graph(&[("lower", &[])]);
        assert_eq!(upward(&stray, LAYERS), ["lower is in no layer"]);
    }

    #[test]
    fn circles_are_found() {
        let chain = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &[])]);
        assert!(circles(&chain, &[]).is_empty());
        let circle = graph(&[("a", &["b"]), ("b", &["c"]), ("c", &["a"]), ("d", &["a"])]);
        assert_eq!(circles(&circle, &[]).len(), 3);
        assert_eq!(circles(&circle, &[&["a", "b"]]).len(), 3);
        assert!(circles(&circle, &[&["a", "b", "c"]]).is_empty());
    }

    #[test]
    fn reserved_modules_are_for_few() {
        const RESERVED: &[(&str, Layer)] = &[("low::key", &["low::door", "high"])];
        let few = graph(&[
            ("low::key", &[]),
            ("low::door", &["low::key"]),
            ("mid", &["low::door"]),
            ("high::a", &["low::key", "mid"]),
        ]);
        assert!(trespasses(&few, RESERVED).is_empty());
        let others = graph(&[
            ("low::key", &[]),
            ("low::a", &["low::key"]),
            ("mid", &["low::key"]),
        ]);
        assert_eq!(
            trespasses(&others, RESERVED),
            [
                "low::a imports from low::key, which is for low::door, high",
                "mid imports from low::key, which is for low::door, high"
            ]
        );
        assert_eq!(
            trespasses(&graph(&[("mid", &[])]), RESERVED),
            ["low::key is reserved, and there is none"]
        );
    }

    /// The checkout's own layers.
    #[test]
    fn this_tree_is_layered() -> Result<()> {
        check(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
    }
}
