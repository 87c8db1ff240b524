// SPDX-License-Identifier: GPL-2.0

//! Ours beside `ib_ipoib` on one fabric, by a table: each attribute with good and bad values, in each state of an
//! interface, gives the same error and the same result, but for what `parity.rst` says.

use super::super::manager::Manager;
use super::super::{EXCLUSIVE, hca, inhabit, make};
use super::{Driver, LIMIT, add, up};
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use regex::Regex;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const TABLE: &str = include_str!("../../../guest/hwsim/parity/table.py");
const PARTITIONS: &str = "/tmp/partitions.conf";

/// How entries may differ: why, which ones, what ours gives, and what `ib_ipoib` does. `parity.rst` has them all.
struct Difference {
    why: &'static str,
    entries: &'static str,
    ours: &'static str,
    theirs: &'static str,
}

const DIFFERENCES: &[Difference] = &[
    Difference {
        why: "a mode leaves the MTU as it is, or as it was asked for",
        entries: r"(add|down|up|child|child up): (?:.*, |.* )?(?:mode 1|connected|file mode 'connected\\n')(?: .*|, .*)?",
        ours: r#"\["(EINVAL)?",\{.*"mode":1.*\}\]"#,
        theirs: r#"\["(EINVAL)?",\{.*"mode":1,"mtu":65520.*\}\]"#,
    },
    Difference {
        why: "it ignores the MTU of a new interface",
        entries: "add: mtu .*",
        ours: r#"\["(EINVAL)?",\{.*\}\]"#,
        theirs: r#"\["",\{("mode":1,"mtu":65520)?\}\]"#,
    },
    Difference {
        why: "IPv4 needs 68 bytes, and no more",
        entries: "(down|up|child|child up): (file )?mtu (68|71)",
        ours: r#"\["",\{"addrgen":255,"mtu":(68|71)\}\]"#,
        theirs: r#"\["EINVAL",\{\}\]"#,
    },
    Difference {
        why: "IPv4 needs 68 bytes in connected mode, too",
        entries: "connected: mtu (0|1|67)",
        ours: r#"\["EINVAL",\{\}\]"#,
        theirs: r#"\["",\{"addrgen":255,"mtu":.*\}\]"#,
    },
    Difference {
        why: "it takes any bytes for a broadcast address",
        entries: ".*: broadcast unicast",
        ours: r#"\["",\{\}\]"#,
        theirs: r#"\["",\{"broadcast":"0{16}(ffff|0000)0{20}"\}\]"#,
    },
    Difference {
        why: "it takes the P_Key of a broadcast address for that of the groups",
        entries: "child( up)?: broadcast scope",
        ours: r#"\["",\{"broadcast":"00ffffffff15401b8001.*"\}\]"#,
        theirs: r#"\["",\{"broadcast":"00ffffffff15401bffff.*"\}\]"#,
    },
    Difference {
        why: "it takes any GUID, and none, and waits for the port to have it",
        entries: "add: address (no )?guid",
        ours: r#"\["",\{\}\]"#,
        theirs: r#"\["",\{"gid":"(0{16}|02005efffe005399)"\}\]"#,
    },
    Difference {
        why: "only those that share a GUID have identifiers at random; its interfaces never do",
        entries: "add: (broadcast scope|pkey 32769 .*)",
        ours: r#"\["",\{"addrgen":0,.*\}\]"#,
        theirs: r#"\["",\{.*\}\]"#,
    },
    Difference {
        why: "there is one queue",
        entries: "add: (tx|rx) queues (2|4096)",
        ours: r#"\["EINVAL",\{\}\]"#,
        theirs: r#"\["",\{\}\]"#,
    },
    Difference {
        why: "rings can be resized",
        entries: ".*: ethtool -G",
        ours: r#"\["",\{\}\]"#,
        theirs: r#"\["refused",\{\}\]"#,
    },
    Difference {
        why: "checksums can be switched on in connected mode",
        entries: "connected: ethtool -K tx on",
        ours: r#"\["",\{\}\]"#,
        theirs: r#"\["refused",\{\}\]"#,
    },
    Difference {
        why: "children that netlink has made have files",
        entries: "child( up)?: file (mode|umcast) .*",
        ours: r#"\["(EINVAL)?",\{.*\}\]"#,
        theirs: r#"\["EACCES",\{\}\]"#,
    },
    Difference {
        why: "a mode needs no newline",
        entries: "(down|up|connected): file mode '(connected|datagram)'",
        ours: r#"\["",\{.*\}\]"#,
        theirs: r#"\["EINVAL",\{\}\]"#,
    },
    Difference {
        why: "what is no number is not 0",
        entries: "(down|up|connected): file umcast '(-1|x)'",
        ours: r#"\["EINVAL",\{\}\]"#,
        theirs: r#"\["",\{\}\]"#,
    },
    Difference {
        why: "a P_Key that is not changed is not said to be",
        entries: ".*: pkey .*",
        ours: r#"\["(EINVAL|ENOTSUP)",\{\}\]"#,
        theirs: r#"\["",\{\}\]"#,
    },
    Difference {
        why: "the partition is looked at before the name",
        entries: "create_child '.*' again",
        ours: r#"\["ENOTUNIQ",\{\}\]"#,
        theirs: r#"\["EEXIST",\{\}\]"#,
    },
    Difference {
        why: "a limited member of the parent's partition is in it",
        entries: "create_child '0x7fff'",
        ours: r#"\["ENOTUNIQ",\{\}\]"#,
        theirs: r#"\["",\{"\.7fff":"0xffff"\}\]"#,
    },
    Difference {
        why: "more than a number is none",
        entries: "create_child '0x8003 x'( again)?",
        ours: r#"\["EINVAL",\{\}\]"#,
        theirs: r#"\["(ENOTUNIQ)?",\{.*\}\]"#,
    },
    Difference {
        why: "what names no partition is told from what names no child",
        entries: "delete_child '(0|0x|0x8000|0x8003 x)'",
        ours: r#"\["EINVAL",\{\}\]"#,
        theirs: r#"\["ENODEV",\{\}\]"#,
    },
    Difference {
        why: "a child is deleted by either P_Key of its partition",
        entries: "delete_child '(0x0001|0x1|1)'",
        ours: r#"\["",\{\}\]"#,
        theirs: r#"\["ENODEV",\{\}\]"#,
    },
];

