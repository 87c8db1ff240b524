// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl top`: interfaces and peers, live.
//!
//! `meter` makes rates of two readings, `view` is what the user has chosen, `draw` makes a screen of both, `input` reads
//! keys and signals, and `tty` is the terminal.

mod draw;
mod input;
mod list;
mod meter;
mod tty;
mod view;

use crate::facts::{Facts, Interface};
use crate::rules::{self, Finding};
use crate::screen::{self, Screen};
use crate::{gather, peers, status};
use anyhow::{Result, ensure};
use draw::Theme;
use input::{Event, Parser};
use list::Peer;
pub(crate) use list::Sort;
use meter::{Meter, Quantity, Rates};
use serde::{Serialize, Serializer, ser::SerializeMap};
use std::io::IsTerminal;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use tty::Tty;
use view::{Action, View};

/// Time to the second reading, which makes the first rates.
const FIRST: Duration = Duration::from_millis(500);
/// Time after which ports, settings and addresses are read again, too.
const WHOLE: Duration = Duration::from_secs(10);
/// Time for the rest of a key's sequence.
const SEQUENCE: Duration = Duration::from_millis(50);

/// Options of `top`.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Time between two readings.
    #[arg(short, long, value_name = "SECONDS", default_value = "2", value_parser = delay)]
    delay: Duration,
    /// Sort peers by this column.
    #[arg(short, long, value_name = "COLUMN", default_value = "traffic")]
    sort: Sort,
    /// Show only peers whose line contains TEXT.
    #[arg(short = 'F', long, value_name = "TEXT", default_value = "")]
    filter: String,
}

fn delay(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "no number".to_owned())?;
    if (0.1..=60.0).contains(&seconds) {
        Ok(Duration::from_secs_f64(seconds))
    } else {
        Err("not between 0.1 and 60".to_owned())
    }
}

/// Facts and the rates that came of the last two readings.
struct State {
    facts: Facts,
    found: Vec<Finding>,
    meter: Meter,
    peers: Vec<Peer>,
}

impl State {
    /// The first reading is at `at`, a time since any point.
    fn new(facts: Facts, at: Duration) -> State {
        let mut state = State {
            found: Vec::new(),
            meter: Meter::default(),
            peers: Vec::new(),
            facts,
        };
        state.update(at);
        state
    }

    /// Takes what was read at `at` into account.
    fn update(&mut self, at: Duration) {
        self.found = rules::judge(&self.facts);
        self.meter.read(&self.facts, at);
        self.peers = list::peers(&self.facts, &self.meter);
    }

    /// Rates of an interface.
    fn rates(&self, interface: &Interface) -> Rates {
        self.meter.interface(&interface.name).rates
    }
}

/// Reads facts, and those that seldom change less often.
struct Source {
    begin: Instant,
    whole: Instant,
}

impl Source {
    fn begin() -> Result<(Source, State)> {
        let now = Instant::now();
        let source = Source {
            begin: now,
            whole: now,
        };
        let facts = gather::facts(false)?;
        Ok((source, State::new(facts, now.elapsed())))
    }

    fn read(&mut self, state: &mut State) -> Result<()> {
        if self.whole.elapsed() >= WHOLE {
            state.facts = gather::facts(false)?;
            self.whole = Instant::now();
        } else {
            gather::again(&mut state.facts)?;
        }
        state.update(self.begin.elapsed());
        Ok(())
    }
}

/// Output of `--json`.
#[derive(Serialize)]
struct Report<'a> {
    version: u32,
    status: u8,
    /// Time between the readings.
    seconds: f64,
    interfaces: Vec<Line<'a>>,
    peers: Vec<PeerLine<'a>>,
    unread: &'a [String],
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    driver: &'static str,
    mode: &'a str,
    rates: Named,
}

#[derive(Serialize)]
struct PeerLine<'a> {
    interface: &'a str,
    ips: &'a [IpAddr],
    gid: &'a str,
    qpn: u32,
    neighbour: &'a str,
    path: &'a str,
    connection: &'a str,
    rates: Named,
}

