// SPDX-License-Identifier: GPL-2.0

//! Tells a kernel log's bad news from the rest.
//!
//! The kernel reports bugs as text. Each pattern below is one kind of report by its first line;
//! the rules look at printk's text behind the time stamp, so that a message that only quotes such
//! a word in its middle does not match.

use regex::Regex;
use std::sync::LazyLock;

/// One kind of report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kind {
    /// Its name in the lab's messages.
    pub name: &'static str,
    /// The machine is beyond use after it.
    pub fatal: bool,
}

/// A report found in a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Kind of report.
    pub kind: Kind,
    /// The line that gave it away.
    pub line: String,
}

const fn kind(name: &'static str, fatal: bool) -> Kind {
    Kind { name, fatal }
}

/// Pattern and kind; the first that matches wins.
const RULES: &[(&str, Kind)] = &[
    (r"^Kernel panic - not syncing", kind("panic", true)),
    (r"^(BUG: )?KASAN: |^BUG: KASAN: ", kind("KASAN", false)),
    (r"^BUG: KFENCE: ", kind("KFENCE", false)),
    (r"^BUG: KCSAN: ", kind("KCSAN", false)),
    (
        r"^BUG: unable to handle|^BUG: kernel NULL pointer|^Oops(:| )|^general protection fault",
        kind("oops", true),
    ),
    (
        r"^kernel BUG at |^------------\[ cut here \]------------$",
        kind("BUG/WARNING", false),
    ),
    (
        r"^BUG: (soft lockup|workqueue lockup)|^watchdog: (BUG|.*hard LOCKUP)",
        kind("lockup", true),
    ),
    (r"^BUG: ", kind("BUG", false)),
    (
        r"^WARNING: (possible (circular|recursive) locking|possible irq|inconsistent lock state|bad unlock balance|suspicious RCU|held lock freed|lock held when returning|Nested lock)",
        kind("lockdep", false),
    ),
    (
        r"^(=+ ?)?\[ ?BUG: |^\[ BUG: |^possible reason: unannotated irqs|^INFO: trying to register non-static key|^DEBUG_LOCKS_WARN_ON",
        kind("lockdep", false),
    ),
    (r"^WARNING: ", kind("WARNING", false)),
    (r"^UBSAN: ", kind("UBSAN", false)),
    (r"^ODEBUG: ", kind("DEBUG_OBJECTS", false)),
    (
        r"^unregister_netdevice: waiting for ",
        kind("netdev reference leak", true),
    ),
    (
        r"^ref_tracker: .*(has \d+/\d+ users at|reference already released|leaked reference)",
        kind("reference tracker", false),
    ),
    (r"^refcount_t: ", kind("refcount", false)),
    (
        r"^INFO: task .+ blocked for more than \d+ seconds",
        kind("hung task", true),
    ),
    (r"^INFO: task .+ blocked (on|in) ", kind("hung task", true)),
    (
        r"^rcu: INFO: .*(detected stalls|self-detected stall|detected expedited stalls)",
        kind("RCU stall", false),
    ),
    (
        r"^list_(add|del) corruption",
        kind("list corruption", false),
    ),
    (
        r"^rust_kernel: panicked at |^rust_kernel: .*panicked",
        kind("Rust panic", true),
    ),
    (
        r"^BUG .+\(.*\): |^=+ BUG [a-z_0-9-]+ ",
        kind("slab corruption", false),
    ),
    (
        r"^sysfs: cannot create duplicate filename",
        kind("sysfs duplicate", false),
    ),
    (
        r"^[^:]+: NETDEV WATCHDOG: ",
        kind("transmit timeout", false),
    ),
    (
        r"^\w+\(\) stalled pool shutdown: ",
        kind("page pool leak", false),
    ),
    (
        r"^\*\* \d+ printk messages dropped \*\*",
        kind("lost lines", false),
    ),
    (r"^NOHZ tick-stop error: ", kind("softirq pending", false)),
    // This tree's own: what is left to a device that does not let go of it.
    (
        r": (send|receive) ring does not drain: |: queue pair does not reset: |: connection does not end: ",
        kind("queue left", false),
    ),
    (
        r"^ipoib_rdma: .* (not destroyed|not detached from its group): |^ipoib_rdma: \d+ frames left to queue pairs ",
        kind("object left", false),
    ),
    (
        r"^scheduling while atomic|^BUG: scheduling while atomic|^BUG: sleeping function",
        kind("atomic sleep", false),
    ),
];

/// The message behind printk's prefix: an optional `<n>` level, `[time]`, `[T/C caller]`.
static PREFIX: LazyLock<Regex> =
    LazyLock::new(|| rule(r"^(?:<\d+>)?(?:\[ *\d+\.\d+\](?:\[ *[TC]\d+\])? ?)?"));

