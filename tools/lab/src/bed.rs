// SPDX-License-Identifier: GPL-2.0

//! A test bed: hosts on one Ethernet, whatever machines they are.

use crate::accounts::{self, Counters};
use crate::debian::Root;
use crate::hollow::Sites;
use crate::initramfs;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane, Machine, Output, Port, Spec};
use crate::module::MODULES;
use crate::slots::{self, Slots};
use crate::stage::Stage;
use crate::task::{Task, repeated};
use anyhow::{Context, Result, ensure};
use lab_wire::Command;
use std::os::unix::net::UnixStream;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Ethernet MTU of the hosts' links: room for an IB MTU of 4096 and rxe's headers.
pub const LINK_MTU: u32 = 4400;

/// How long frames that are under way may take to arrive when a scenario has ended.
const SETTLE: Duration = Duration::from_secs(10);

/// Words that spare Debian's kernel work in an emulated machine: they halve the instructions of its boot.
const TRIMMED: [&str; 3] = ["nokaslr", "cryptomgr.notests", "no_timer_check"];

/// Describes a bed and brings it up.
#[derive(Clone)]
pub struct Builder {
    name: String,
    lane: Lane,
    kernel: Kernel,
    hosts: u8,
    one_machine: bool,
    infiniband: bool,
    icount: bool,
    plugin: Option<String>,
    memory: u32,
    cpus: Option<u32>,
    mtu: u32,
    append: Vec<String>,
    terminal: Option<Arc<UnixStream>>,
    leaks: bool,
    lifetime: Duration,
    debian: Vec<Root>,
    sites: Sites,
}

impl Builder {
    /// Two hosts on `lane` that run `kernel`; `name` is for messages and log files.
    #[must_use]
    pub fn new(name: &str, lane: Lane, kernel: Kernel) -> Builder {
        Builder {
            name: name.to_owned(),
            lane,
            kernel,
            hosts: 2,
            one_machine: lane == Lane::Uml,
            infiniband: false,
            icount: false,
            plugin: None,
            memory: 1024,
            cpus: None,
            mtu: LINK_MTU,
            append: Vec::new(),
            terminal: None,
            leaks: false,
            lifetime: Duration::from_secs(240),
            debian: Vec::new(),
            sites: Sites::default(),
        }
    }

    /// So many hosts.
    #[must_use]
    pub fn hosts(mut self, hosts: u8) -> Builder {
        self.hosts = hosts;
        self
    }

    /// All hosts in one kernel, as network namespaces. On the uml lane that is always so.
    #[must_use]
    pub fn one_machine(mut self) -> Builder {
        self.one_machine = true;
        self
    }

    /// Simulated InfiniBand ports in place of soft-RoCE, all of one machine: see [`Bed::ports`].
    #[must_use]
    pub fn infiniband(mut self) -> Builder {
        self.infiniband = true;
        // Before the first namespace is made.
        self.one_machine().append("ib_core.netns_mode=0")
    }

    /// Guest time counts instructions: one machine, one CPU, QEMU.
    #[must_use]
    pub fn icount(mut self) -> Builder {
        self.icount = true;
        self.one_machine = true;
        self.cpus = Some(1);
        self
    }

    /// A plugin of the emulator, with its arguments, where instructions are counted.
    #[must_use]
    pub fn plugin(mut self, plugin: String) -> Builder {
        self.plugin = Some(plugin);
        self
    }

    /// Looks for leaks on UML's debug kernel as well, which takes a second or two; that of the qemu lane always does.
    #[must_use]
    pub fn leaks(mut self) -> Builder {
        self.leaks = true;
        self
    }

    /// Memory per machine in MiB (default 1024).
    #[must_use]
    pub fn memory(mut self, mib: u32) -> Builder {
        self.memory = mib;
        self
    }

    /// CPUs per machine (default: uml 2; qemu 1, or 2 with all hosts in one machine).
    #[must_use]
    pub fn cpus(mut self, cpus: u32) -> Builder {
        self.cpus = Some(cpus);
        self
    }