/// Rates by name; null where nothing is counted.
struct Named(Rates);

impl Serialize for Named {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Quantity::ALL.len()))?;
        for quantity in Quantity::ALL {
            map.serialize_entry(quantity.name(), &self.0[quantity as usize])?;
        }
        map.end()
    }
}

fn report<'a>(state: &'a State, view: &View) -> Report<'a> {
    let interfaces = state.facts.interfaces.iter().map(|interface| Line {
        name: &interface.name,
        driver: status::driver(interface),
        mode: &interface.mode,
        rates: Named(state.rates(interface)),
    });
    let peers = view.shown(&state.peers).into_iter().map(|peer| PeerLine {
        interface: &peer.interface,
        ips: &peer.ips,
        gid: &peer.gid,
        qpn: peer.qpn,
        neighbour: &peer.neighbour,
        path: &peer.path,
        connection: &peer.connection,
        rates: Named(peer.rates),
    });
    Report {
        version: 1,
        status: rules::status(&state.found),
        seconds: state.meter.seconds(),
        interfaces: interfaces.collect(),
        peers: peers.collect(),
        unread: &state.facts.unread,
    }
}

/// Prints rates once, after the time between two readings; the exit status is that of `status`.
///
/// # Errors
///
/// The kernel does not answer.
pub(crate) fn json(options: &Options, screen: &mut Screen) -> Result<u8> {
    let (mut source, mut state) = Source::begin()?;
    std::thread::sleep(options.delay);
    source.read(&mut state)?;
    let report = report(&state, &View::new(options.sort, &options.filter));
    screen.json(&report)?;
    Ok(report.status)
}

/// The way to a peer, as `peers --why` prints it.
fn way(state: &State, ip: Option<IpAddr>) -> Result<Vec<String>> {
    let Some(ip) = ip else {
        return Ok(vec!["no neighbour has this link-layer address".to_owned()]);
    };
    let mut screen = Screen::plain(None);
    peers::why(&state.facts, ip, false, &mut screen)?;
    Ok(screen.text().lines().map(str::to_owned).collect())
}

/// Shows all until the user quits; the exit status is that of `status` at the last reading.
///
/// # Errors
///
/// There is no terminal, or the kernel does not answer.
pub(crate) fn run(options: &Options) -> Result<u8> {
    let terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    ensure!(
        terminal && !screen::is_dumb(),
        "top draws on a terminal, and this is none: run it on one, or with --json for the rates once"
    );
    let (mut source, mut state) = Source::begin()?;
    let theme = Theme::of_terminal();
    let mut view = View::new(options.sort, &options.filter);
    let events = input::events()?;
    let mut keys = Parser::default();
    let mut tty = Tty::enter()?;
    let mut due = Instant::now() + options.delay.min(FIRST);
    loop {
        tty.draw(|frame| draw::screen(frame, &state, &mut view, &theme))?;
        let wait = due.saturating_duration_since(Instant::now());
        let wait = if keys.is_within() {
            wait.min(SEQUENCE)
        } else {
            wait
        };
        let event = events.wait(wait);
        let pressed = match event {
            Event::Bytes(bytes) => keys.feed(&bytes),
            // What has not gone on was a key by itself.
            Event::Nothing => keys.end(),
            Event::Resize => {
                tty.resize()?;
                Vec::new()
            }
            Event::Gone => break,
            Event::Signal(signal) => {
                drop(tty);
                signal_hook::low_level::emulate_default_handler(signal)?;
                break;
            }
        };
        for key in pressed {
            match view.press(key, &state.peers) {
                Action::None => {}
                Action::Quit => return Ok(rules::status(&state.found)),
                Action::Redraw => tty.resize()?,
                Action::Suspend => tty.suspend()?,
                Action::Way(ip) => view.show_way(way(&state, ip)?),
            }
        }
        if Instant::now() >= due {
            if !view.is_paused() {
                source.read(&mut state)?;
            }
            due = Instant::now() + options.delay;
        }
    }
    Ok(rules::status(&state.found))
}

#[cfg(test)]
mod tests;
