// SPDX-License-Identifier: GPL-2.0

//! One guest machine: a kernel, its agent and its console, on either lane.

use crate::agent::{Agent, REPLY_GRACE};
use crate::console::Console;
use crate::task::{Task, counts};
use crate::{qemu, uml};
use anyhow::{Context, Result, bail, ensure};
use lab_wire::{Answer, Ask, Command};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use regex::Regex;
use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::str::FromStr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How a guest's kernel runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Lane {
    /// User Mode Linux: the kernel is a process; hosts are network namespaces.
    Uml,
    /// A QEMU virtual machine per host.
    Qemu,
}

/// Which kernel a guest boots.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, clap::ValueEnum)]
pub enum Kernel {
    /// As users run it. On User Mode Linux it has the cheap checkers, and one CPU, with which it can have simulated time.
    Base,
    /// With every checker that the lane can carry.
    Debug,
    /// With lockdep, which finds deadlocks before they happen; User Mode Linux only. QEMU's debug kernel has it, too.
    Lockdep,
    /// With KCSAN, the detector of data races, which excludes KASAN; QEMU only.
    Kcsan,
    /// With one CPU, simulated time, and every checker of the debug kernel; User Mode Linux only.
    SimDebug,
    /// A distribution's own, as its packages bring it; QEMU only.
    Stock,
}

impl Kernel {
    /// Returns true if it makes allocations fail where it is told to, on each lane that has it.
    #[must_use]
    pub fn injects_faults(self) -> bool {
        matches!(self, Kernel::Debug | Kernel::Lockdep | Kernel::SimDebug)
    }

    /// Returns true if it has checkers, which make everything slower.
    #[must_use]
    pub fn is_checked(self) -> bool {
        matches!(
            self,
            Kernel::Debug | Kernel::Lockdep | Kernel::Kcsan | Kernel::SimDebug
        )
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lane::Uml => "uml",
            Lane::Qemu => "qemu",
        })
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kernel::Base => "base",
            Kernel::Debug => "debug",
            Kernel::Lockdep => "lockdep",
            Kernel::Kcsan => "kcsan",
            Kernel::SimDebug => "sim-debug",
            Kernel::Stock => "stock",
        })
    }
}

impl FromStr for Kernel {
    type Err = anyhow::Error;

    fn from_str(s: &str) -> Result<Kernel> {
        match s {
            "base" => Ok(Kernel::Base),
            "debug" => Ok(Kernel::Debug),
            "lockdep" => Ok(Kernel::Lockdep),
            "kcsan" => Ok(Kernel::Kcsan),
            "sim-debug" => Ok(Kernel::SimDebug),
            "stock" => Ok(Kernel::Stock),
            _ => bail!("no such kernel: {s} (base, debug, lockdep, kcsan, sim-debug, stock)"),
        }
    }
}

/// A virtual Ethernet port of a QEMU machine.
#[derive(Debug, Clone)]
pub enum Port {
    /// Waits for a neighbour at each of these sockets; several make a hub, none a sink.
    Listen(Vec<PathBuf>),
    /// Connects to a neighbour's socket, again and again.
    Connect(PathBuf),
}

/// Description of a machine.
#[derive(Debug, Clone)]
pub struct Spec {
    /// For messages and file names.
    pub name: String,
    /// Where it runs.
    pub lane: Lane,
    /// The kernel image.
    pub image: PathBuf,
    /// Initramfs, for a kernel that cannot mount its root by itself; QEMU only.
    pub initramfs: Option<PathBuf>,
    /// Directory that holds `lib/modules/<release>`.
    pub modules: PathBuf,
    /// The root's first program: the agent, or an init that starts it.
    pub init: PathBuf,
    /// Where `ip` looks for its plugins, if not where the root has them.
    pub iproute: Option<PathBuf>,
    /// The script `ib-hwsim` that the agent adds to the root, if any.
    pub ib_hwsim: Option<PathBuf>,
    /// The directory that becomes the guest's root, read-only.
    pub root: PathBuf,
    /// Memory in MiB.
    pub memory: u32,
    /// Virtual CPUs.
    pub cpus: u32,
    /// Virtual Ethernet port; QEMU only.
    pub port: Option<Port>,
    /// Number that tells this machine's Ethernet address from its neighbours'.
    pub number: u8,
    /// Guest time is the count of executed instructions; QEMU only.
    pub icount: bool,
    /// A plugin of the emulator, with its arguments; QEMU only, and without KVM.
    pub plugin: Option<String>,
    /// The other end of a terminal, the guest's tty2; UML only.
    pub terminal: Option<Arc<UnixStream>>,
    /// More words for the kernel command line.
    pub append: Vec<String>,
    /// Sockets and other files of the run; a short path, as sockets want it.
    pub dir: PathBuf,
    /// Where the console's log goes.
    pub log: PathBuf,
    /// From start to the agent's first word.
    pub boot_limit: Duration,
    /// After so long nothing is answered any more: a scenario that hangs has an end.
    pub lifetime: Duration,
}