/// Has the subnet manager say the code of the MTU of both partitions' groups from its next start on.
fn partitions(host: &Host, mtu: u8) -> Result<()> {
    host.outside().ok(&format!(
        "printf 'Default=0x7fff, ipoib, mtu={mtu} : ALL=full;\\nBlue=0x0001, ipoib, mtu={mtu} : ALL=full;\\n' >{PARTITIONS}"
    ))?;
    Ok(())
}

/// Puts both drivers through the table, one after the other: `ib_ipoib` does not change its mode properly while another one
/// has RTNL. The results.
fn tables(ends: [(&Host, &str); 2]) -> Result<[BTreeMap<String, Value>; 2]> {
    let limit = Duration::from_secs(120);
    let file = |kind: &str| format!("/tmp/table-{kind}.json");
    for (host, kind) in ends {
        let task = host.spawn_python(TABLE, &[kind, "ib0", &file(kind)])?;
        task.wait(host.scaled(limit))?
            .ok()
            .context(kind.to_owned())?;
    }
    let results = ends.map(|(host, kind)| -> Result<_> {
        Ok(serde_json::from_str(&host.machine().read(&file(kind))?)?)
    });
    let [ours, theirs] = results;
    Ok([ours?, theirs?])
}

/// The entries that differ, less those that may, and the ways in which none does.
fn compare([ours, theirs]: &[BTreeMap<String, Value>; 2]) -> Result<String> {
    let mut used = vec![false; DIFFERENCES.len()];
    let mut text = String::new();
    let known = DIFFERENCES
        .iter()
        .map(|known| {
            let whole = |pattern: &str| Regex::new(&format!("^(?:{pattern})$"));
            Ok([
                whole(known.entries)?,
                whole(known.ours)?,
                whole(known.theirs)?,
            ])
        })
        .collect::<Result<Vec<_>>>()?;
    for (entry, mine) in ours {
        let their = theirs
            .get(entry)
            .with_context(|| format!("{entry} is of ours only"))?;
        if mine == their {
            continue;
        }
        let [mine, their] = [mine.to_string(), their.to_string()];
        let found = known.iter().position(|[entries, ours, theirs]| {
            entries.is_match(entry) && ours.is_match(&mine) && theirs.is_match(&their)
        });
        match found {
            Some(at) => used[at] = true,
            None => text += &format!("{entry}: {mine}, ib_ipoib {their}\n"),
        }
    }
    ensure!(ours.len() == theirs.len(), "entries of ib_ipoib only");
    for (known, _) in DIFFERENCES.iter().zip(&used).filter(|(_, used)| !**used) {
        text += &format!("no longer a difference: {}\n", known.why);
    }
    Ok(text)
}

scenario! {
    /// This driver accepts all that `ib_ipoib` accepts, with equal results.
    #[on(base)]
    fn attributes_in_every_state(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        partitions(a, 4)?;
        outside.ok("modprobe ib_ipoib && modprobe ipoib_rs")?;
        make(&outside, "pair")?;
        let manager = inhabit(&bed, &format!("-P {PARTITIONS}"))?;
        add(a, "")?;
        // The port's other interface is here first.
        a.ok("ip link set ib0 addrgenmode eui64")?;
        let results = tables([(a, "ipoib_rs"), (b, "ipoib")])?;
        ensure!(results[0].len() > 900, "{} entries", results[0].len());
        let text = compare(&results)?;
        ensure!(text.is_empty(), "{text}");
        manager.kill()?;
        bed.finish()
    }
}