    /// Ethernet MTU of the links (default [`LINK_MTU`]).
    #[must_use]
    pub fn mtu(mut self, mtu: u32) -> Builder {
        self.mtu = mtu;
        self
    }

    /// A word for the kernel command line.
    #[must_use]
    pub fn append(mut self, word: &str) -> Builder {
        self.append.push(word.to_owned());
        self
    }

    /// A socket that becomes the guest's tty2; uml lane only.
    #[must_use]
    pub fn terminal(mut self, end: UnixStream) -> Builder {
        self.terminal = Some(Arc::new(end));
        self
    }

    /// The whole bed's time limit on the base kernel of the uml lane (default four minutes); other
    /// lanes and kernels get theirs in proportion.
    #[must_use]
    pub fn lifetime(mut self, lifetime: Duration) -> Builder {
        self.lifetime = lifetime;
        self
    }

    /// A Debian guest for each of `roots`, instead of hosts with the lab's root. They configure their
    /// Ethernet themselves; it is called `eth0` there, too. The scenario has a name in the qemu lane only.
    #[must_use]
    pub fn debian(mut self, roots: &[&Root]) -> Builder {
        self.debian = roots.iter().map(|r| (*r).clone()).collect();
        self.hosts = u8::try_from(roots.len()).unwrap_or(u8::MAX);
        self
    }

    /// Where sites are noted at which its hosts start programs in the background.
    pub(crate) fn sites(mut self, sites: Sites) -> Builder {
        self.sites = sites;
        self
    }

    /// How often to repeat what is repeated `default` times unless `ROUNDS` says otherwise, and by how much
    /// longer that takes, rounded up.
    pub fn rounds(&self, default: u32) -> Result<(u32, u32)> {
        match std::env::var("LAB_ARG_ROUNDS") {
            Ok(rounds) if !rounds.is_empty() => {
                let rounds: u32 = rounds.parse().with_context(|| format!("ROUNDS={rounds}"))?;
                Ok((rounds, rounds.div_ceil(default).max(1)))
            }
            _ => Ok((default, 1)),
        }
    }

    /// Ethernet MTU of its links.
    #[must_use]
    pub fn link_mtu(&self) -> u32 {
        self.mtu
    }

    /// The lane it will run on.
    #[must_use]
    pub fn lane(&self) -> Lane {
        self.lane
    }

    /// The kernel it will boot.
    #[must_use]
    pub fn kernel(&self) -> Kernel {
        self.kernel
    }

    /// How much slower than the base kernel on the uml lane things may be.
    fn slowness(&self) -> u32 {
        match (self.lane, self.kernel) {
            (Lane::Uml, Kernel::Base) => 1,
            (Lane::Uml, Kernel::Debug | Kernel::Lockdep | Kernel::SimDebug)
            | (Lane::Qemu, Kernel::Base | Kernel::Stock) => 3,
            // There are none.
            (Lane::Uml, Kernel::Kcsan | Kernel::Stock)
            | (Lane::Qemu, Kernel::Lockdep | Kernel::SimDebug) => 1,
            (Lane::Qemu, Kernel::Debug | Kernel::Kcsan) => 8,
        }
    }

    /// CPUs of a machine: two hosts in one have one each where the kernel knows of more than one, and one CPU has few data
    /// races.
    fn default_cpus(&self) -> u32 {
        let is_single = (self.lane, self.kernel) == (Lane::Uml, Kernel::Base);
        if !is_single && (self.one_machine || self.kernel == Kernel::Kcsan) {
            2
        } else {
            1
        }
    }

    /// Returns true if the kernel looks for memory that nobody points to.
    fn has_kmemleak(&self) -> bool {
        self.kernel == Kernel::Debug && (self.leaks || self.lane == Lane::Qemu)
    }