impl Spec {
    /// The kernel command line that both lanes share.
    pub(crate) fn command_line(&self, channel: &str) -> Vec<String> {
        let mut words = vec![
            "ro".to_owned(),
            format!("init={}", self.init.display()),
            "panic=0".to_owned(),
            "oops=panic".to_owned(),
            "loglevel=7".to_owned(),
            "printk.devkmsg=on".to_owned(),
            "dummy.numdummies=0".to_owned(),
            format!("lab.channel={channel}"),
            format!("lab.modules={}", self.modules.display()),
            format!("lab.hostname={}", self.name),
        ];
        // The kernel hands what it does not know to init, in its environment.
        words.push("PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".to_owned());
        words.extend(
            self.iproute
                .iter()
                .map(|dir| format!("IP_LIB_DIR={}", dir.display())),
        );
        words.extend(
            self.ib_hwsim
                .iter()
                .map(|script| format!("lab.ib-hwsim={}", script.display())),
        );
        words.extend(self.append.iter().cloned());
        words
    }
}

/// Output and status of a command.
#[derive(Debug, Clone)]
pub struct Output {
    /// The command, for messages.
    pub what: String,
    /// Exit code; none when a signal or the time limit ended it, or while it runs.
    pub code: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It ran into its time limit.
    pub timed_out: bool,
    /// Standard output.
    pub stdout: String,
    /// Standard error.
    pub stderr: String,
}

impl Output {
    pub(crate) fn new(what: String, answer: Answer) -> Result<Output> {
        let Answer::Exited {
            code,
            signal,
            timed_out,
            stdout,
            stderr,
        } = answer
        else {
            bail!("{what}: unexpected answer {answer:?}");
        };
        Ok(Output {
            what,
            code,
            signal,
            timed_out,
            stdout: String::from_utf8_lossy(&stdout).into_owned(),
            stderr: String::from_utf8_lossy(&stderr).into_owned(),
        })
    }

    /// It ended with exit code 0.
    #[must_use]
    pub fn success(&self) -> bool {
        self.code == Some(0)
    }

    /// It has not ended yet.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.code.is_none() && self.signal.is_none()
    }

    /// Standard output if the command succeeded, else an error that tells all.
    pub fn ok(self) -> Result<String> {
        if self.success() {
            return Ok(self.stdout);
        }
        bail!("{}", self.describe())
    }

    /// Both outputs if the command failed with an exit code of its own, else an error.
    pub fn refused(self) -> Result<String> {
        if matches!(self.code, Some(c) if c != 0) {
            return Ok(format!("{}{}", self.stdout, self.stderr));
        }
        bail!("should have been refused: {}", self.describe())
    }

    /// All there is to tell.
    #[must_use]
    pub fn describe(&self) -> String {
        let end = match (self.timed_out, self.code, self.signal) {
            (true, _, _) => "ran into its time limit".to_owned(),
            (_, Some(code), _) => format!("exit code {code}"),
            (_, _, Some(signal)) => format!("killed by signal {signal}"),
            _ => "running".to_owned(),
        };
        format!("`{}`: {end}\n{}{}", self.what, self.stdout, self.stderr)
    }
}

/// A running guest.
pub struct Machine {
    spec: Spec,
    process: Mutex<Child>,
    agent: Agent,
    console: Console,
    /// Background commands that nobody has seen the end of.
    tasks: Mutex<BTreeMap<u64, String>>,
}

