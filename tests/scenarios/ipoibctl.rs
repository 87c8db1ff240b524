// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl`: no alarm where all is well, and the right cause first where something is wrong.
//!
//! A guest is made to have many causes, one after the other, since each takes a few runs of the tool only. What doctor
//! says mends a cause has to mend it.

use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::layout::Layout;
use lab::scenario;
use serde_json::Value;
use std::time::{Duration, Instant};

/// Time for what the kernel does by itself, such as waiting for an answer.
const LIMIT: Duration = Duration::from_secs(15);
const PARTITIONS: &str = "/tmp/ipoibctl-partitions.conf";

/// Runs the tool; what it says in JSON.
pub(crate) fn ask(host: &Host, arguments: &str) -> Result<(Value, i32)> {
    let tool = Layout::from_env()?.ipoibctl();
    let output = host.run(&format!("{} {arguments} --json", tool.display()))?;
    let code = output.code.context("no exit status")?;
    ensure!(code <= 2, "{}{}", output.stdout, output.stderr);
    let value: Value = serde_json::from_str(&output.stdout)?;
    ensure!(value["status"] == code, "{code} for {value}");
    ensure!(
        value["unread"].as_array().is_none_or(Vec::is_empty),
        "{value}"
    );
    Ok((value, code))
}

/// Findings of doctor, worst first.
fn findings(host: &Host) -> Result<Vec<Value>> {
    let begin = Instant::now();
    let (value, _) = ask(host, "doctor")?;
    let took = begin.elapsed();
    ensure!(
        took < host.scaled(Duration::from_secs(2)),
        "doctor took {took:?}"
    );
    Ok(value["findings"]
        .as_array()
        .context("no findings")?
        .to_owned())
}

