// SPDX-License-Identifier: GPL-2.0

//! Topologies that cannot be, typed into configfs: each gets an error, and where a line says too little the
//! kernel's log names the item.

use super::fabric::{CONFIGFS, Fabric};
use super::manager::Manager;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

const DO: &str = include_str!("../../guest/hwsim/bad/do.py");

/// Does these in the directory of a fabric, each with the error that it is to have.
fn all_fail(host: &Host, fabric: &str, actions: &[(&str, &str)]) -> Result<()> {
    let dir = format!("{CONFIGFS}/{fabric}");
    let mut arguments = vec![dir.as_str()];
    arguments.extend(actions.iter().map(|(action, _)| *action));
    let text = host.python(DO, &arguments)?.ok()?;
    let wrong: Vec<String> = actions
        .iter()
        .zip(text.lines())
        .filter(|((_, expected), seen)| expected != seen)
        .map(|((action, expected), seen)| format!("{action}: {seen}, not {expected}"))
        .collect();
    ensure!(text.lines().count() == actions.len(), "{text}");
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

/// A fabric that is off, with an item of each kind.
const BEGIN: &str = "ib-hwsim down
    [ -d /sys/kernel/config/ib_hwsim ] ||
        { modprobe ib_hwsim && mount -t configfs configfs /sys/kernel/config; } || exit
    cd /sys/kernel/config/ib_hwsim && mkdir x && cd x && mkdir hcas/a hcas/b switches/s cables/c";

scenario! {
    /// Values out of range, texts that are none, names that cannot be, and directories that are not one's to make.
    #[on(lockdep)]
    fn texts_are_checked(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok(BEGIN)?;
        let mut actions = Vec::new();
        for (attribute, texts) in [
            ("hcas/a/ports", "0 3 -1 +1 1x 0x1 256 65537 99999999999999999999 one"),
            ("hcas/a/gids", "0 33 300 many"),
            ("hcas/a/pkeys", "0 129 65537 -1"),
            ("hcas/a/mtu", "0 1 255 257 4095 8192 2k"),
            ("hcas/a/node_guid", "0 0x0 0x 1234 0xg 0x11112222333344445 0xffffffffffffffff -0x1"),
            ("hcas/a/max_qp", "0 1020 -1 +1 65537 4294967297"),
            ("hcas/a/max_qp_wr", "0 16385 many"),
            ("hcas/a/max_send_sge", "0 33"),
            ("hcas/a/max_recv_sge", "0 33"),
            ("hcas/a/max_cq", "0 65537"),
            ("hcas/a/max_cqe", "0 65537"),
            ("hcas/a/max_srq", "-1 65537"),
            ("hcas/a/max_ah", "0 2147483648"),
            ("hcas/a/max_mr", "0 1048577"),
            ("hcas/a/max_inline_data", "1025 -1"),
            ("hcas/a/multicast", "2 -1 no"),
            ("hcas/a/block_loopback", "2 -1 no"),
            ("hcas/a/checksum", "2 -1 no"),
            ("hcas/a/lso", "262145 -1 on 64k"),
            ("hcas/a/comp_vectors", "0 65 -1 all"),
            ("hcas/a/power", "2 -1 yes"),
            ("switches/s/ports", "0 65 256 321"),
            ("switches/s/pkeys", "0 129"),
            ("switches/s/mtu", "100 512.0"),
            ("switches/s/node_guid", "0x0"),
            ("cables/c/ends", "a a/1 a/0 a/256 /1 a/ a/b a/1/1 ../1"),
            ("cables/c/ends", "a/0\u{a0}b/1"),
            ("cables/c/width", "2x 8x 12x 4 x"),
            ("cables/c/speed", "fdr 10 QDR"),
            ("cables/c/plugged", "2 true"),
            ("cables/c/loss", "-1 1000001 4294967296 1% 0x1"),
            ("cables/c/duplicate", "1000001"),
            ("cables/c/corrupt", "1000001"),
            ("cables/c/delay", "10000001 1ms"),
            ("cables/c/jitter", "10000001"),
            ("cables/c/rate", "1000001 -1"),
            ("cables/c/queue", "0 65537"),
            ("switches/s/adaptive", "on 1 Packet flowlets"),
            ("switches/s/flowlet_gap", "0 10000001"),
            ("seed", "-1 0x1 18446744073709551616 seed"),
            ("live", "2 01 live"),
        ] {
            actions.extend(texts.split(' ').map(|text| format!("write {attribute} {text}")));
        }
        for text in ["a/1 b/1 s/1", "a/1 b/0", "a/1 b/999", "a/1,b/1", "a/1 b/1 #"] {
            actions.push(format!("write cables/c/ends {text}"));
        }
        for path in ["hcas/a/ports", "cables/c/ends", "live"] {
            actions.push(format!("write {path} {}", "9".repeat(4000)));
        }
        for name in ["a b", "a:b", "ä", "-a", ".a", "_a", &"a".repeat(33), &"a".repeat(255)] {
            for group in ["hcas", "switches", "cables", ".."] {
                actions.push(format!("mkdir {group}/{name}").replace("a b", "a\tb"));
            }
        }
        let actions: Vec<(&str, &str)> = actions.iter().map(|action| (&**action, "EINVAL")).collect();
        all_fail(&host, "x", &actions)?;
        all_fail(&host, "x", &[
            ("mkdir other", "EPERM"),
            ("mkdir hcas/a/b", "EPERM"),
            ("mkdir hcas/a", "EEXIST"),
            ("rmdir hcas", "EPERM"),
            ("rmdir switches", "EPERM"),
            ("rmdir cables", "EPERM"),
            ("write hcas/a/device x", "EACCES"),
            ("rmdir ../x", "ENOTEMPTY"),
            // The fabric is not live.
            ("write hcas/a/power 1", "EINVAL"),
            ("write cables/c/plugged 1", "EINVAL"),
            // Ends name nodes without their kind.
            ("mkdir switches/a", "EEXIST"),
            ("mkdir hcas/s", "EEXIST"),
        ])?;
        // All is as it was.
        let text = host.ok("cd /sys/kernel/config/ib_hwsim/x && cat hcas/a/ports hcas/a/power switches/s/ports cables/c/width cables/c/plugged live")?;
        ensure!(text.split_whitespace().collect::<Vec<_>>() == ["1", "0", "36", "4x", "0", "0"], "{text}");
        bed.finish()
    }
}

/// Changes to the fabric of [`BEGIN`] before it is switched on, and the line in the log that each leads to.
const FAULTS: [(&str, &str); 9] = [
    ("rmdir hcas/a hcas/b", "there is no HCA"),
    ("true", "c: the ends are not set"),
    ("echo a/1 a/1 >cables/c/ends", "c: both ends are a/1"),
    (
        "echo a/1 nobody/1 >cables/c/ends",
        "c: there is no node nobody",
    ),
    ("echo a/2 b/1 >cables/c/ends", "c: there is no a/2"),
    ("echo a/1 s/37 >cables/c/ends", "c: there is no s/37"),
    (
        "mkdir cables/d; echo a/1 s/1 >cables/c/ends; echo b/1 s/1 >cables/d/ends",
        "ends at s/1, too",
    ),
    (
        "echo a/1 b/1 >cables/c/ends; echo 0x1234 | tee hcas/a/node_guid hcas/b/node_guid",
        "has the GUID 0x0000000000001234, too",
    ),
    (
        "echo a/1 b/1 >cables/c/ends; echo 0x1234 >hcas/a/node_guid; echo 0x1235 >hcas/b/node_guid",
        "has the GUID 0x0000000000001235, too",
    ),
];

scenario! {
    /// A fabric that cannot be does not go live, the log says why, and nothing of it is left; made good, it
    /// works.
    #[on(lockdep)]
    fn a_fabric_that_cannot_be_stays_off(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        for (how, why) in FAULTS {
            let what = || how.to_owned();
            host.ok(&format!("{BEGIN}\n{how}\ndmesg -C")).with_context(what)?;
            all_fail(&host, "x", &[("write live 1", "EINVAL")]).with_context(what)?;
            let log = host.ok("dmesg")?;
            let lines: Vec<&str> = log.lines().filter(|line| line.contains("ib_hwsim")).collect();
            ensure!(lines.len() == 1 && lines[0].contains(why), "{how}: not {why:?} but {log}");
            let left = host.ok("cat /sys/kernel/config/ib_hwsim/x/live; ls /sys/class/infiniband")?;
            ensure!(left.trim() == "0", "{how}: {left}");
        }
        host.ok(&format!("{BEGIN}\necho a/1 b >cables/c/ends\necho 1 >live"))?;
        Manager::once(&host, host.ok("cat /sys/kernel/config/ib_hwsim/x/hcas/a/device")?.trim())?;
        host.ok("ib-hwsim down")?;
        bed.finish()
    }
}

scenario! {
    /// Attributes of a node or a cable cannot be changed while it is in use; what is added to a live
    /// fabric is checked as the whole was.
    #[on(lockdep)]
    fn a_live_fabric_is_guarded(bed) {
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        let fabric = Fabric::make(&host, "star 3")?;
        let from = fabric.from("h1")?;
        all_fail(&host, "star", &[
            ("write hcas/h1/ports 2", "EBUSY"),
            ("write hcas/h1/node_guid 0x99", "EBUSY"),
            ("write hcas/h1/mtu 2048", "EBUSY"),
            ("write hcas/h1/pkeys 4", "EBUSY"),
            ("write hcas/h1/gids 4", "EBUSY"),
            ("write hcas/h1/max_qp 4", "EBUSY"),
            ("write hcas/h1/multicast 0", "EBUSY"),
            ("write hcas/h1/lso 65536", "EBUSY"),
            ("write switches/s1/ports 4", "EBUSY"),
            ("write switches/s1/mtu 2048", "EBUSY"),
            ("write switches/s1/node_guid 0x99", "EBUSY"),
            ("write cables/c1/ends h1/1 s1/2", "EBUSY"),
            ("write cables/c1/speed sdr", "EBUSY"),
            ("write cables/c1/width 1x", "EBUSY"),
            ("rmdir ../star", "ENOTEMPTY"),
            ("mkdir cables/d", "ok"),
            ("mkdir hcas/h4", "ok"),
            ("write cables/d/plugged 1", "EINVAL"),
            ("write cables/d/ends h4/1 s1/3", "ok"),
            // A node that is off, a port that has a cable, a port that there is not.
            ("write cables/d/plugged 1", "EINVAL"),
            ("write hcas/h4/power 1", "ok"),
            ("write cables/d/plugged 1", "EINVAL"),
            ("write cables/d/ends h4/1 s1/4", "ok"),
            ("write cables/d/plugged 1", "EINVAL"),
            ("write cables/d/ends h4/1 nobody/4", "ok"),
            ("write cables/d/plugged 1", "EINVAL"),
        ])?;
        let log = host.ok("dmesg")?;
        for why in ["d: the ends are not set", "d: h4 is switched off", "c3 ends at s1/3, too", "d: there is no s1/4", "d: there is no node nobody"] {
            ensure!(log.contains(why), "no {why:?} in {log}");
        }
        host.ok("rmdir /sys/kernel/config/ib_hwsim/star/cables/d /sys/kernel/config/ib_hwsim/star/hcas/h4")?;
        Manager::once(&host, fabric.device("h1")?)?;
        fabric.wait_active(&from, Duration::from_secs(15))?;
        fabric.is_discovered(&from)?;
        bed.finish()
    }
}

const RANDOM: &str = include_str!("../../guest/hwsim/bad/random.py");

scenario! {
    /// Random bytes in random attributes, live and not, do no harm: the fabric can be removed, and another works.
    #[on(lockdep)]
    fn random_texts_do_no_harm(bed) {
        let rounds = if bed.kernel().is_checked() { 2000 } else { 10_000 };
        let bed = bed.one_machine().hosts(1).up()?;
        let host = bed.hosts[0].outside();
        host.ok(BEGIN)?;
        let dir = format!("{CONFIGFS}/x");
        let task = host.spawn_python(RANDOM, &[&dir, &rounds.to_string()])?;
        let text = task.wait(host.scaled(Duration::from_secs(60)))?.ok()?;
        let taken: u32 = text.trim().parse()?;
        ensure!(taken > rounds / 100, "{taken} of {rounds} were taken");
        host.ok("ib-hwsim down")?;
        let fabric = Fabric::make(&host, "star 2")?;
        Manager::once(&host, fabric.device("h1")?)?;
        fabric.is_discovered(&fabric.from("h1")?)?;
        bed.finish()
    }
}
