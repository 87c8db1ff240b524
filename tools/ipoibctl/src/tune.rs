// SPDX-License-Identifier: GPL-2.0

//! `ipoibctl tune`: presets of settings, and the way back.

mod act;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod checks;
mod persist;
mod plan;
mod preset;
mod setting;
mod store;
#[cfg(test)]
mod tests;

use crate::facts::Facts;
use crate::gather;
use crate::screen::Screen;
use act::Done;
use anyhow::Result;
use clap::{ArgGroup, Args};
use plan::{Outcome, Plan, Step};
use preset::Preset;
use serde::Serialize;
use setting::{Host, System};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use store::Store;

/// Options of `ipoibctl tune`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("what").required(true).args(["preset", "undo"])))]
pub(crate) struct Options {
    /// Show which settings the preset changes, and why.
    #[arg(long, value_enum)]
    preset: Option<Preset>,
    /// Change them, now and after each reboot.
    #[arg(long, requires = "preset")]
    apply: bool,
    /// Give all settings the values that they had before.
    #[arg(long, conflicts_with = "apply")]
    undo: bool,
}

/// Output of `--json`.
#[derive(Debug, Serialize)]
struct Report {
    version: u32,
    status: u8,
    /// "plan", "apply" or "undo".
    action: &'static str,
    preset: Option<Preset>,
    settings: Vec<Step>,
    /// Files that bring the settings back after a reboot.
    files: Vec<String>,
    notes: Vec<String>,
    error: Option<String>,
}

impl Report {
    fn new(action: &'static str, preset: Option<Preset>, done: Done) -> Report {
        let is = |outcome: Outcome| done.steps.iter().any(|step| step.outcome == outcome);
        let status = if done.error.is_some() {
            2
        } else if is(Outcome::Pending) || is(Outcome::Kept) || !done.notes.is_empty() {
            1
        } else {
            0
        };
        Report {
            version: 1,
            status,
            action,
            preset,
            settings: done.steps,
            files: Vec::new(),
            notes: done.notes,
            error: done.error,
        }
    }

    fn show(&self, screen: &mut Screen) {
        let same = |step: &&Step| step.outcome == Outcome::Same;
        for step in self.settings.iter().filter(|step| !same(step)) {
            show(step, screen);
        }
        let count = self.settings.iter().filter(same).count();
        let changes = self.settings.len() - count;
        match (self.action, changes) {
            ("undo", 0) if self.settings.is_empty() && self.error.is_none() => {
                screen.line("", "Nothing is applied.");
            }
            (_, 0) if self.settings.is_empty() && self.error.is_none() => {
                screen.line("", "There is no interface of ipoib_rs.");
            }
            (_, 0) if self.error.is_none() => screen.line("", "All settings are so already."),
            _ if count > 0 => {
                let s = if count == 1 { " is" } else { "s are" };
                screen.line("", &format!("{count} other setting{s} so already."));
            }
            _ => {}
        }
        for file in &self.files {
            screen.line("file     ", file);
        }
        for note in &self.notes {
            screen.line("note     ", note);
        }
        if let Some(error) = &self.error {
            screen.line("failed   ", error);
        }
    }
}

/// A setting: the change, the reason, and the command in a line of its own.
fn show(step: &Step, screen: &mut Screen) {
    let Step {
        setting, now, then, ..
    } = step;
    let subject = if setting.interface.is_empty() {
        "host"
    } else {
        &setting.interface
    };
    let words = match step.outcome {
        Outcome::Same => format!("is {now}"),
        Outcome::Pending => format!("{now} -> {then}"),
        Outcome::Changed => format!("was {now}, is {then}"),
        Outcome::Kept => format!("is {now}, and stays so"),
        Outcome::Gone => "is gone".to_owned(),
        Outcome::Unsupported => format!("is {now}: the device cannot do that"),
        Outcome::Failed => format!("could not be made {then}"),
        Outcome::Undone => format!("is {then} again"),
        Outcome::Reverted => format!("is {now} again"),
    };
    screen.line(
        &format!("{subject:8} "),
        &format!("{}: {words}", setting.name),
    );
    screen.line("         ", &format!("({})", step.why));
    if step.outcome == Outcome::Pending {
        screen.line("         # ", &step.command);
    }
}

