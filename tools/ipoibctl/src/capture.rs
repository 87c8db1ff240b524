// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl capture`: the packets on the links below IPoIB interfaces, in a file for Wireshark.

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod checks;
mod decode;
mod file;
mod hwsim;
mod socket;

use crate::facts::{Facts, Port};
use crate::gather;
use crate::screen::Screen;
use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use decode::{Kind, of_erf, of_ethernet, packet};
use file::{Count, File, Record};
use hwsim::Hwsim;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use pcap_file::DataLink;
use serde::Serialize;
use socket::{MOST, Socket};
use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Interval at which simulated adapters are asked for packets, and at which the file gets what is in memory.
const INTERVAL: Duration = Duration::from_millis(200);

/// Options of `ipoibctl capture`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Capture below this interface only.
    #[arg(long, value_name = "NAME")]
    interface: Vec<String>,
    /// Stop after COUNT packets.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    packets: Option<u64>,
    /// Stop after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
    /// File to write, in the format pcapng; "-" for standard output.
    file: PathBuf,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    status: u8,
    file: PathBuf,
    links: Vec<String>,
    #[serde(flatten)]
    count: Count,
    /// Packets that came too fast.
    lost: u64,
}

/// A link that packets are captured on.
enum Tap {
    Ethernet(Socket),
    Simulated(Hwsim),
}

/// A link, and its name.
struct Link {
    tap: Tap,
    name: String,
    lost: u64,
}

impl Link {
    /// The link below a port.
    fn new(port: &Port, facts: &Facts) -> Result<Link> {
        let device = &port.device;
        if !port.is_roce() {
            let Some(tap) = Hwsim::new(Path::new("/"), device)? else {
                ensure!(
                    !port.software,
                    "{device}: the captures of simulated adapters are in configfs, which is not mounted here (mount -t \
                     configfs none /sys/kernel/config)"
                );
                bail!(
                    "{device}: packets of an InfiniBand adapter never come to the kernel; try tcpdump -i {device}, or \
                     the maker's own program"
                );
            };
            return Ok(Link {
                tap: Tap::Simulated(tap),
                name: device.clone(),
                lost: 0,
            });
        }
        ensure!(
            port.software,
            "{device}: an adapter that makes RoCE packets itself does not show them to the kernel; try tcpdump -i \
             {device}, or a mirror port of the switch"
        );
        let netdev = port
            .netdev()
            .with_context(|| format!("{device}: no Ethernet interface"))?;
        let link = facts
            .link(netdev)
            .with_context(|| format!("{device}: no interface {netdev} here"))?;
        Ok(Link {
            tap: Tap::Ethernet(Socket::new(link.index).with_context(|| netdev.to_owned())?),
            name: netdev.to_owned(),
            lost: 0,
        })
    }

    fn data_link(&self) -> DataLink {
        match self.tap {
            Tap::Ethernet(_) => DataLink::ETHERNET,
            Tap::Simulated(_) => DataLink::ERF,
        }
    }
}

/// The links below the interfaces that were asked for; below all, if none was.
fn links(options: &Options, facts: &Facts) -> Result<Vec<Link>> {
    for name in &options.interface {
        let known = facts
            .interfaces
            .iter()
            .any(|interface| interface.name == *name);
        ensure!(known, "{name} is no IPoIB interface here");
    }
    let mut seen = BTreeSet::new();
    let mut links = Vec::new();
    for interface in &facts.interfaces {
        let wanted = options.interface.is_empty() || options.interface.contains(&interface.name);
        if !wanted || !seen.insert((&interface.device, interface.port)) {
            continue;
        }
        let port = facts.port_of(interface);
        let port =
            port.with_context(|| format!("{}: its port is not visible from here", interface.name))?;
        links.push(Link::new(port, facts)?);
    }
    ensure!(!links.is_empty(), "there is no IPoIB interface");
    Ok(links)
}

/// Opens the file to write.
fn output(path: &Path) -> Result<Box<dyn Write>> {
    if path == Path::new("-") {
        let out = std::io::stdout();
        ensure!(
            !out.is_terminal(),
            "the file would go to a terminal; name one, or use a pipe"
        );
        return Ok(Box::new(out));
    }
    // Packets are nobody else's business.
    let mut open = fs::File::options();
    let file = open
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path);
    Ok(Box::new(file.with_context(|| path.display().to_string())?))
}

/// A capture under way.
struct Run {
    links: Vec<Link>,
    file: File,
    most: Option<u64>,
}

impl Run {
    fn is_full(&self) -> bool {
        self.most
            .is_some_and(|most| self.file.count.packets >= most)
    }

    /// Writes the packets that are there.
    fn take(&mut self, room: &mut [u8; MOST], whole: bool) -> Result<()> {
        let Run { links, file, most } = self;
        let full = |file: &File| most.is_some_and(|most| file.count.packets >= most);
        for (number, link) in (0..).zip(links) {
            match &mut link.tap {
                Tap::Ethernet(socket) => {
                    while !full(file) {
                        let Some(found) =
                            socket.receive(room).with_context(|| link.name.clone())?
                        else {
                            break;
                        };
                        file.packet(&Record {
                            link: number,
                            time: found.time,
                            bytes: found.bytes,
                            length: found.length,
                            outgoing: Some(found.outgoing),
                            decoded: of_ethernet(found.bytes).and_then(packet),
                        })?;
                    }
                    link.lost += socket.lost();
                }
                Tap::Simulated(hwsim) if whole => {
                    hwsim.poll(|time, bytes| {
                        if full(file) {
                            return Ok(());
                        }
                        file.packet(&Record {
                            link: number,
                            time,
                            bytes,
                            length: bytes.len(),
                            outgoing: None,
                            decoded: of_erf(bytes).and_then(packet),
                        })
                    })?;
                    link.lost = hwsim.lost();
                }
                Tap::Simulated(_) => {}
            }
        }
        Ok(())
    }