impl Machine {
    /// Starts a machine and its agent's connection; [`Machine::wait`] sees it up.
    pub fn start(spec: Spec) -> Result<Arc<Machine>> {
        for dir in [Some(spec.dir.as_path()), spec.log.parent()]
            .into_iter()
            .flatten()
        {
            std::fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        if !spec.image.exists() {
            bail!("there is no kernel at {}", spec.image.display());
        }
        let (mut command, connect) = match spec.lane {
            Lane::Uml => uml::command(&spec)?,
            Lane::Qemu => qemu::command(&spec),
        };
        let (console_out, console_in) =
            nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC).context("pipe")?;
        let process = command
            .stdout(Stdio::from(console_in.try_clone()?))
            .stderr(Stdio::from(console_in))
            .process_group(0)
            .spawn()
            .with_context(|| format!("start {:?}", command.get_program()))?;
        // Its copy of the pipe's writing end would keep the console open for ever.
        drop(command);
        let console = Console::follow(File::from(console_out), &spec.log)?;
        let guard = Killer(Some(process));
        let stream = connect.connect(&console)?;
        let agent = Agent::new(stream, console.clone(), spec.lifetime)?;
        Ok(Arc::new(Machine {
            spec,
            process: Mutex::new(guard.release()?),
            agent,
            console,
            tasks: Mutex::default(),
        }))
    }

    /// Waits until the guest serves; its kernel's release.
    pub fn wait(&self) -> Result<String> {
        self.agent
            .wait_hello(self.spec.boot_limit)
            .with_context(|| format!("{} does not boot", self.spec.name))
    }

    /// Its description.
    #[must_use]
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// The kernel's log.
    #[must_use]
    pub fn console(&self) -> &Console {
        &self.console
    }

    /// Runs a command to its end.
    pub fn run(&self, command: Command, limit: Duration) -> Result<Output> {
        let what = command.argv.join(" ");
        let limit_ms = u64::try_from(limit.as_millis()).unwrap_or(u64::MAX);
        let answer = self
            .agent
            .ask(Ask::Run { command, limit_ms }, limit + REPLY_GRACE)
            .with_context(|| what.clone())?;
        Output::new(what, answer)
    }

    /// Starts a command in the background.
    pub fn spawn(self: &Arc<Self>, command: Command) -> Result<Task> {
        let what = command.argv.join(" ");
        let counts = counts(&what) || counts(&String::from_utf8_lossy(&command.stdin));
        match self
            .agent
            .ask(Ask::Spawn(command), REPLY_GRACE)
            .with_context(|| what.clone())?
        {
            Answer::Started { task } => {
                self.tasks().insert(task, what.clone());
                Ok(Task::new(Arc::clone(self), task, what, counts))
            }
            answer => bail!("{what}: unexpected answer {answer:?}"),
        }
    }

    /// Background commands that nobody has seen the end of.
    pub(crate) fn tasks(&self) -> MutexGuard<'_, BTreeMap<u64, String>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the agent of a background command; [`Task`] has the words for it.
    pub(crate) fn ask(&self, ask: Ask, limit: Duration) -> Result<Answer> {
        self.agent.ask(ask, limit)
    }

    /// Fails if a background command has ended that nobody has seen the end of: what relied on it has shown nothing.
    fn all_run(&self) -> Result<()> {
        for (id, what) in self.tasks().iter() {
            let answer = self.agent.ask(Ask::Peek { task: *id }, REPLY_GRACE)?;
            let output = Output::new(what.clone(), answer)?;
            ensure!(
                output.is_running(),
                "ended by itself: {}",
                output.describe()
            );
        }
        Ok(())
    }

