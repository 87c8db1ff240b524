// SPDX-License-Identifier: GPL-2.0

//! `tools/ib-hwsim` beside its topologies: one sentence where something is wrong, nothing that is left of what
//! failed, and HCAs as hosts.

use super::hwsim_host::Host;
use super::outcome;
use std::time::{Duration, Instant};

const RADIX_ERROR: &str = "the number of a switch's ports (RADIX) is a number from 4 to 64";

#[test]
fn bad_words_are_refused_before_anything_is_done() {
    let host = Host::new();
    for (arguments, words) in [
        ("ring", "no topology or command 'ring'"),
        ("pair 2", "a pair has no number"),
        ("star", "ib-hwsim star N"),
        ("star 0", "from 1 to 64, not '0'"),
        ("star 65", "from 1 to 64, not '65'"),
        ("star 016", "from 1 to 64, not '016'"),
        ("star 0x10", "from 1 to 64, not '0x10'"),
        ("star 99999999999999999999", "from 1 to 64"),
        ("star 4 4", "ib-hwsim star N"),
        ("chain 61", "from 1 to 60, not '61'"),
        ("fat-tree 16", "ib-hwsim fat-tree HOSTS RADIX"),
        ("fat-tree 1 4", "(HOSTS) is a number from 2 to 8192"),
        ("fat-tree 16 2", RADIX_ERROR),
        ("fat-tree 16 66", RADIX_ERROR),
        ("fat-tree 16 7", "RADIX is even, not 7"),
        ("fat-tree 17 4", "carry 16 HCAs, not 17"),
        ("fat-tree 8193 64", "from 2 to 8192"),
        ("pair -n", "-n needs a name"),
        ("-n", "-n needs a name"),
        ("pair -n a/b", "not 'a/b'"),
        ("pair -n ..", "not '..'"),
        ("pair -n -x", "not '-x'"),
        ("pair -n a23456789012345678901234567890123", "32 letters"),
        ("pair --fast", "no option --fast"),
        ("--fast pair", "no option --fast"),
        ("show a b", "show takes one fabric"),
        ("down a b", "down takes one fabric"),
        ("netns on", "no word but off"),
    ] {
        host.fails(arguments, &[words]);
    }
    assert_eq!(host.read("modules"), "");
    let (ok, text) = outcome(host.command("").spawn().expect("starts"));
    assert!(!ok && text.starts_with("usage: "), "{text}");
    assert!(host.passes("--help").starts_with("usage: "));
}

#[test]
fn what_is_missing_is_named() {
    let host = Host::new();
    host.program("id", "echo 1000");
    for arguments in ["pair", "down", "netns", "sm"] {
        host.fails(arguments, &["only root", "sudo"]);
    }
    host.program("id", "echo 0");
    host.fails("show x", &["there is no fabric x"]);
    host.fails("sm", &["there is no fabric", "ib-hwsim pair"]);
    host.program(
        "modprobe",
        "echo 'modprobe: FATAL: Module ib_hwsim not found' >&2; exit 1",
    );
    host.fails(
        "pair",
        &["ib_hwsim cannot be loaded", "not found", "ib-hwsim-dkms"],
    );
    host.program("modprobe", "true");
    host.fails("pair", &["configfs cannot be mounted"]);
    host.program("mount", "true");
    host.fails(
        "pair",
        &["the module that is loaded is an older one", "modprobe -r"],
    );
    std::fs::remove_dir(host.path("sys/kernel/config")).expect("removes");
    host.fails("pair", &["no configfs", "CONFIG_CONFIGFS_FS"]);
}

#[test]
fn without_umad_nothing_is_made() {
    let host = Host::new();
    let modprobe = host
        .read("bin/modprobe")
        .replace("ib_umad)", "ib_umad) exit 1 ;; none)");
    host.program("modprobe", &modprobe);
    host.fails("pair", &["ib_umad cannot be loaded"]);
}

#[test]
fn a_fabric_that_fails_is_undone() {
    let host = Host::new();
    host.passes("pair");
    host.fails("pair", &["a fabric pair already", "ib-hwsim down pair"]);
    host.flag("stillborn");
    host.fails(
        "star 4",
        &["star cannot be switched on: star: cable c1: there is no h9"],
    );
    let mkdir = host.read("bin/mkdir").replace(
        "cables/*)",
        "cables/c3) echo \"mkdir: no memory\" >&2; exit 1 ;;\n    cables/*)",
    );
    host.program("mkdir", &mkdir);
    host.fails("star 4", &["cables of the fabric star", "no memory"]);
    assert_eq!(host.fabrics(), ["pair"]);
}

#[test]
fn a_fabric_whose_maker_is_ended_is_undone() {
    let host = Host::new();
    host.passes("pair");
    host.flag("slow");
    let child = host.command("star 4").spawn().expect("starts");
    let limit = Instant::now() + Duration::from_secs(20);
    // Before that it waits for the fabric's own directory, and cannot be ended.
    while host.items("star", "hcas", "ports").is_empty() {
        assert!(Instant::now() < limit);
        std::thread::sleep(Duration::from_millis(10));
    }
    // That is the script by now: each program before it has been replaced by the next.
    let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).expect("a number"));
    nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM).expect("ends it");
    let (ok, text) = outcome(child);
    assert!(!ok, "{text}");
    assert_eq!(host.fabrics(), ["pair"]);
}