    /// Boots the machines and joins the hosts.
    pub fn up(self) -> Result<Bed> {
        ensure!(self.hosts >= 1, "a bed has one host at least");
        ensure!(!self.icount || self.lane == Lane::Qemu, "icount is QEMU's");
        let is_single = (self.lane, self.kernel) == (Lane::Uml, Kernel::Base);
        ensure!(
            !is_single || self.cpus.is_none_or(|cpus| cpus == 1),
            "the base kernel of the uml lane has one CPU: the scenario lacks the word parallel"
        );
        ensure!(
            self.plugin.is_none() || self.icount,
            "plugins are the emulator's"
        );
        let layout = Layout::from_env()?;
        let stage = Stage::of(&layout, self.lane, self.kernel);
        let dir = tempfile::Builder::new()
            .prefix("lab")
            .tempdir_in("/tmp")
            .context("/tmp")?;
        let machine_count = if self.one_machine { 1 } else { self.hosts };
        let slots = slots::take(
            &layout.cache,
            usize::from(machine_count) * slots::needed(self.lane),
        )?;

        let mut machines = Vec::new();
        for n in 0..machine_count {
            let name = format!("h{n}");
            let port = (!self.one_machine).then(|| match n {
                0 => Port::Listen(
                    (1..machine_count)
                        .map(|m| dir.path().join(format!("w{m}")))
                        .collect(),
                ),
                _ => Port::Connect(dir.path().join(format!("w{n}"))),
            });
            let log_name = if machine_count == 1 {
                "console.log".into()
            } else {
                format!("{name}.log")
            };
            let mut spec = Spec {
                lane: self.lane,
                image: stage.image(),
                modules: stage.modules(),
                initramfs: (self.kernel == Kernel::Stock).then(|| stage.initramfs()),
                init: layout.agent(),
                iproute: Some(layout.iproute()),
                ib_hwsim: Some(layout.ib_hwsim()),
                root: "/".into(),
                memory: self.memory,
                cpus: self.cpus.unwrap_or_else(|| self.default_cpus()),
                port,
                number: n + 1,
                icount: self.icount,
                plugin: self.plugin.clone(),
                append: self.append.clone(),
                terminal: self.terminal.clone(),
                dir: dir.path().to_owned(),
                log: layout
                    .build()
                    .join("logs")
                    .join(format!("{}-{}-{}", self.name, self.lane, self.kernel))
                    .join(log_name),
                boot_limit: Duration::from_secs(20) * self.slowness(),
                lifetime: self.lifetime * self.slowness(),
                name,
            };
            if self.kernel == Kernel::Debug && !self.has_kmemleak() {
                spec.append.push("kmemleak=off".to_owned());
            }
            if self.kernel.is_checked() {
                // The counters of deleted interfaces are logged at KERN_DEBUG.
                spec.append.push("loglevel=8".to_owned());
            }
            // The change that make mutants has this run try.
            if let Ok(change) = std::env::var("LAB_MUTANT") {
                spec.append.push(format!("ipoib_rs.mutant={change}"));
            }
            if self.kernel == Kernel::Stock {
                spec.append.extend(TRIMMED.map(str::to_owned));
            }
            if let Some(root) = self.debian.get(usize::from(n)) {
                debian(&layout, root, &mut spec)?;
            }
            machines.push(Machine::start(spec)?);
        }
        for machine in &machines {
            machine.wait()?;
        }

        let hosts = (0..self.hosts)
            .map(|n| Host {
                machine: Arc::clone(&machines[if self.one_machine { 0 } else { usize::from(n) }]),
                netns: self.one_machine.then(|| format!("h{n}")),
                number: n + 1,
                infiniband: self.infiniband,
                slowness: self.slowness(),
                sites: self.sites.clone(),
            })
            .collect();
        let bed = Bed {
            hosts,
            machines,
            builder: self,
            refusals: OnceLock::new(),
            healing: Mutex::default(),
            _slots: slots,
            _dir: dir,
        };
        bed.join()?;
        Ok(bed)
    }
}