    /// Reads a text file of the guest.
    pub fn read(&self, path: &str) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.read_bytes(path)?).into_owned())
    }

    /// Reads a file of the guest.
    pub fn read_bytes(&self, path: &str) -> Result<Vec<u8>> {
        match self
            .agent
            .ask(Ask::Read { path: path.into() }, REPLY_GRACE)?
        {
            Answer::File { data } => Ok(data),
            answer => bail!("{path}: unexpected answer {answer:?}"),
        }
    }

    /// Writes a file of the guest. What that sets off may take its time: kmemleak looks through all memory.
    pub fn write(&self, path: &str, data: &str) -> Result<()> {
        let ask = Ask::Write {
            path: path.into(),
            data: data.into(),
        };
        self.agent.ask(ask, 6 * REPLY_GRACE)?;
        Ok(())
    }

    /// Restarts the machine as a reset button does, and waits until it serves again.
    pub fn reset(&self) -> Result<()> {
        if self.spec.lane == Lane::Uml {
            bail!("a UML machine cannot be reset: its hosts share one kernel");
        }
        self.agent.tell(Ask::Reset)?;
        self.tasks().clear();
        self.wait()?;
        Ok(())
    }

    /// Writes a line of its own to the kernel's log; the number that it has on the console.
    fn mark(&self) -> Result<usize> {
        static MARKS: AtomicUsize = AtomicUsize::new(0);
        let mark = format!("lab: mark {}.", MARKS.fetch_add(1, Ordering::Relaxed));
        self.write("/dev/kmsg", &format!("{mark}\n"))?;
        self.console.number_of(&mark, REPLY_GRACE)
    }

    /// Runs `f`, during which the kernel is to make reports: each of `patterns` has to match the head line of one, such as
    /// `WARNING: …`, and no other report is wanted.
    pub fn expecting<T>(&self, patterns: &[&str], f: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.console.expect(compiled(patterns)?, self.mark()?);
        let result = f()?;
        self.console.expected(number, self.mark()?)?;
        Ok(result)
    }

    /// Runs `f`, during which the kernel may make reports whose head lines match `pattern`, if it comes to that.
    pub fn tolerating<T>(&self, pattern: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let number = self.console.expect(compiled(&[pattern])?, self.mark()?);
        let result = f()?;
        self.console.over(number, self.mark()?);
        Ok(result)
    }

    /// Switches the machine off and judges its log.
    pub fn finish(&self) -> Result<()> {
        self.agent
            .ask(Ask::Ping, REPLY_GRACE)
            .context("at the end")?;
        self.all_run()?;
        self.agent.ask(Ask::PowerOff, REPLY_GRACE)?;
        // Ten seconds, and more where all is slower.
        let deadline = std::time::Instant::now() + self.spec.boot_limit / 2;
        while !self.console.is_closed() && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        self.console.verdict()?;
        ensure!(
            self.console.is_closed(),
            "{} does not power off:\n{}",
            self.spec.name,
            self.console.tail(20)
        );
        Ok(())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        kill(&mut self.process.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

/// Patterns of reports.
fn compiled(patterns: &[&str]) -> Result<Vec<Regex>> {
    patterns
        .iter()
        .map(|pattern| Regex::new(pattern).with_context(|| (*pattern).to_owned()))
        .collect()
}

/// Ends a machine's whole process group.
fn kill(process: &mut Child) {
    if let Ok(pid) = i32::try_from(process.id()) {
        // Gone already is fine.
        let _ = killpg(Pid::from_raw(pid), Signal::SIGKILL);
    }
    let _ = process.wait();
}

/// Kills a machine that could not be brought to life.
struct Killer(Option<Child>);

impl Killer {
    fn release(mut self) -> Result<Child> {
        self.0.take().context("the process was taken before")
    }
}

impl Drop for Killer {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            kill(process);
        }
    }
}

/// How the lab gets at a machine's channel.
pub(crate) enum Connect {
    /// The other end is the machine's already.
    Ready(UnixStream),
    /// The machine listens here, in a moment.
    Socket(PathBuf),
}

impl Connect {
    fn connect(self, console: &Console) -> Result<UnixStream> {
        match self {
            Connect::Ready(stream) => Ok(stream),
            Connect::Socket(path) => connect(&path, console),
        }
    }
}

fn connect(path: &Path, console: &Console) -> Result<UnixStream> {
    for _ in 0..1000 {
        if let Ok(stream) = UnixStream::connect(path) {
            return Ok(stream);
        }
        if console.is_closed() {
            bail!("the machine does not start:\n{}", console.tail(20));
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    bail!(
        "the machine does not open {}:\n{}",
        path.display(),
        console.tail(20)
    )
}

/// A connected pair: the lab's end and the machine's.
pub(crate) fn channel_pair() -> Result<(UnixStream, OwnedFd)> {
    let (ours, theirs) = UnixStream::pair().context("socketpair")?;
    Ok((ours, theirs.into()))
}