/// Changes that a user makes to a child that is up, where the group takes 2044.
const WISHES: &[&[&str]] = &[
    &[],
    &["mtu 1500"],
    &["mtu 2044"],
    &["mtu 2045"],
    &["mtu 4092"],
    &["mtu 4092", "mtu 1500"],
    &["mtu 1500", "mtu 4092"],
    &["type K mode connected", "mtu 65520"],
    &["type K mode connected", "mtu 65520", "type K mode datagram"],
    &["type K mode connected", "mtu 4092", "type K mode datagram"],
    &[
        "mtu 4092",
        "type K mode connected",
        "mtu 65520",
        "type K mode datagram",
    ],
    &["down", "mtu 4092", "up"],
];

/// Makes a child for each wish, with that, and waits until the group gives them MTUs.
fn wish(host: &Host, kind: &str) -> Result<()> {
    for (n, wishes) in WISHES.iter().enumerate() {
        host.ok(&format!(
            "ip link add link ib0 name w{n} type {kind} && ip link set w{n} up"
        ))?;
        host.wait_until(
            &format!("[ $(cat /sys/class/net/w{n}/carrier) = 1 ]"),
            LIMIT,
        )?;
        for wish in *wishes {
            host.ok(&format!("ip link set w{n} {}", wish.replace('K', kind)))?;
        }
    }
    Ok(())
}

scenario! {
    /// The broadcast group grows and shrinks with another manager: whatever MTU a user has asked for before, the interface
    /// has the one that `ib_ipoib` has then.
    fn the_mtu_follows_the_group(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        partitions(a, 4)?;
        let options = format!("-P {PARTITIONS}");
        let kinds = [(Driver::Ours, "datagram"), (Driver::C, "datagram")];
        let mut manager = up(&bed, "pair", &options, &kinds)?;
        wish(a, "ipoib_rs")?;
        wish(b, "ipoib")?;
        let small = "2044 1500 2044 2044 2044 1500 2044 65520 2044 2044 2044 2044";
        let large = "4092 1500 4092 2045 4092 1500 4092 65520 4092 4092 4092 4092";
        // It forgets a wish for which a group that shrinks has no room.
        let forgotten = large.replace("2045", "4092");
        for (wanted, theirs, next) in [(small, small, 5), (large, large, 4), (small, small, 5), (large, &forgotten, 4)] {
            for (host, wanted) in [(b, theirs), (a, wanted)] {
                let read = "echo $(cat $(ls -v /sys/class/net/w*/mtu))";
                host.wait_until(&format!("{read} >&2; [ \"$({read})\" = '{wanted}' ]"), LIMIT)
                    .with_context(|| format!("host {}, {wanted}", host.number()))?;
            }
            manager.kill()?;
            partitions(a, next)?;
            manager = Manager::start(a, &hca(a), &options)?;
            manager.wait_for("SUBNET UP", LIMIT)?;
        }
        manager.kill()?;
        bed.finish()
    }
}

/// Makes a bond of `ib0`, whose group takes 2044, and asks the bond for MTUs: whether each is taken, and what bond and
/// interface have then, while both are up.
fn bonded(host: &Host, mode: &str) -> Result<String> {
    host.ok(&format!(
        "set -e
         echo {mode} >/sys/class/net/ib0/mode
         ip link set ib0 mtu 2044
         ip link add bond0 type bond mode active-backup fail_over_mac active miimon 100
         ip link set ib0 down && ip link set ib0 master bond0
         ip link set bond0 up"
    ))?;
    host.wait_until("[ $(cat /sys/class/net/bond0/carrier) = 1 ]", LIMIT)?;
    let mut text = String::new();
    for mtu in [67, 1280, 2044, 2045, 4092, 4093, 65520, 65521, 1500] {
        let taken = host.run(&format!("ip link set bond0 mtu {mtu}"))?.success();
        let now = host.ok("cd /sys/class/net && echo $(cat bond0/mtu ib0/mtu)")?;
        text += &format!("{mtu}: {taken}, {}\n", now.trim());
    }
    host.ok("ip link del bond0 && ip link set ib0 up")?;
    host.wait_until("[ $(cat /sys/class/net/ib0/carrier) = 1 ]", LIMIT)?;
    text += &host.ok("cat /sys/class/net/ib0/mtu")?;
    Ok(text)
}

scenario! {
    /// A bond hands its MTU on to its interfaces, and they take it alike.
    #[on(uml)]
    fn bonds_hand_their_mtu_on(bed) {
        let bed = bed.one_machine().append(EXCLUSIVE).up()?;
        let (a, b) = bed.pair()?;
        partitions(a, 4)?;
        a.outside().ok("modprobe bonding max_bonds=0")?;
        let kinds = [(Driver::Ours, "datagram"), (Driver::C, "datagram")];
        let manager = up(&bed, "pair", &format!("-P {PARTITIONS}"), &kinds)?;
        for mode in ["datagram", "connected"] {
            let [ours, theirs] = [bonded(a, mode)?, bonded(b, mode)?];
            ensure!(ours == theirs, "{mode}: {ours}ib_ipoib: {theirs}");
        }
        manager.kill()?;
        bed.finish()
    }
}