/// Has a machine boot a Debian guest's own kernel and init.
fn debian(layout: &Layout, root: &Root, spec: &mut Spec) -> Result<()> {
    let initramfs = spec.dir.join(format!("{}.initramfs", spec.name));
    initramfs::write_with(
        &initramfs::program_path(layout),
        &root.path(),
        &root.release()?,
        &initramfs,
    )?;
    spec.image = root.image()?;
    spec.initramfs = Some(initramfs);
    spec.root = root.path();
    spec.init = "/sbin/init".into();
    // It has plugins and scripts of its own, or none.
    spec.iproute = None;
    spec.ib_hwsim = None;
    // systemd, and all that it starts, come on top of the kernel.
    spec.boot_limit *= 3;
    for word in [
        "lab.overlay",
        // Interfaces keep the kernel's names.
        "net.ifnames=0",
        // The console is the kernel's.
        "systemd.mask=serial-getty@ttyS0.service",
        "systemd.show_status=false",
    ] {
        spec.append.push(word.to_owned());
    }
    spec.append.push(format!("systemd.hostname={}", spec.name));
    spec.append
        .push(format!("systemd.machine_id={:032x}", spec.number));
    Ok(())
}

/// Counters that may tell that the driver has healed itself.
#[derive(Default)]
struct Healing {
    /// Those that have to.
    wanted: Vec<&'static str>,
    allowed: Vec<&'static str>,
    /// The connection manager's queue pair may be in error.
    gsi: bool,
}

/// Hosts that run. Dropping it kills them; [`Bed::finish`] ends them and judges their logs.
pub struct Bed {
    /// The hosts, all on one Ethernet.
    pub hosts: Vec<Host>,
    machines: Vec<Arc<Machine>>,
    builder: Builder,
    /// Why a subnet manager may refuse a request to leave a group.
    refusals: OnceLock<&'static str>,
    healing: Mutex<Healing>,
    _slots: Slots,
    // After the machines: they hold sockets in it.
    _dir: tempfile::TempDir,
}

impl Bed {
    /// Gives every host its `eth0`.
    fn join(&self) -> Result<()> {
        let mtu = self.builder.mtu;
        if !self.builder.debian.is_empty() {
            return Ok(());
        }
        if self.builder.one_machine {
            let root = self.hosts[0].outside();
            let mut script = String::new();
            for host in &self.hosts {
                script += &format!("netns add h{}\n", host.number - 1);
            }
            if self.hosts.len() == 2 {
                script += &format!(
                    "link add eth0 netns h0 address 52:54:00:1b:00:01 mtu {mtu} type veth \
                     peer name eth0 netns h1 address 52:54:00:1b:00:02 mtu {mtu}\n"
                );
            } else {
                script += &format!(
                    "link add wire mtu {mtu} type veth peer name end mtu {mtu}\n\
                     link set wire up\nlink set end up\n"
                );
                for host in &self.hosts {
                    script += &format!(
                        "link add link wire name eth0 netns h{} address 52:54:00:1b:00:{:02x} mtu {mtu} \
                         type macvlan mode bridge bcqueuelen 100000\n",
                        host.number - 1,
                        host.number
                    );
                }
            }
            root.ip(&script).context("join the hosts")?;
        }
        for host in &self.hosts {
            host.ethernet_up(mtu)?;
        }
        Ok(())
    }

    /// Resets a host that is a machine of its own, as by its button, and gives it its Ethernet
    /// again unless it is a Debian guest.
    pub fn reset(&self, host: &Host) -> Result<()> {
        host.machine.reset()?;
        if self.builder.debian.is_empty() {
            host.ethernet_up(self.builder.mtu)?;
        }
        Ok(())
    }

    /// The machines that the hosts live on.
    #[must_use]
    pub fn machines(&self) -> &[Arc<Machine>] {
        &self.machines
    }

    /// How it was made.
    #[must_use]
    pub fn builder(&self) -> &Builder {
        &self.builder
    }

    /// The two hosts of a bed of two.
    pub fn pair(&self) -> Result<(&Host, &Host)> {
        match self.hosts.as_slice() {
            [a, b] => Ok((a, b)),
            hosts => anyhow::bail!("a bed of {} hosts is no pair", hosts.len()),
        }
    }

