// SPDX-License-Identifier: GPL-2.0

//! `make bench`: this driver against the kernel's C driver, and both against plain Ethernet; and the simulated
//! fabric against soft-RoCE.
//!
//! Two lanes. On `icount` a guest's nanosecond is an instruction, so that every rate is a number
//! per 10^9 instructions and repeats closely; that lane is the measure of record. On `uml` the
//! same is measured on the wall clock. On either lane all that is compared runs in one kernel and
//! in turn, and what counts is the ratio of neighbours.

mod bars;
mod case;
mod count;
mod disorder;
mod fabric;
pub mod html;
mod ib;
mod papers;
pub mod peer;
mod plot;
mod rc;
mod report;
mod results;
mod rig;
mod statistics;
mod text_share;
mod verbs;

use crate::bed::{Builder, LINK_MTU};
use crate::kernel;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::module;
use crate::step::say;
use anyhow::{Result, ensure};
use case::Case;
use clap::{Args, ValueEnum};
use count::Counter;
use report::{Profiles, Record, Report};
use rig::{Rig, Side};
use statistics::Pairs;
use std::fs;
use std::time::{Duration, Instant};

/// Seconds of a profile.
const PROFILED: u32 = 4;

/// Options of a measurement.
#[derive(Debug, Clone, Args)]
pub struct Options {
    /// Only this lane; qemu stands for icount.
    #[arg(long, env = "LAB_ARG_LANE")]
    lane: Option<Lane>,
    /// How many times each case is measured with either driver.
    #[arg(long, env = "LAB_ARG_PAIRS", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// The C driver against itself: what of a ratio is noise.
    #[arg(long = "self", env = "LAB_ARG_SELF", value_parser = clap::builder::FalseyValueParser::new())]
    itself: bool,
    /// Only this page.
    #[arg(long, env = "LAB_ARG_PAGE")]
    page: Option<Page>,
    /// Only cases with this in their name.
    #[arg(long, env = "LAB_ARG_FILTER")]
    case: Option<String>,
}

/// A part of what is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Page {
    /// Datagram mode, on a good wire.
    Ud,
    /// A wire that reorders and loses; by instructions only.
    Disorder,
    /// Connected mode.
    Rc,
    /// The simulated fabric, against soft-RoCE.
    Fabric,
    /// InfiniBand: both drivers on the simulated fabric.
    Ib,
    /// The papers' tables and figures; only if asked for.
    Papers,
}

impl Page {
    /// The lanes that it is measured on.
    fn lanes(self) -> &'static [Lane] {
        match self {
            Page::Disorder => &[Lane::Qemu],
            _ => &[Lane::Qemu, Lane::Uml],
        }
    }

    /// Measures it, on beds like this one.
    fn measure(
        self,
        bed: &Builder,
        options: &Options,
        counter: Option<&Counter>,
        report: &mut Report,
    ) -> Result<()> {
        match self {
            Page::Ud => page_ud(bed, options, counter, report),
            Page::Disorder => {
                let rig = Rig::up(bed, false, LINK_MTU)?;
                report.kernel = rig.release()?;
                disorder::page(&rig, options, report)?;
                rig.finish()
            }
            Page::Rc => rc::page(bed, options, counter, report),
            Page::Fabric => fabric::page(bed, options, counter, report),
            Page::Ib => ib::page(bed, options, counter, report),
            Page::Papers => papers::page(bed, options, report),
        }
    }
}

impl Options {
    /// Returns true if a page is to be measured on a lane. The papers' takes long: only if it is asked for, and by
    /// instructions only if that lane is, too.
    fn wants(&self, page: Page, lane: Lane) -> bool {
        let long = page == Page::Papers;
        page.lanes().contains(&lane)
            && self.page.map_or(!long, |p| p == page)
            && self.lane.map_or(!long || lane == Lane::Uml, |l| l == lane)
            && (!self.itself || matches!(page, Page::Ud | Page::Rc))
    }

    /// Returns true if a case is to be measured.
    fn includes(&self, case: &str) -> bool {
        self.case.as_ref().is_none_or(|part| case.contains(part))
    }
}

/// Measures, prints a table, and keeps the results in build/bench.
///
/// # Errors
///
/// A measurement fails, or a ratio is below what is published.
pub fn run(layout: &Layout, options: &Options) -> Result<()> {
    let start = Instant::now();
    let lanes = [Lane::Qemu, Lane::Uml];
    let mut choices = lanes.iter().flat_map(|lane| {
        let pages = Page::value_variants().iter();
        pages.map(|page| options.wants(*page, *lane))
    });
    ensure!(
        choices.any(|wanted| wanted),
        "no such page is measured on that lane, or with SELF=1; see Documentation/performance.rst"
    );
    let mut report = if options.itself {
        Report::default()
    } else {
        Report::kept(layout)
    };
    for lane in lanes {
        let wanted = |page: &&Page| options.wants(**page, lane);
        let pages: Vec<&Page> = Page::value_variants().iter().filter(wanted).collect();
        if pages.is_empty() {
            continue;
        }
        prepare(layout, options, lane)?;
        // Each case of the other pages has a bound.
        let counted = |page: &&Page| match page {
            Page::Ud | Page::Rc | Page::Ib => true,
            Page::Fabric => options.includes("device_share"),
            Page::Disorder | Page::Papers => false,
        };
        let counter = (lane == Lane::Qemu && pages.iter().copied().any(|page| counted(&page)))
            .then(|| Counter::build(layout))
            .transpose()?;
        for page in pages {
            let bed = builder("bench", lane, counter.as_ref());
            let outcome = page.measure(&bed, options, counter.as_ref(), &mut report);
            // Figures from before a failure count, too.
            report.keep()?;
            outcome?;
        }
    }
    println!("{report}");
    say(&format!("measured in {} s", start.elapsed().as_secs()));
    if options.itself {
        return Ok(());
    }
    let text = fs::read_to_string(layout.checkout.join("Documentation/performance.rst"))?;
    bars::check(&bars::published(&text)?, &report.results)
}