/// Returns true if files in /etc are about this network namespace, in which services begin at boot.
fn is_persistent() -> bool {
    let inode = |path: &str| fs::metadata(path).map(|metadata| metadata.ino()).ok();
    let first = inode("/proc/1/ns/net");
    first.is_none() || first == inode("/proc/self/ns/net")
}

/// Where settings and files are, and whether the files are about them.
struct Place<'a> {
    host: &'a dyn Host,
    store: Store,
    persistent: bool,
}

impl Place<'_> {
    /// Shows what a preset changes, or changes it.
    fn preset(&self, preset: Preset, facts: &Facts, apply: bool) -> Result<Report> {
        let lock = apply.then(|| self.store.lock()).transpose();
        let _lock = match lock {
            Ok(lock) => lock,
            Err(error) => return Ok(self.nothing("apply", Some(preset), &error)),
        };
        let old = self.store.load()?;
        let mut targets = preset::targets(preset, facts);
        let mut notes = Vec::new();
        targets.retain(|target| {
            let name = &target.setting.interface;
            let plain = name.is_empty() || persist::is_plain(name);
            if !plain {
                notes.push(format!(
                    "{name} is left alone: its name cannot stand in a rule of udev"
                ));
            }
            plain
        });
        notes.dedup();
        let plan = Plan::new(preset, targets, old.as_ref(), self.host);
        if !apply {
            let done = Done {
                steps: plan.steps,
                notes,
                error: None,
            };
            return Ok(Report::new("plan", Some(preset), done));
        }
        let mut done = act::apply(plan, self.host, &self.store, old, self.persistent);
        let record = self.store.load()?.filter(|_| done.error.is_none());
        let entries = record.as_ref().map_or(&[][..], |record| &record.entries);
        if !entries.is_empty() && !self.persistent {
            notes.push(
                "this is not the network namespace of the host: nothing of it survives a reboot"
                    .into(),
            );
        }
        for (variable, file) in persist::overruled(entries, self.store.root()) {
            let file = file.display();
            notes.push(format!(
                "{file} sets {variable}, too, and is read later: its value holds after a reboot"
            ));
        }
        done.notes.splice(0..0, notes);
        let files = record.iter().flat_map(|record| record.files.keys());
        let files = files.map(|path| format!("/{path}")).collect();
        let report = Report::new("apply", Some(preset), done);
        Ok(Report { files, ..report })
    }

    /// Gives all settings their old values.
    fn undo(&self) -> Result<Report> {
        // Without a record there is nothing to lock.
        let Some(record) = self.store.load()? else {
            return Ok(Report::new("undo", None, Done::default()));
        };
        let _lock = match self.store.lock() {
            Ok(lock) => lock,
            Err(error) => return Ok(self.nothing("undo", Some(record.preset), &error)),
        };
        let Some(record) = self.store.load()? else {
            return Ok(Report::new("undo", None, Done::default()));
        };
        let preset = record.preset;
        let done = act::undo(record, self.host, &self.store);
        Ok(Report::new("undo", Some(preset), done))
    }

    fn nothing(
        &self,
        action: &'static str,
        preset: Option<Preset>,
        error: &anyhow::Error,
    ) -> Report {
        let done = Done {
            error: Some(format!("{error:#}. Nothing has been changed.")),
            ..Done::default()
        };
        Report::new(action, preset, done)
    }
}

/// Does what the options say. Returns the exit status.
///
/// # Errors
///
/// The kernel does not answer about its links, or the record of what was changed is damaged.
pub(crate) fn run(options: &Options, json: bool, screen: &mut Screen) -> Result<u8> {
    let root = Path::new("/");
    let place = Place {
        host: &System::new(root),
        store: Store::new(root),
        persistent: is_persistent(),
    };
    let report = match options.preset {
        Some(preset) => place.preset(preset, &gather::facts(false)?, options.apply)?,
        None => place.undo()?,
    };
    if json {
        screen.json(&report)?;
    } else {
        report.show(screen);
    }
    Ok(report.status)
}