#[test]
fn fabrics_are_shown_and_removed() {
    let host = Host::new();
    assert_eq!(host.passes("show"), "");
    host.passes("down");
    host.passes("chain 2");
    host.passes("pair");
    host.power("pair", "4: ACTIVE");
    host.write("sys/kernel/config/ib_hwsim/pair/cables/c1/plugged", "0\n");
    assert_eq!(
        host.passes("show"),
        "chain: live, 2 HCAs, 2 switches, 3 cables\npair: live, 2 HCAs, 0 switches, 1 cable\n"
    );
    let text = host.passes("show pair");
    let words: Vec<Vec<&str>> = text
        .lines()
        .map(|l| l.split_whitespace().collect())
        .collect();
    assert_eq!(words[1], ["h1", "hwsim0", "port", "1", "ACTIVE"]);
    assert_eq!(words[2], ["h2", "hwsim1", "port", "1", "ACTIVE"]);
    assert_eq!(words[3], ["c1", "unplugged", "h1/1", "h2/1"]);
    assert!(host.passes("show chain").contains("is off"));
    host.fails("netns", &["several fabrics", "-n NAME"]);
    host.fails("down none", &["there is no fabric none"]);
    host.passes("down chain");
    assert_eq!(host.fabrics(), ["pair"]);
    host.passes("down");
    assert!(host.fabrics().is_empty());
}

#[test]
fn hcas_become_hosts_and_come_back() {
    let host = Host::new();
    host.passes("star 3");
    host.fails("netns", &["no HCA of the fabric star is on"]);
    host.power("star", "2: INIT");
    host.passes("netns");
    assert_eq!(
        host.read("rdma"),
        "system set netns exclusive\n-b -\nhwsim0 h1\nhwsim1 h2\nhwsim2 h3\n"
    );
    assert!(
        host.passes("show star")
            .contains("in another network namespace")
    );
    host.fails(
        "netns",
        &["a network namespace h1 already", "ib-hwsim netns off"],
    );
    host.passes("netns off");
    assert_eq!(host.read("run/ib-hwsim/star"), "");
    let moved = "netns exec h2 rdma dev set hwsim1 netns ../../../proc/";
    assert!(host.read("ip").contains(moved), "{}", host.read("ip"));
    assert!(host.passes("show star").contains("h2           hwsim1"));
    assert!(!host.path("run/netns/h1").exists() && !host.path("run/netns/h3").exists());
    // A namespace that only has the name stays.
    host.flag("run/netns/h2");
    std::fs::rename(
        host.path("sys/class/infiniband/hwsim1"),
        host.path("elsewhere/hwsim1"),
    )
    .expect("moves");
    host.passes("netns off");
    host.passes("down");
    assert!(host.path("run/netns/h2").exists());
}

#[test]
fn hosts_that_cannot_be_made_are_undone() {
    let host = Host::new();
    host.passes("star 3");
    host.power("star", "2: INIT");
    host.program("rdma", "echo 'error: Device or resource busy' >&2; exit 1");
    host.fails(
        "netns",
        &["Device or resource busy", "ib_core.netns_mode=0"],
    );
    host.program(
        "rdma",
        "case $1 in -b) mv /sys/class/infiniband/hwsim0 \"$lab/elsewhere\"; exit 1 ;; esac",
    );
    host.fails("netns", &["cannot be moved"]);
    assert!(host.path("sys/class/infiniband/hwsim0").exists());
    for name in ["h1", "h2", "h3"] {
        assert!(!host.path("run/netns").join(name).exists(), "{name}");
    }
}

#[test]
fn a_subnet_manager_runs_where_its_hca_is() {
    let host = Host::new();
    host.passes("star 3");
    host.fails("sm", &["the HCA h1 is off", "live"]);
    host.power("star", "2: INIT");
    host.write("sys/class/infiniband/hwsim2/ports/1/state", "1: DOWN\n");
    host.fails("sm h9", &["has no HCA h9"]);
    let text = host.passes("sm");
    assert!(
        text.contains("on h1 (hwsim0, 0x123456789abc0000)"),
        "{text}"
    );
    host.passes("sm -n star h2 -p 5 -n 9");
    host.passes("netns");
    host.passes("sm h3 -f log");
    assert_eq!(
        host.read("opensm"),
        "-B -g 0x123456789abc0000\n-B -g 0x123456789abc0001 -p 5 -n 9\n-B -g 0x123456789abc0002 -f log\n"
    );
    host.without("opensm");
    host.fails("sm", &["opensm is not installed"]);
}

#[test]
fn a_subnet_manager_of_a_fabric_by_hand_has_umad() {
    let host = Host::new();
    host.passes("pair");
    host.power("pair", "2: INIT");
    // Nothing but configfs has been used.
    std::fs::remove_dir(host.path("sys/class/infiniband_mad")).expect("removes");
    host.passes("sm");
    assert_eq!(host.read("modules"), "ib_hwsim\nib_umad\nib_umad\n");
    assert!(host.path("sys/class/infiniband_mad").exists());
}