/// Waits until doctor's findings are as they should be; those.
fn until(host: &Host, what: &str, as_should_be: impl Fn(&[Value]) -> bool) -> Result<Vec<Value>> {
    let end = Instant::now() + host.scaled(LIMIT);
    loop {
        let found = findings(host)?;
        if as_should_be(&found) {
            return Ok(found);
        }
        ensure!(Instant::now() < end, "{what}: {found:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Waits until nothing is wrong: a host may have to find its peer again.
fn well(host: &Host) -> Result<()> {
    until(host, "a false alarm", <[Value]>::is_empty).map(|_| ())
}

/// Waits until a cause is named first.
fn named(host: &Host, cause: &str) -> Result<Value> {
    let first = |found: &[Value]| found.first().is_some_and(|f| f["cause"] == cause);
    let found = until(host, &format!("{cause} is not the first"), first)?;
    Ok(found.into_iter().next().unwrap_or_default())
}

/// Breaks something. Doctor names it first, and all is well after its command; after `mends` if that is for people.
fn injected(host: &Host, cause: &str, breaks: &str, mends: &str) -> Result<()> {
    mended(host, cause, breaks, mends)?;
    well(host).with_context(|| format!("after {cause}"))
}

/// Breaks something, sees it named first, and mends it.
fn mended(host: &Host, cause: &str, breaks: &str, mends: &str) -> Result<()> {
    host.ok(breaks).with_context(|| cause.to_owned())?;
    let finding = named(host, cause)?;
    let fix = finding["fix"].as_str().context("no command")?;
    let is_safe = finding["safe"] == true;
    ensure!(is_safe == mends.is_empty(), "{finding}");
    let mends = if is_safe { fix } else { mends };
    host.ok(mends)
        .with_context(|| format!("{cause}: {mends}"))?;
    Ok(())
}

/// Writes a variable below /proc/sys.
fn set(name: &str, value: &str) -> String {
    format!("echo {value} >/proc/sys/{name}")
}

/// In both modes, with traffic: nothing is wrong, and status says so in words and in JSON.
fn healthy(a: &Host, b: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    for mode in ["datagram", "connected"] {
        for host in [a, b] {
            host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
        }
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        a.ok(&format!("ping -q -c 50 -i 0.01 -s 3000 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            well(host).with_context(|| mode.to_owned())?;
            let (status, code) = ask(host, "status")?;
            let all = status["interfaces"].as_array().context("no interfaces")?;
            let ib0 = all.iter().find(|i| i["name"] == "ib0").context("no ib0")?;
            ensure!(code == 0 && ib0["mode"] == mode, "{status}");
            ensure!(ib0["driver"] == "ipoib_rs" && ib0["up"] == true, "{status}");
            ensure!(ib0["broadcast"] == "joined", "{status}");
            ensure!(ib0["port"]["state"] == "ACTIVE", "{status}");
            ensure!(ib0["counters"]["rx_frames"].as_u64() > Some(0), "{status}");
        }
        let (way, code) = ask(a, &format!("peers --why {}", b.ip4()))?;
        ensure!(code == 0, "{way}");
        let stops = if mode == "connected" { 4 } else { 3 };
        ensure!(way["way"].as_array().map(Vec::len) == Some(stops), "{way}");
    }
    let text = a.ok(&format!("{} status | cat", tool.display()))?;
    ensure!(
        text.contains("All is well.") && !text.contains('\x1b'),
        "{text}"
    );
    Ok(())
}

/// Causes in the interface and in the settings of the host.
fn settings(a: &Host) -> Result<()> {
    for (cause, breaks) in [
        ("interface-down", "ip link set ib0 down"),
        ("arp-off", "ip link set ib0 arp off"),
        ("multicast-off", "ip link set ib0 multicast off"),
        ("mtu-below-ipv6", "ip link set ib0 mtu 1000"),
        ("netem", "tc qdisc replace dev ib0 root netem delay 1ms"),
        ("gso-off", "ethtool -K ib0 gso off"),
        ("gro-off", "ethtool -K ib0 gro off"),
        ("small-rings", "ethtool -G ib0 rx 64"),
    ] {
        mended(a, cause, breaks, "")?;
    }
    well(a)?;
    for (cause, name, bad) in [
        ("window-off", "net/ipoib/ib0/reorder_window", "0"),
        (
            "no-time-to-reorder",
            "net/ipoib/ib0/reorder_timeout_us",
            "0",
        ),
        ("small-budget", "net/ipoib/ib0/napi_budget", "4"),
        ("extensions-off", "net/ipoib/ib0/extensions", "0"),
        ("checksums-on", "net/ipoib/ib0/icrc", "0"),
        ("large-frames-off", "net/ipoib/ib0/large_frames", "0"),
        ("arp-ignored", "net/ipv4/conf/ib0/arp_ignore", "8"),
        ("ipv6-off", "net/ipv6/conf/ib0/disable_ipv6", "1"),
        ("ping-ignored", "net/ipv4/icmp_echo_ignore_all", "1"),
        ("no-sack", "net/ipv4/tcp_sack", "0"),
        ("no-window-scaling", "net/ipv4/tcp_window_scaling", "0"),
        ("no-path-mtu", "net/ipv4/ip_no_pmtu_disc", "1"),
        (
            "small-receive-buffers",
            "net/ipv4/tcp_rmem",
            "4096 131072 262144",
        ),
        (
            "small-send-buffers",
            "net/ipv4/tcp_wmem",
            "4096 16384 262144",
        ),
    ] {
        mended(a, cause, &set(name, bad), "")?;
    }
    well(a)
}

/// Causes in addresses and on the way to a peer, which is connected.
fn peers(a: &Host, b: &Host) -> Result<()> {
    let address = format!("{}/24", a.ip4());
    let other = b.ip4();
    injected(
        a,
        "no-address",
        &format!("ip addr del {address} dev ib0; ip -6 addr flush dev ib0 scope global"),
        &format!("ip addr add {address} dev ib0"),
    )?;
    injected(
        a,
        "shared-network",
        "ip addr add 10.1.0.77/24 dev eth0",
        "ip addr del 10.1.0.77/24 dev eth0",
    )?;
    b.ok("ip addr add fd00:7::1/64 dev ib0 nodad")?;
    injected(
        a,
        "duplicate-address",
        "ip addr add fd00:7::1/64 dev ib0",
        "ip addr del fd00:7::1/64 dev ib0",
    )?;
    injected(
        a,
        "no-answer",
        "ping -c 1 -W 1 10.1.0.99 >/dev/null; true",
        "ip neigh del 10.1.0.99 dev ib0",
    )?;
    let ping = format!("ping -q -c 1 -W 1 {other}");
    a.wait_until(&ping, LIMIT)?;
    // On InfiniBand, datagrams do not carry the GID of their source.
    if !a.is_infiniband() {
        injected(
            a,
            "stale-address",
            &format!(
                "address=$(ip neigh show {other} dev ib0 | sed 's/.*lladdr \\([^ ]*\\).*/\\1/')
                 ip neigh replace {other} dev ib0 nud permanent lladdr $(echo $address | sed 's/^\\(..\\):..:..:../\\1:0a:bc:de/')"
            ),
            "",
        )?;
        a.wait_until(&ping, LIMIT)?;
    }
    let limit = "/sys/module/ipoib_rs/parameters/rc_max_device_connections";
    injected(
        a,
        "device-connections-full",
        &format!("echo 1 >{limit}"),
        "",
    )?;
    b.ok("echo datagram >/sys/class/net/ib0/mode")?;
    a.wait_until(&ping, LIMIT)?;
    named(a, "peer-in-datagram-mode")?;
    b.ok("echo connected >/sys/class/net/ib0/mode")?;
    a.wait_until(&ping, LIMIT)?;
    well(a)
}

scenario! {
    /// Nothing is wrong with a pair; then each cause that any port may have is named, one at a time, and mended.
    #[on(infiniband)]
    fn causes_are_named(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        healthy(a, b)?;
        settings(a)?;
        peers(a, b)?;
        bed.finish()
    }
}

/// Obstacles to loading the module; it loads by doctor's own command.
fn module(host: &Host) -> Result<()> {
    let tool = Layout::from_env()?.ipoibctl();
    let modules = "/lib/modules/$(uname -r)";
    // Mounts made inside of a network namespace are gone after the command.
    let outside = host.outside();
    named(host, "not-loaded")?;
    for (cause, breaks, mends) in [
        (
            "blacklisted",
            "echo 'blacklist ipoib_rs' >/etc/modprobe.d/z.conf".to_owned(),
            "rm /etc/modprobe.d/z.conf".to_owned(),
        ),
        (
            "not-installed",
            format!("mount -t tmpfs none {modules}"),
            format!("umount {modules}"),
        ),
        (
            "wrong-kernel",
            format!(
                "cp -r {modules}/modules.dep /tmp; mount -t tmpfs none /lib/modules; mkdir /lib/modules/7.3.0; mv /tmp/modules.dep /lib/modules/7.3.0"
            ),
            "umount /lib/modules".to_owned(),
        ),
    ] {
        outside.ok(&breaks).with_context(|| cause.to_owned())?;
        named(host, cause)?;
        outside.ok(&mends)?;
    }
    named(host, "not-loaded")?;
    host.run(&format!("{} doctor --fix --yes", tool.display()))?;
    named(host, "no-device")?;
    Ok(())
}

scenario! {
    /// From a host without a module to an interface by doctor's own commands; then causes in Ethernet and in soft-RoCE.
    #[on(uml)]
    fn causes_under_roce_are_named(bed) {
        let bed = bed.up()?;
        let (a, b) = bed.pair()?;
        let tool = Layout::from_env()?.ipoibctl();
        module(a)?;
        bed.rxe()?;
        for cause in ["no-interface", "interface-down"] {
            named(a, cause)?;
            a.run(&format!("{} doctor --fix --yes", tool.display()))?;
        }
        named(a, "no-address")?;
        a.ok(&format!("ip addr add {}/24 dev ib0", a.ip4()))?;
        well(a).context("after the first address")?;
        b.ib_add("")?;
        b.ib_up()?;
        a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
        well(a).context("after a peer")?;

        for (cause, breaks) in [
            ("netem", "tc qdisc replace dev eth0 root netem delay 1ms"),
            ("ethernet-down", "ip link set eth0 down"),
            ("ethernet-ipv6-off", "echo 1 >/proc/sys/net/ipv6/conf/eth0/disable_ipv6"),
            ("ethernet-mtu", "ip link set eth0 mtu 1500"),
        ] {
            injected(a, cause, breaks, "")?;
        }
        let nft = "/usr/local/bin/nft";
        injected(a, "firewall", &format!("printf '#!/bin/sh\necho udp dport 4791 drop\n' >{nft}; chmod +x {nft}"), &format!("rm {nft}"))?;
        // Its link-local address would be that of its parent, which is in the same partition.
        a.ok("ip link add link ib0 name ib0.ffff type ipoib_rs pkey 0xffff && ip link set ib0.ffff addrgenmode none && ip addr add 10.2.0.1/24 dev ib0.ffff && ip link set ib0.ffff up")?;
        well(a).context("after a child")?;
        a.ok("ip link set ib0 down")?;
        let both = |found: &[Value]| ["interface-down", "parent-down"].iter().all(|cause| found.iter().any(|f| f["cause"] == *cause));
        until(a, "one of two causes", both)?;
        a.ok("ip link del ib0.ffff; ip link set ib0 up")?;
        well(a).context("after parent-down")?;
        b.ok("ip link set eth0 down")?;
        named(a, "no-cable")?;
        bed.finish()
    }
}

/// Partitions for opensm, which reads them when it is told to, or begins.
fn partitions(a: &Host, text: &str) -> Result<()> {
    a.ok(&format!("echo '{text}' >{PARTITIONS}"))?;
    a.outside().ok("pkill -HUP -x opensm || :")?;
    Ok(())
}

scenario! {
    /// Causes in ports, subnet managers and partitions of InfiniBand.
    #[on(uml)]
    fn causes_on_infiniband_are_named(bed) {
        let bed = bed.infiniband().up()?;
        let (a, b) = bed.pair()?;
        let outside = a.outside();
        outside.ok("ib-hwsim star 2")?;
        for host in [a, b] {
            outside.ok(&format!("rdma dev set {} netns {}", host.rdma_device(), host.netns().context("no namespace")?))?;
            host.ib_add("")?;
            host.ok(&format!("ip addr add {}/24 dev ib0 && ip link set ib0 up", host.ip4()))?;
        }
        named(b, "no-subnet-manager")?;
        partitions(a, "Default=0x7fff : ALL=full;")?;
        let opensm = format!(
            "mkdir -p /var/cache/opensm; opensm -B -P {PARTITIONS} -g $(sed 's/fe80:0000:0000:0000/0x/; s/://g' /sys/class/infiniband/{}/ports/1/gids/0)",
            a.rdma_device()
        );
        a.ok(&opensm)?;
        named(b, "no-broadcast-group")?;
        let blue = "Default=0x7fff, ipoib : ALL=full;\nBlue=0x0001, ipoib : ALL";
        partitions(a, &format!("{blue}=full;"))?;
        well(b)?;
        b.wait_until(&format!("ping -q -c 1 -W 1 {}", a.ip4()), LIMIT)?;
        well(b)?;

        injected(b, "moderation", "ethtool -C ib0 rx-frames 512", "")?;
        let plug = |plugged: u8| outside.ok(&format!("echo {plugged} >/sys/kernel/config/ib_hwsim/star/cables/c2/plugged"));
        plug(0)?;
        named(b, "port-down")?;
        plug(1)?;
        well(b)?;

        b.ok("ip link add link ib0 name ib0.8001 type ipoib_rs pkey 0x8001 && ip addr add 10.2.0.2/24 dev ib0.8001 && ip link set ib0.8001 up")?;
        well(b)?;
        partitions(a, &format!("{blue}=limited;"))?;
        named(b, "limited-member")?;
        partitions(a, "Default=0x7fff, ipoib : ALL=full;")?;
        named(b, "no-partition")?;
        b.ok("ip link del ib0.8001")?;
        well(b)?;

        let nobody = "00:00:0a:bc:fe:80:00:00:00:00:00:00:00:00:00:00:00:00:de:ad";
        b.ok(&format!("ip neigh replace 10.1.0.50 dev ib0 nud permanent lladdr {nobody}"))?;
        // A path that has failed is forgotten unless somebody sends.
        let ping = b.spawn("ping -q -i 0.1 10.1.0.50")?;
        named(b, "no-path")?;
        b.ok("pkill -x ping; ip neigh del 10.1.0.50 dev ib0; ip link set ib0 down; ip link set ib0 up")?;
        ping.wait(LIMIT)?;
        well(b)?;

        outside.ok("pkill -KILL -x opensm")?;
        plug(0)?;
        plug(1)?;
        named(b, "port-not-active")?;
        // For good: the programs that could switch it on do not open such a port.
        b.ok(&format!("ibportstate -C {} -P 1 -D 0 1 disable", b.rdma_device()))?;
        named(b, "port-disabled")?;
        bed.finish()
    }
}

/// Fails unless a rate is about that of a ping which sends 50 a second; on a slow machine answers come in bursts.
fn about_fifty(rates: &Value, what: &str) -> Result<()> {
    let rate = rates[what].as_f64();
    let is_about = rate.is_some_and(|rate| (20.0..=110.0).contains(&rate));
    ensure!(is_about, "{what} of 50 a second: {rates}");
    Ok(())
}

/// The rates of an interface and of a peer, as JSON.
fn rates_are_right(a: &Host, b: &Host, mode: &str) -> Result<()> {
    let (report, _) = ask(a, "top -d 2")?;
    let interfaces = report["interfaces"].as_array().context("no interfaces")?;
    let ib0 = interfaces.iter().find(|i| i["name"] == "ib0");
    let ib0 = ib0.context("no ib0")?;
    ensure!(ib0["mode"] == mode, "{report}");
    for what in ["rx_frames", "tx_frames"] {
        about_fifty(&ib0["rates"], what)?;
    }
    ensure!(ib0["rates"]["drops"] == 0.0, "{report}");
    let peers = report["peers"].as_array().context("no peers")?;
    let is_b = |peer: &&Value| {
        peer["ips"]
            .as_array()
            .is_some_and(|ips| ips.contains(&b.ip4().into()))
    };
    let peer = peers.iter().find(is_b).context("no peer")?;
    let rates = &peer["rates"];
    if mode == "connected" {
        for what in ["rx_frames", "tx_frames"] {
            about_fifty(rates, what)?;
        }
        let bits = rates["rx_bits"].as_f64().context("no bits")?;
        // An echo has 28 bytes in front of the data.
        ensure!((20_000.0..=60_000.0).contains(&bits), "{rates}");
    } else if a.is_infiniband() {
        ensure!(rates["rx_frames"].is_null(), "{rates}");
    } else {
        about_fifty(rates, "rx_frames")?;
        ensure!(rates["tx_frames"].is_null(), "{rates}");
    }
    Ok(())
}

/// What a terminal shows, one screen behind the other. Blanks are passed over with movements of the cursor.
fn shown(output: &str) -> String {
    let mut text = String::new();
    for (n, part) in output.split('\x1b').enumerate() {
        let end = part.find(|c: char| c.is_ascii_alphabetic());
        let end = if n == 0 {
            0
        } else {
            end.map_or(0, |end| end + 1)
        };
        let (sequence, rest) = part.split_at(end);
        if sequence.ends_with('H') {
            text.push(' ');
        }
        text += rest;
    }
    text
}

scenario! {
    /// In both modes, the rates that `top` shows are those of a ping, as JSON and on a terminal, which is as before then.
    #[on(infiniband)]
    fn top_shows_what_travels(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        let tool = Layout::from_env()?.ipoibctl();
        for mode in ["connected", "datagram"] {
            for host in [a, b] {
                host.ok(&format!("echo {mode} >/sys/class/net/ib0/mode"))?;
            }
            a.wait_until(&format!("ping -q -c 1 -W 1 {}", b.ip4()), LIMIT)?;
            let ping = a.spawn(&format!("ping -q -i 0.02 -s 72 {}", b.ip4()))?;
            // A connection takes a moment.
            std::thread::sleep(a.scaled(Duration::from_secs(1)));
            rates_are_right(a, b, mode).with_context(|| mode.to_owned())?;
            let screen = a.ok(&format!(
                "(sleep 3; printf q) | TERM=xterm SHELL=/bin/sh script -qec 'stty rows 24 cols 80; m=$(stty -g); {} top -d 1 && [ $m = $(stty -g) ] && echo as before' /dev/null",
                tool.display()
            ))?;
            for part in ["ipoibctl top: 1 interface, 1 peer", "All is well.", &b.ip4(), "as before"] {
                ensure!(shown(&screen).contains(part), "no {part:?} in {screen:?}");
            }
            a.ok("pkill -x ping")?;
            ping.wait(LIMIT)?;
        }
        bed.finish()
    }
}
