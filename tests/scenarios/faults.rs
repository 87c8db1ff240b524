// SPDX-License-Identifier: GPL-2.0

//! Memory that is not to be had. Debug kernels only: they have fault injection.

use crate::order::counter;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::scenario;
use std::time::Duration;

/// Makes the first slab allocation of a system call fail, then the second, and so on until it makes
/// fewer. Nothing else of the process is touched: a file system that cannot read a library
/// would be the end of the host.
const EACH: &str = r#"
import ctypes, fcntl, os, socket, struct, sys, time
nth = os.open("/proc/thread-self/fail-nth", os.O_RDWR)
rtnl = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)
rtnl.bind((0, 0))
ethernet = socket.if_nametoindex("eth0")

def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

def message(kind, flags, index=0, up=0, change=0, attributes=b""):
    body = struct.pack("=BxHiII", 0, 0, index, up, change) + attributes
    return struct.pack("=IHHII", 16 + len(body), kind, flags | 5, 1, 0) + body

def answer():
    return -struct.unpack_from("=i", rtnl.recv(65536), 16)[0]

def call(what):
    try:
        rtnl.send(what)
        return answer()
    except OSError as error:
        return error.errno

kind = attribute(18, attribute(1, b"ipoib"))
add = message(16, 0x600, attributes=attribute(3, b"ib0\0") + attribute(5, struct.pack("=I", ethernet)) + kind)
delete = message(17, 0, attributes=attribute(3, b"ib0\0"))
up = lambda: message(16, 0, socket.if_nametoindex("ib0"), 1, 1)
down = lambda: message(16, 0, socket.if_nametoindex("ib0"), 0, 1)

def undone(error, result):
    # What failed may have left nothing to undo.
    if result != 0 and error == 0:
        sys.exit(f"cannot be undone: {result}")

def each(attempt, undo):
    n = refused = 0
    while True:
        n += 1
        os.pwrite(nth, b"%d" % n, 0)
        try:
            error = attempt()
        except OSError as failure:
            error = failure.errno
        # 0 where the fault has struck.
        left = os.pread(nth, 16, 0)
        os.pwrite(nth, b"0", 0)
        refused += error != 0
        undo(error)
        if int(left) != 0:
            break
    print(n - 1, refused)
"#;

/// Calls `attempt` with each of its slab allocations failing; returns how many there are, and in how many
/// cases it was refused.
fn each(host: &Host, attempt_and_undo: &str) -> Result<(u32, u32)> {
    host.ok("cd /run/debug/failslab
         echo N >task-filter; echo 0 >verbose; echo N >ignore-gfp-wait; echo 0 >probability")?;
    let program = format!("{EACH}{attempt_and_undo}");
    let task = host.spawn_python(&program, &[])?;
    let text = task.wait(host.scaled(Duration::from_secs(180)))?.ok()?;
    let (all, refused) = text.trim().split_once(' ').context("two numbers")?;
    Ok((all.parse()?, refused.parse()?))
}

/// Takes the module away, and then what it stands on. With lockdep, soft-RoCE stays as long as it has a
/// link: the sockets of its queue pairs hold the module.
fn unload(host: &Host) -> String {
    format!(
        "modprobe -r ipoib_rs && rdma link del {} && modprobe -r rdma_rxe",
        host.rxe()
    )
}

scenario! {
    /// Whichever allocation of `ip link add` fails, nothing leaks and a new try works.
    fn links_that_cannot_be_made(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs")?;
        // A link may be there though its answer failed.
        let (all, refused) = each(host, "each(lambda: call(add), lambda error: undone(error, call(delete)))")?;
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        host.ib_add("")?;
        host.ib_up()?;
        host.ok(&unload(host))?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of `ip link set up` fails, nothing leaks and a new try works.
    fn links_that_cannot_go_up(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ib_add("")?;
        let (all, refused) = each(
            host,
            "ready = up()
each(lambda: call(ready), lambda error: undone(0, call(down())))",
        )?;
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        host.ib_up()?;
        host.ok(&unload(host))?;
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of a change of the rings fails, it is refused or done, and the interface
    /// works on.
    fn rings_that_cannot_be_made(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        // SIOCETHTOOL with ETHTOOL_SRINGPARAM; afterwards the interface is to be up again by itself.
        let (all, refused) = each(
            b,
            r#"
control = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
data = (ctypes.c_uint32 * 9)()
request = struct.pack("16sP16x", b"ib0", ctypes.addressof(data))

def prepare(error):
    while open("/sys/class/net/ib0/carrier").read() != "1\n":
        time.sleep(0.01)
    now = int(open("/proc/sys/net/ipoib/ib0/recv_queue_size").read())
    data[:] = [0x11, 0, 0, 0, 0, 1536 - now, 0, 0, 512]

prepare(0)
each(lambda: fcntl.ioctl(control, 0x8946, request) and 0, prepare)
"#,
        )?;
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        a.wait_until(&format!("ping -c 3 -i 0.1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        ensure!(counter(b, "restarts")? > 0);
        bed.finish()
    }
}

scenario! {
    /// Whichever allocation of loading the module fails, the next attempt works.
    fn modules_that_cannot_be_loaded(bed) {
        let bed = bed.hosts(1).up()?;
        bed.rxe()?;
        let host = &bed.hosts[0];
        host.ok("modprobe ipoib_rs && rmmod ipoib_rs")?;
        let file = host.ok("modinfo -n ipoib_rs")?;
        // From memory: reading a file is not what is tried here.
        let (all, refused) = each(
            host,
            &format!(
                r#"
image = open("{}", "rb").read()
libc = ctypes.CDLL(None, use_errno=True)
load = lambda: libc.syscall(175, image, len(image), b"") and ctypes.get_errno()
unload = lambda error: undone(error, libc.syscall(176, b"ipoib_rs", 0))
each(load, unload)
"#,
                file.trim()
            ),
        )?;
        ensure!(all > 20 && refused > 5, "{refused} of {all}");
        host.ib_add("")?;
        host.ib_up()?;
        bed.finish()
    }
}

scenario! {
    /// Atomic allocations fail under traffic, all over the kernel: frames are lost, but the rings do
    /// not stall and nothing leaks.
    fn frames_that_cannot_be_held(bed) {
        let bed = bed.up()?;
        bed.ib()?;
        let (a, b) = bed.pair()?;
        a.ok(&format!("ping -c 1 -W 5 {}", b.ip4()))?;
        for host in [a, b] {
            host.ok(
                "cd /run/debug/failslab
                 echo N >task-filter; echo 0 >verbose; echo Y >ignore-gfp-wait
                 echo -1 >times; echo 100 >interval; echo 50 >probability",
            )?;
        }
        // Lost frames are fine; a hang is not.
        a.run_for(&format!("ping -f -q -c 3000 -s 3000 -w 20 {}", b.ip4()), Duration::from_secs(30))?;
        a.run_for(&format!("ping -f -q -c 1000 -w 20 {}", b.ip6()), Duration::from_secs(30))?;
        for host in [a, b] {
            host.ok("echo 0 >/run/debug/failslab/probability")?;
        }
        a.wait_until(&format!("ping -c 3 -i 0.1 -W 1 {}", b.ip4()), Duration::from_secs(15))?;
        let text = a.run_for(&format!("ping -f -q -c 1000 {}", b.ip4()), Duration::from_secs(30))?.ok()?;
        ensure!(text.contains(" 0% packet loss"), "{text}");
        bed.finish()
    }
}