    /// Captures until a signal, the time limit or the last packet.
    fn until(&mut self, end: Option<Instant>, signals: &SignalFd) -> Result<()> {
        let mut room = Box::new([0; MOST]);
        let mut next = Instant::now() + INTERVAL;
        loop {
            let now = Instant::now();
            let is_over = end.is_some_and(|end| now >= end) || signals.read_signal()?.is_some();
            let whole = is_over || now >= next;
            self.take(&mut room, whole)?;
            if whole {
                self.file.flush()?;
                next = now + INTERVAL;
            }
            if is_over || self.is_full() {
                return self.file.flush();
            }
            let wait = end
                .map_or(next, |end| end.min(next))
                .saturating_duration_since(now);
            let wait = PollTimeout::try_from(wait + Duration::from_millis(1))?;
            let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            for link in &self.links {
                if let Tap::Ethernet(socket) = &link.tap {
                    fds.push(PollFd::new(socket.as_fd(), PollFlags::POLLIN));
                }
            }
            match poll(&mut fds, wait) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Captures packets. Returns the exit status: 1 if some were lost.
///
/// # Errors
///
/// There is nothing to capture, the process may not do that, or the file cannot be written.
pub(crate) fn run(options: &Options, json: bool, screen: &mut Screen) -> Result<u8> {
    let facts = gather::facts(false)?;
    let to_stdout = options.file == Path::new("-");
    ensure!(
        !json || !to_stdout,
        "--json prints a report, and cannot be used with a file on standard output"
    );
    // Before the capture begins: a signal must not leave one on.
    let mut mask = SigSet::empty();
    for signal in [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP] {
        mask.add(signal);
    }
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    let links = links(options, &facts)?;
    let mut file = File::new(output(&options.file)?)?;
    for link in &links {
        file.link(link.data_link(), &link.name, "below ipoib_rs")?;
    }
    file.flush()?;
    let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
    if !json {
        eprintln!("capturing on {}", names.join(", "));
    }
    let mut run = Run {
        links,
        file,
        most: options.packets,
    };
    let end = options
        .seconds
        .map(|seconds| Instant::now() + Duration::from_secs(seconds));
    match run.until(end, &signals) {
        Err(error) if is_broken_pipe(&error) => {}
        result => result?,
    }
    let lost = run.links.iter().map(|link| link.lost).sum();
    let report = Report {
        version: 1,
        status: u8::from(lost > 0),
        file: options.file.clone(),
        links: names,
        count: run.file.count,
        lost,
    };
    if json {
        screen.json(&report)?;
    } else if to_stdout {
        eprintln!("{}", words(&report));
    } else {
        screen.line("", &words(&report));
    }
    Ok(report.status)
}

/// Returns true if the reader has seen enough.
fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let of_file = error.downcast_ref::<std::io::Error>();
    let of_crate = match error.downcast_ref::<pcap_file::PcapError>() {
        Some(pcap_file::PcapError::IoError(error)) => Some(error),
        _ => None,
    };
    of_file
        .or(of_crate)
        .is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

/// The report in a sentence or two.
fn words(report: &Report) -> String {
    let of = |kind: Kind| report.count.kinds.get(&kind).copied().unwrap_or(0);
    let mut words = format!(
        "{} packets: {} datagrams and {} messages on connections with IPoIB frames, {} of them numbered, {} extended.",
        report.count.packets,
        of(Kind::Datagram),
        of(Kind::Connection),
        report.count.numbered,
        report.count.extended
    );
    if report.lost > 0 {
        words += &format!(" {} packets were lost: they came too fast.", report.lost);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::healthy::healthy;

    fn options(interfaces: &[&str]) -> Options {
        Options {
            interface: interfaces.iter().map(|name| (*name).to_owned()).collect(),
            packets: None,
            seconds: None,
            file: "-".into(),
        }
    }

    fn refusal(options: &Options, change: fn(&mut Facts)) -> String {
        let mut facts = healthy(true);
        change(&mut facts);
        let refused = links(options, &facts).err();
        refused
            .map(|error| format!("{error:#}"))
            .expect("it is refused")
    }

    #[test]
    fn there_is_a_reason_for_each_refusal() {
        let all = options(&[]);
        for (options, change, words) in [
            (
                &options(&["ib7"]),
                (|_| ()) as fn(&mut Facts),
                "ib7 is no IPoIB interface",
            ),
            (&all, |facts| facts.interfaces.clear(), "no IPoIB interface"),
            (&all, |facts| facts.ports.clear(), "not visible"),
            (&all, |facts| facts.ports[0].software = false, "mirror port"),
            (
                &all,
                |facts| facts.ports[0].link_layer = "InfiniBand".into(),
                "configfs",
            ),
            (
                &all,
                |facts| {
                    facts.ports[0].link_layer = "InfiniBand".into();
                    facts.ports[0].software = false;
                },
                "never come to the kernel",
            ),
            (&all, |facts| facts.links.clear(), "no interface eth0"),
        ] {
            let refusal = refusal(options, change);
            assert!(refusal.contains(words), "{refusal}");
        }
    }

    #[test]
    fn broken_pipes_are_told_from_other_errors() {
        let error = |kind: ErrorKind| std::io::Error::from(kind);
        assert!(is_broken_pipe(&error(ErrorKind::BrokenPipe).into()));
        let of_crate = pcap_file::PcapError::IoError(error(ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&of_crate.into()));
        assert!(!is_broken_pipe(&error(ErrorKind::StorageFull).into()));
    }
}