    /// The driver is to heal itself, as these of [`accounts::HEALED`] count: each on one interface at least.
    pub fn heals(&self, counters: &[&'static str]) {
        self.healing().wanted.extend(counters);
    }

    /// The driver may have to heal itself, as these of [`accounts::HEALED`] count, for this reason.
    pub fn may_heal(&self, counters: &[&'static str], _reason: &'static str) {
        self.healing().allowed.extend(counters);
    }

    /// The queue pair of the connection manager may be left in error, for this reason: then there are no connections.
    pub fn may_lose_gsi(&self, _reason: &'static str) {
        self.healing().gsi = true;
    }

    /// The Ethernet below soft-RoCE goes down or loses addresses. Soft-RoCE ends the queue pair of a packet that the network
    /// stack refuses: an interface may restart for that, and the connection manager lose its own.
    pub fn loses_ethernet(&self) {
        let reason = "soft-RoCE ends the queue pair of a packet without a route";
        self.may_heal(&["self_restarts"], reason);
        self.may_lose_gsi(reason);
    }

    fn healing(&self) -> MutexGuard<'_, Healing> {
        self.healing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counters of all interfaces of the driver.
    fn counters(&self) -> Result<Vec<(String, Counters)>> {
        let mut all = Vec::new();
        for machine in &self.machines {
            let command = Command {
                argv: ["sh", "-c", accounts::READ].map(str::to_owned).into(),
                ..Command::default()
            };
            let limit = Duration::from_secs(30) * self.builder.slowness();
            let text = machine.run(command, limit)?.ok()?;
            all.extend(accounts::parse(&text, self.healing().gsi)?);
        }
        Ok(all)
    }

    /// Fails unless the counters of each interface add up (`Documentation/accounts.rst`), and no frame is under way. Frames
    /// that move have time to arrive. Returns the counters.
    pub fn accounts(&self) -> Result<Vec<(String, Counters)>> {
        let deadline = Instant::now() + SETTLE * self.builder.slowness();
        loop {
            let result = self.counters().and_then(add_up);
            if result.is_ok() || Instant::now() > deadline {
                return result;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Fails if the counters of deleted interfaces do not add up, or those of any tell that the driver has healed itself
    /// and the scenario does not. Base kernels' drivers say nothing of deleted interfaces.
    fn nothing_healed(&self, mut all: Vec<(String, Counters)>) -> Result<()> {
        for machine in &self.machines {
            let deleted = accounts::last_words(&machine.console().lines())?;
            all.extend(add_up(deleted)?);
        }
        let healing = self.healing();
        let told = accounts::healed(&all, &healing.wanted, &healing.allowed)?;
        ensure!(told.is_empty(), "the driver has healed itself:\n{told}");
        Ok(())
    }

    /// A subnet manager may refuse a request to leave a group, for this reason.
    pub fn expect_refused_leaves(&self, reason: &'static str) {
        let _ = self.refusals.set(reason);
    }

    /// Fails if a subnet manager was asked to take a port out of a group that it is not in.
    fn refused_leaves(&self) -> Result<()> {
        if self.refusals.get().is_some() || !self.builder.debian.is_empty() {
            return Ok(());
        }
        for machine in &self.machines {
            let script = "grep -h 'ERR 1B25' /var/log/opensm*.log* || :";
            let command = Command {
                argv: ["sh", "-c", script].map(str::to_owned).into(),
                ..Command::default()
            };
            let limit = Duration::from_secs(30) * self.builder.slowness();
            let refused = machine.run(command, limit)?.ok()?;
            ensure!(
                refused.is_empty(),
                "a group was left by who was not in it:\n{refused}"
            );
        }
        Ok(())
    }

    /// Switches everything off; fails if any kernel had something to report, the driver has lost a frame or healed itself,
    /// or a subnet manager has refused a request to leave a group.
    pub fn finish(self) -> Result<()> {
        let counters = self.accounts()?;
        self.refused_leaves()?;
        for machine in &self.machines {
            if self.builder.has_kmemleak() {
                kmemleak(machine, self.builder.lane)?;
            }
            machine.finish()?;
        }
        self.nothing_healed(counters)
    }
}

/// Returns the counters of interfaces if they add up.
fn add_up(all: Vec<(String, Counters)>) -> Result<Vec<(String, Counters)>> {
    let mut wrong = String::new();
    for (name, counters) in &all {
        let differences = accounts::differences(counters)?;
        if !differences.is_empty() {
            let all: Vec<_> = counters.iter().filter(|(_, n)| **n > 0).collect();
            wrong += &format!("{name}: {}\n{all:?}\n", differences.join("\n"));
        }
    }
    ensure!(wrong.is_empty(), "the counters do not add up: {wrong}");
    Ok(all)
}

/// Fails if the kernel knows of memory that leaked.
///
/// kmemleak takes an object for leaked when it is five seconds old and two scans find no pointer to it.
fn kmemleak(machine: &Machine, lane: Lane) -> Result<()> {
    const FILE: &str = "/sys/kernel/debug/kmemleak";
    std::thread::sleep(Duration::from_millis(5500));
    for _ in 0..2 {
        machine.write(FILE, "scan")?;
    }
    let report = machine.read(FILE)?;
    let leaks = match lane {
        // Its traces are empty, and all that leaks is ours.
        Lane::Uml => report,
        Lane::Qemu => leaks(&report),
    };
    ensure!(leaks.is_empty(), "kmemleak:\n{leaks}");
    Ok(())
}

/// Objects in kmemleak's report that this checkout's modules have allocated. An x86 kernel itself has objects that
/// kmemleak does not find the pointers to.
fn leaks(report: &str) -> String {
    report
        .split_inclusive('\n')
        .fold(Vec::<String>::new(), |mut objects, line| {
            match objects.last_mut() {
                Some(object) if !line.starts_with("unreferenced object") => object.push_str(line),
                _ => objects.push(line.to_owned()),
            }
            objects
        })
        .into_iter()
        .filter(|object| {
            MODULES
                .iter()
                .any(|name| object.contains(&format!("[{name}]")))
        })
        .collect()
}

/// A host: a machine of its own, or a network namespace in one.
#[derive(Clone)]
pub struct Host {
    machine: Arc<Machine>,
    netns: Option<String>,
    /// From 1: the last part of its addresses.
    number: u8,
    infiniband: bool,
    slowness: u32,
    sites: Sites,
}

/// Impairments of the frames that a host sends. Percentages are 0…100.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Netem {
    /// Milliseconds of delay.
    pub delay_ms: u32,
    /// Milliseconds that the delay varies by.
    pub jitter_ms: u32,
    /// Frames lost, in percent.
    pub loss: f32,
    /// Frames that overtake the delayed ones, in percent; needs a delay.
    pub reorder: f32,
    /// Frames with one flipped bit, in percent.
    pub corrupt: f32,
    /// Frames sent twice, in percent.
    pub duplicate: f32,
}

impl Netem {
    fn arguments(self) -> String {
        let mut args = String::new();
        if self.delay_ms > 0 || self.jitter_ms > 0 {
            args += &format!(" delay {}ms {}ms", self.delay_ms, self.jitter_ms);
        }
        for (name, percent) in [
            ("loss", self.loss),
            ("reorder", self.reorder),
            ("duplicate", self.duplicate),
        ] {
            if percent > 0.0 {
                args += &format!(" {name} {percent}%");
            }
        }
        // A change leaves this one as it was unless told.
        args + &format!(" corrupt {}%", self.corrupt)
    }
}

impl Host {
    /// Its number, from 1: the last part of its addresses.
    #[must_use]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The machine that it lives on, maybe with others.
    #[must_use]
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Returns true if its port is one of InfiniBand.
    #[must_use]
    pub fn is_infiniband(&self) -> bool {
        self.infiniband
    }

    /// Its network namespace; none if it is a machine of its own.
    #[must_use]
    pub fn netns(&self) -> Option<&str> {
        self.netns.as_deref()
    }

    /// Its IPv4 address on the Ethernet.
    #[must_use]
    pub fn eth4(&self) -> String {
        format!("192.0.2.{}", self.number)
    }

    /// Its IPv4 address on `ib0`.
    #[must_use]
    pub fn ip4(&self) -> String {
        format!("10.1.0.{}", self.number)
    }

    /// Its IPv6 address on `ib0`.
    #[must_use]
    pub fn ip6(&self) -> String {
        format!("fd00:1::{}", self.number)
    }

    /// `limit` as it is on this lane with this kernel.
    #[must_use]
    pub fn scaled(&self, limit: Duration) -> Duration {
        limit * self.slowness
    }

    /// The machine itself: the same host outside of its network namespace.
    #[must_use]
    pub fn outside(&self) -> Host {
        Host {
            netns: None,
            ..self.clone()
        }
    }

    /// A further host, with a number of its own: a network namespace of this name on the machine.
    #[must_use]
    pub fn inside(&self, netns: &str, number: u8) -> Host {
        Host {
            netns: Some(netns.to_owned()),
            number,
            ..self.clone()
        }
    }

    /// Makes a network namespace `name` on the machine with a process in it. That lives as long as the
    /// task; interfaces are moved there by its number, since a name is only known where it was made.
    pub fn netns_add(&self, name: &str) -> Result<(Task, String)> {
        let outside = self.outside();
        outside.ok(&format!("ip netns add {name}"))?;
        let holder = outside.spawn(&format!("ip netns exec {name} sleep 1000"))?;
        // It takes a moment until it is there.
        outside.wait_until(
            &format!("ip netns pids {name} | grep -q ."),
            Duration::from_secs(10),
        )?;
        let inside = outside.ok(&format!("ip netns pids {name}"))?;
        let pid = inside.split_whitespace().next().context("no process")?;
        Ok((holder, pid.to_owned()))
    }

    fn command(&self, script: &str, arguments: &[&str]) -> Command {
        // A shell takes the first argument for its own name.
        let name = (!arguments.is_empty()).then_some("sh");
        let argv = ["sh", "-c", script].into_iter().chain(name);
        Command {
            argv: argv
                .chain(arguments.iter().copied())
                .map(str::to_owned)
                .collect(),
            netns: self.netns.clone(),
            ..Command::default()
        }
    }

    /// Runs `f`, during which the host's kernel is to make reports, as [`Machine::expecting`] has it.
    pub fn expecting<T>(&self, patterns: &[&str], f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.machine.expecting(patterns, f)
    }

    /// Runs `f`, during which the host's kernel may make reports, as [`Machine::tolerating`] has it.
    pub fn tolerating<T>(&self, pattern: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
        self.machine.tolerating(pattern, f)
    }

    /// Runs a shell command; 30 seconds at most on the base kernel of the uml lane.
    pub fn run(&self, script: &str) -> Result<Output> {
        self.run_for(script, Duration::from_secs(30))
    }

    /// Runs a shell command with a time limit of its own, scaled to the lane and kernel.
    pub fn run_for(&self, script: &str, limit: Duration) -> Result<Output> {
        self.sh_for(script, &[], limit)
    }

    /// Runs a shell command that must succeed; its standard output.
    pub fn ok(&self, script: &str) -> Result<String> {
        self.run(script)?.ok()
    }

    /// Runs a shell program of `tests/guest`, which must succeed; its standard output.
    pub fn sh(&self, program: &str, arguments: &[&str]) -> Result<String> {
        self.sh_for(program, arguments, Duration::from_secs(30))?
            .ok()
    }

    /// Runs such a program with a time limit of its own, as [`Host::run_for`] has it.
    pub fn sh_for(&self, program: &str, arguments: &[&str], limit: Duration) -> Result<Output> {
        self.machine
            .run(self.command(program, arguments), self.scaled(limit))
    }

    /// Runs lines of `ip`, all of which must succeed, by one process: to start that takes a guest longer than most lines.
    pub fn ip(&self, lines: &str) -> Result<()> {
        self.ok(&format!("exec ip -batch - <<.\n{lines}\n.\n"))?;
        Ok(())
    }

    /// Starts a shell script in the background.
    #[track_caller]
    pub fn spawn(&self, script: &str) -> Result<Task> {
        self.start(self.command(script, &[]))
    }

    /// Starts a command in the background, or `true` in its place at the site that `make test HOLLOW=1` tries.
    #[track_caller]
    fn start(&self, mut command: Command) -> Result<Task> {
        if self.sites.note(Location::caller()) {
            command.argv = vec!["true".to_owned()];
        }
        self.machine.spawn(command)
    }

    /// Runs a shell script in the background, again and again until it is stopped, once at least.
    #[track_caller]
    pub fn repeat(&self, script: &str) -> Result<Task> {
        self.spawn(&repeated(script))
    }

    /// Runs a Python program.
    pub fn python(&self, program: &str, arguments: &[&str]) -> Result<Output> {
        let mut command = self.python_command(program);
        command
            .argv
            .extend(arguments.iter().map(|a| (*a).to_owned()));
        self.machine
            .run(command, self.scaled(Duration::from_secs(30)))
    }

    /// Starts a Python program in the background.
    #[track_caller]
    pub fn spawn_python(&self, program: &str, arguments: &[&str]) -> Result<Task> {
        let mut command = self.python_command(program);
        command
            .argv
            .extend(arguments.iter().map(|a| (*a).to_owned()));
        self.start(command)
    }

    fn python_command(&self, program: &str) -> Command {
        Command {
            argv: vec!["python3".into(), "-u".into(), "-".into()],
            netns: self.netns.clone(),
            stdin: program.into(),
            ..Command::default()
        }
    }

    /// Sets what the wire does to the frames that this host sends.
    ///
    /// The first call puts a queueing discipline in place, which stays. While one is being replaced, Ethernet
    /// refuses frames, and soft-RoCE ends the queue pair that has sent one: for good, if it is the CM's. Where
    /// something is sent all the time, make a first call, with `Netem::default()`, before that begins.
    pub fn netem(&self, netem: Netem) -> Result<()> {
        let netem = format!("dev eth0 root netem limit 10000{}", netem.arguments());
        self.ok(&format!(
            "tc qdisc change {netem} 2>/dev/null || tc qdisc replace {netem}"
        ))?;
        Ok(())
    }

    /// Brings `eth0` up with its addresses.
    pub fn ethernet_up(&self, mtu: u32) -> Result<()> {
        // Without duplicate address detection, which would take seconds of every boot.
        self.ok(&format!(
            "echo 0 >/proc/sys/net/ipv6/conf/eth0/accept_dad
             exec ip -batch - <<.
             link set lo up
             link set eth0 mtu {mtu} up
             addr add {}/24 dev eth0\n.\n",
            self.eth4()
        ))
        .with_context(|| format!("eth0 of host {}", self.number))?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Netem, leaks};

    #[test]
    fn leaks_of_others_do_not_count() {
        let boot = "unreferenced object 0x62432ec0 (size 32):\n  comm \"swapper\", pid 0, jiffies 4294937296\n  backtrace (crc 2e914491):\n    kmalloc_node+0x1/0x2\n";
        let ours = "unreferenced object 0x62432ed0 (size 8):\n  comm \"ip\", pid 77, jiffies 4294937999\n  backtrace (crc 2e914492):\n    krealloc+0x1/0x2\n    init+0x3/0x4 [ipoib_rs]\n";
        assert_eq!(leaks(&format!("{boot}{ours}{boot}")), ours);
        assert_eq!(leaks(boot), "");
        assert_eq!(leaks(""), "");
    }

    #[test]
    fn netem_arguments() {
        assert_eq!(Netem::default().arguments(), " corrupt 0%");
        let netem = Netem {
            delay_ms: 2,
            reorder: 25.0,
            corrupt: 0.5,
            ..Netem::default()
        };
        assert_eq!(netem.arguments(), " delay 2ms 0ms reorder 25% corrupt 0.5%");
    }
}