/// Data races are reported as the kernel's own code has them, too: those of this tree's modules, and of C
/// helpers that Rust calls, have them in the first line.
static RACE: LazyLock<Regex> = LazyLock::new(|| rule(r"^BUG: KCSAN: "));
static OWN_RACE: LazyLock<Regex> =
    LazyLock::new(|| rule(r"\[(ipoib_rs|ib_hwsim)\]|\brust_helper_"));

static COMPILED: LazyLock<Vec<(Regex, Kind)>> =
    LazyLock::new(|| RULES.iter().map(|(p, k)| (rule(p), *k)).collect());

/// Compiles a pattern of this file; the unit tests go through all of them.
fn rule(pattern: &str) -> Regex {
    match Regex::new(pattern) {
        Ok(r) => r,
        Err(e) => panic!("{pattern}: {e}"),
    }
}

/// The message of a log line, without printk's prefix.
#[must_use]
pub fn message(line: &str) -> &str {
    let line = line.trim_end_matches(['\r', '\n']);
    PREFIX.find(line).map_or(line, |m| &line[m.end()..])
}

/// The report in a log line, if any.
#[must_use]
pub fn classify(line: &str) -> Option<Report> {
    let message = message(line);
    if RACE.is_match(message) && !OWN_RACE.is_match(message) {
        return None;
    }
    COMPILED
        .iter()
        .find(|(r, _)| r.is_match(message))
        .map(|(_, kind)| Report {
            kind: *kind,
            line: message.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(line: &str) -> Option<&'static str> {
        classify(line).map(|r| r.kind.name)
    }

    #[test]
    fn reports_are_found() {
        for (line, want) in [
            (
                "[   12.345678] Kernel panic - not syncing: Fatal exception in interrupt",
                "panic",
            ),
            (
                "Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100",
                "panic",
            ),
            (
                "[   10.1] BUG: KASAN: slab-use-after-free in ipoib_start_xmit+0x1f/0x30",
                "KASAN",
            ),
            (
                "[   10.1] BUG: KCSAN: data-race in _RNvC5ring4take [ipoib_rs] / tcp_poll",
                "KCSAN",
            ),
            (
                "[   10.1] BUG: KCSAN: data-race in rust_helper_atomic_read / ib_send_cm_req",
                "KCSAN",
            ),
            (
                "[    9.9][  T12] BUG: kernel NULL pointer dereference, address: 0000000000000008",
                "oops",
            ),
            (
                "[    9.9] BUG: unable to handle page fault for address: ffff8880deadbeef",
                "oops",
            ),
            (
                "[    9.9] Oops: general protection fault, probably for non-canonical address 0xdffffc0000000000",
                "oops",
            ),
            (
                "[    9.9] ------------[ cut here ]------------",
                "BUG/WARNING",
            ),
            (
                "[    9.9] kernel BUG at net/core/skbuff.c:211!",
                "BUG/WARNING",
            ),
            (
                "[    9.9] WARNING: CPU: 0 PID: 64 at net/core/dev.c:11904 unregister_netdevice_many_notify+0x1/0x2",
                "WARNING",
            ),
            (
                "[    9.9] WARNING: net/core/dev.c:11904 at free_netdev+0x1/0x2, CPU#0: rmmod/64",
                "WARNING",
            ),
            (
                "[    7.1] WARNING: possible circular locking dependency detected",
                "lockdep",
            ),
            ("[    7.1] WARNING: inconsistent lock state", "lockdep"),
            (
                "[    7.1] WARNING: possible irq lock inversion dependency detected",
                "lockdep",
            ),
            ("[    7.1] WARNING: suspicious RCU usage", "lockdep"),
            (
                "[    7.1] INFO: trying to register non-static key.",
                "lockdep",
            ),
            (
                "[   65.0] BUG: sleeping function called from invalid context at kernel/locking/mutex.c:591",
                "BUG",
            ),
            (
                "[   65.0] BUG: scheduling while atomic: ip/77/0x00000201",
                "BUG",
            ),
            (
                "[   65.0] BUG: spinlock bad magic on CPU#0, swapper/0/0",
                "BUG",
            ),
            (
                "[   30.0] watchdog: BUG: soft lockup - CPU#1 stuck for 26s! [iperf3:88]",
                "lockup",
            ),
            (
                "[   30.0] BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 31s!",
                "lockup",
            ),
            (
                "[   20.2] UBSAN: array-index-out-of-bounds in drivers/x.c:3:5",
                "UBSAN",
            ),
            (
                "[    5.0] ODEBUG: free active (active state 0) object: 0 object type: work_struct hint: x+0x0/0x10",
                "DEBUG_OBJECTS",
            ),
            (
                "[  120.0] unregister_netdevice: waiting for ib0 to become free. Usage count = 2",
                "netdev reference leak",
            ),
            (
                "[  120.0] ref_tracker: netdev@ffff88 has 1/1 users at",
                "reference tracker",
            ),
            (
                "[  120.0] ref_tracker: reference already released.",
                "reference tracker",
            ),
            (
                "[   12.0] refcount_t: underflow; use-after-free.",
                "refcount",
            ),
            (
                "[  121.5] INFO: task modprobe:512 blocked for more than 60 seconds.",
                "hung task",
            ),
            (
                "[   21.0] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
                "RCU stall",
            ),
            (
                "[   21.0] rcu: INFO: rcu_sched self-detected stall on CPU",
                "RCU stall",
            ),
            (
                "[    2.0] list_del corruption. prev->next should be ffff1, but was ffff2",
                "list corruption",
            ),
            (
                "[    2.0] rust_kernel: panicked at drivers/x.rs:1:2:",
                "Rust panic",
            ),
            (
                "[    2.0] sysfs: cannot create duplicate filename '/devices/virtual/net/ib0'",
                "sysfs duplicate",
            ),
            (
                "[   15.0] veth eth0: NETDEV WATCHDOG: CPU: 0: transmit queue 0 timed out 5040 ms",
                "transmit timeout",
            ),
            (
                "[   15.0] ib0 (unregistering): NETDEV WATCHDOG: CPU: 1: transmit queue 0 timed out 5040 ms",
                "transmit timeout",
            ),
            (
                "[   75.0] page_pool_release_retry() stalled pool shutdown: id 7, 3 inflight 60 sec",
                "page pool leak",
            ),
            ("** 17 printk messages dropped **", "lost lines"),
            (
                "[    8.0] NOHZ tick-stop error: local softirq work is pending, handler #08!!!",
                "softirq pending",
            ),
            (
                "[    8.0] ipoib_rs hca ib0: send ring does not drain: EBUSY",
                "queue left",
            ),
            (
                "[    8.0] ib0: receive ring does not drain: ETIMEDOUT",
                "queue left",
            ),
            (
                "[    8.0] ib0: queue pair does not reset: Ok(Error)",
                "queue left",
            ),
            ("[    8.0] ib0: connection does not end: EIO", "queue left"),
            (
                "[    8.0] ipoib_rdma: completion queue not destroyed: -16",
                "object left",
            ),
            (
                "[    8.0] ipoib_rdma: queue pair not detached from its group: -16",
                "object left",
            ),
            (
                "[    8.0] ipoib_rdma: 3 frames left to queue pairs that do not end",
                "object left",
            ),
        ] {
            assert_eq!(name(line), Some(want), "{line}");
        }
    }

    #[test]
    fn ordinary_lines_are_not() {
        for line in [
            "",
            "[    0.000000] Linux version 7.3.4-ipoib-rs (root@host) (Debian clang version 19.1.7)",
            "[    0.1] Spectre V2 : WARNING: Unprivileged eBPF is enabled",
            "[    0.0] Command line: panic=0 oops=panic kunit.enable=1",
            "[    0.0] Bug reports to linux-rdma@vger.kernel.org",
            "[    0.2] rcu: Hierarchical RCU implementation.",
            "[    0.2] Lock dependency validator: Copyright (c) 2006 Red Hat, Inc., Ingo Molnar",
            "[    0.3] kmemleak: Kernel memory leak detector initialized (mem pool available: 13652)",
            "[    3.0] ipoib_rs: loading out-of-tree module taints kernel.",
            "[    3.0] ipoib_rs: module verification failed: signature and/or required key missing",
            "[    3.1] KTAP version 1",
            "[    3.1]     ok 3 header_warns_of_panic",
            "[    3.1] FAULT_INJECTION: forcing a failure.",
            "[    4.0] rdma_rxe: loaded",
            "[    4.0] BUG: KCSAN: data-race in tcp_poll / rxe_cq_post [rdma_rxe]",
            "[    4.0] ib0: the name BUG: is quoted here",
            "<6>[    4.0] IPv6: ADDRCONF(NETDEV_CHANGE): ib0: link becomes ready",
        ] {
            assert_eq!(name(line), None, "{line}");
        }
    }

    #[test]
    fn the_prefix_goes_away() {
        assert_eq!(message("<4>[    1.5][  T1] WARNING: x\r\n"), "WARNING: x");
        assert_eq!(message("no prefix"), "no prefix");
        assert_eq!(message("[ BUG: bad unlock"), "[ BUG: bad unlock");
    }

    #[test]
    fn fatal_kinds_end_the_machine() {
        assert!(classify("Kernel panic - not syncing: x").is_some_and(|r| r.kind.fatal));
        assert!(classify("BUG: KASAN: x").is_some_and(|r| !r.kind.fatal));
    }
}