/// Measures cases of a page once, on beds like this one, and keeps no result: so that the tests notice when the bench does
/// not measure any more. Returns how many cases were measured.
///
/// # Errors
///
/// A measurement fails, or a rate is 0.
pub fn attempt(bed: &Builder, page: Page, cases: &str) -> Result<usize> {
    let options = Options {
        lane: Some(bed.lane()),
        pairs: 1,
        itself: false,
        page: Some(page),
        case: Some(cases.to_owned()),
    };
    let mut report = Report::default();
    page.measure(bed, &options, None, &mut report)?;
    for record in &report.results {
        let rates = [record.ours, record.peer, record.ratio];
        let measured = |rate: &Option<f64>| rate.is_some_and(|rate| rate.is_finite() && rate > 0.0);
        ensure!(rates.iter().all(measured), "{record:?}");
    }
    Ok(report.results.len())
}

/// A bed on which a guest's nanosecond is what the lane counts. `log` names its log files.
fn builder(log: &str, lane: Lane, counter: Option<&Counter>) -> Builder {
    let builder = Builder::new(log, lane, Kernel::Base).lifetime(Duration::from_secs(1200));
    match (lane, counter) {
        (Lane::Uml, _) => builder,
        (Lane::Qemu, None) => builder.icount(),
        (Lane::Qemu, Some(counter)) => builder.icount().plugin(counter.plugin()),
    }
}

/// Builds what a lane boots and loads.
fn prepare(layout: &Layout, options: &Options, lane: Lane) -> Result<()> {
    let built = kernel::ensure(layout, lane, Kernel::Base)?;
    if options.itself {
        module::stage(layout, &built)?;
    } else {
        module::ensure(layout, &built)?;
    }
    verbs::ensure(layout, &built)?;
    peer::ensure(layout, &built)
}

/// Page `ud`: datagram mode, at the largest MTU that soft-RoCE has.
fn page_ud(
    bed: &Builder,
    options: &Options,
    counter: Option<&Counter>,
    report: &mut Report,
) -> Result<()> {
    let rig = Rig::up(bed, options.itself, LINK_MTU)?;
    report.kernel = rig.release()?;
    for case in Case::ALL
        .into_iter()
        .filter(|case| options.includes(case.name()))
    {
        let mut pairs = Pairs::default();
        for n in 0..options.pairs {
            let ours = case.measure(&rig, Side::Ours)?;
            let peer = case.measure(&rig, Side::Peer)?;
            pairs.add(ours, peer, ours / peer);
            // A landmark only: every other time will do.
            if n % 2 == 0 {
                pairs.add_ceiling(case.measure(&rig, Side::Ceiling)?);
            }
            say(&format!(
                "{} {case} {}/{}: ours {ours:.0}, C driver {peer:.0}",
                rig.lane_name(),
                n + 1,
                options.pairs
            ));
        }
        note_share(&rig, counter, &case.script(&rig, Side::Ours)?, &mut pairs)?;
        report.results.push(Record::new(
            "ud",
            case.name(),
            rig.lane_name(),
            &case.unit(&rig),
            &pairs,
        ));
    }
    if let Some(counter) = counter {
        text_share(&rig, counter, "ud", options, report, &|_| Ok(()))?;
    }
    rig.finish()
}

/// Notes our driver's share of all instructions of a client's command, if they are counted.
fn note_share(rig: &Rig, counter: Option<&Counter>, script: &str, pairs: &mut Pairs) -> Result<()> {
    if let Some(counter) = counter {
        let profile = text_share::profile(rig, counter, Side::Ours, script)?;
        pairs.set_share(profile.driver / 100.0);
    }
    Ok(())
}

/// Case `text_share` of a page: the drivers' own text. `prepare` is called before each measurement.
fn text_share(
    rig: &Rig,
    counter: &Counter,
    page: &str,
    options: &Options,
    report: &mut Report,
    prepare: &dyn Fn(Side) -> Result<()>,
) -> Result<()> {
    if !options.includes("text_share") {
        return Ok(());
    }
    let mut pairs = Pairs::default();
    let mut profiles = Profiles::new(page);
    for n in 0..options.pairs {
        let profile = |side| {
            prepare(side)?;
            let to = rig.address(side)?;
            let script = format!("iperf3 -c {to} -t {PROFILED} >/dev/null");
            text_share::profile(rig, counter, side, &script)
        };
        let (ours, peer) = (profile(Side::Ours)?, profile(Side::Peer)?);
        say(&format!(
            "{} text_share {}/{}: ours {:.2}%, C driver {:.2}%",
            rig.lane_name(),
            n + 1,
            options.pairs,
            ours.driver,
            peer.driver
        ));
        // Less is better.
        pairs.add(ours.driver, peer.driver, peer.driver / ours.driver);
        profiles.add(ours, peer);
    }
    report.results.push(Record::new(
        page,
        "text_share",
        rig.lane_name(),
        "% of instructions",
        &pairs,
    ));
    report.profiles.push(profiles);
    Ok(())
}
