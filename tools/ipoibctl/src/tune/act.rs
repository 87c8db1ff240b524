// SPDX-License-Identifier: GPL-2.0

//! Changes of settings: all of a plan or none, and the way back.

use super::persist::{self, Files};
use super::plan::{Outcome, Plan, Step, back};
use super::setting::{Host, MODE, MTU, Setting};
use super::store::{Entry, Record, Snapshot, Store, Texts};
use anyhow::{Context, Result, ensure};
use std::io::Error;

/// Result of a change that was made, or of one that was not.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) steps: Vec<Step>,
    pub(super) notes: Vec<String>,
    /// Reason why nothing was changed, or not all.
    pub(super) error: Option<String>,
}

/// Adds texts of files to those that may be there.
fn merge(texts: &mut Texts, files: &Files) {
    for (path, text) in files {
        texts.entry(path.clone()).or_default().insert(text.clone());
    }
}

fn wanted(known: &Texts, files: &Files) -> Snapshot {
    known
        .keys()
        .chain(files.keys())
        .map(|path| (path.clone(), files.get(path).cloned()))
        .collect()
}

/// Gives a setting a value, and looks whether it has it then.
fn set(host: &dyn Host, setting: &Setting, value: &str) -> Result<()> {
    host.write(setting, value)?;
    let now = host.read(setting);
    ensure!(
        now.as_deref() == Some(value),
        "the kernel took it, and it is {} now",
        now.as_deref().unwrap_or("gone")
    );
    Ok(())
}

/// A plan that is being carried out.
struct Run<'a> {
    plan: Plan,
    host: &'a dyn Host,
    store: &'a Store,
    old: Option<Record>,
    /// The files before.
    snapshot: Snapshot,
    /// Settings that were changed, in order, and their values before.
    changed: Vec<(Setting, String)>,
}

/// Carries a plan out: all of it, or nothing.
///
/// Without `persistent`, no file brings it back after a reboot.
pub(super) fn apply(
    plan: Plan,
    host: &dyn Host,
    store: &Store,
    old: Option<Record>,
    persistent: bool,
) -> Done {
    let mut run = Run {
        plan,
        host,
        store,
        old,
        snapshot: Snapshot::new(),
        changed: Vec::new(),
    };
    let error = match run.begin(persistent) {
        Ok(()) => run.settings().and_then(|()| run.end(persistent)).err(),
        // Nothing was changed yet but files.
        Err(error) => Some(error),
    };
    let mut done = Done::default();
    if let Some(error) = error {
        done.error = Some(run.roll_back(&error));
    }
    done.steps = run.plan.steps;
    done
}

impl Run<'_> {
    fn files(&self, persistent: bool) -> Result<Files> {
        if !persistent {
            return Ok(Files::new());
        }
        persist::files(self.plan.preset, &self.plan.entries, self.store.root())
    }

    /// Writes down what is going to be changed, and then the files: if they cannot be written, no setting is changed.
    fn begin(&mut self, persistent: bool) -> Result<()> {
        let files = self.files(persistent)?;
        let mut texts = self
            .old
            .as_ref()
            .map_or_else(Texts::new, |old| old.files.clone());
        merge(&mut texts, &files);
        let edited = self.store.edited(&texts);
        ensure!(
            edited.is_empty(),
            "/{} was edited since ipoibctl has written it; move it away first",
            edited.join(" and /")
        );
        self.snapshot = self.store.snapshot(texts.keys());
        let known = texts.clone();
        let entries = self.plan.journal(self.old.as_ref());
        let record = Record::new(self.plan.preset, entries, texts);
        self.store.save(Some(&record))?;
        self.store.write(&wanted(&known, &files))
    }

    /// Changes the settings.
    fn settings(&mut self) -> Result<()> {
        for at in 0..self.plan.steps.len() {
            let step = &mut self.plan.steps[at];
            if step.outcome != Outcome::Pending {
                continue;
            }
            let (setting, now) = (step.setting.clone(), step.now.clone());
            let Err(error) = set(self.host, &setting, &step.then) else {
                step.outcome = Outcome::Changed;
                self.changed.push((setting.clone(), now));
                self.follow_mtu(&setting);
                continue;
            };
            let errno = error.downcast_ref::<Error>().and_then(Error::raw_os_error);
            step.outcome = if self.host.read(&setting).is_none() {
                Outcome::Gone
            } else if errno == Some(libc::EOPNOTSUPP) {
                Outcome::Unsupported
            } else {
                step.outcome = Outcome::Failed;
                // It may have a value that was not asked for.
                self.changed.push((setting, now));
                return Err(error.context(step.command.clone()));
            };
            let mtu = Setting::of(&setting.interface, MTU);
            let follows = |other: &Setting| setting.name == MODE && *other == mtu;
            let entries = &mut self.plan.entries;
            entries.retain(|entry| entry.setting != setting && !follows(&entry.setting));
        }
        Ok(())
    }

    /// Takes down which MTU an interface has after a change of its mode.
    fn follow_mtu(&mut self, setting: &Setting) {
        let mtu = Setting::of(&setting.interface, MTU);
        let entries = &mut self.plan.entries;
        let at = entries.iter().position(|entry| entry.setting == mtu);
        let (MODE, Some(at)) = (setting.name.as_str(), at) else {
            return;
        };
        match self.host.read(&mtu) {
            Some(now) if now != entries[at].before => {
                entries[at].then.clone_from(&now);
                let before = entries[at].before.clone();
                let why = "A datagram has no room for more.";
                let mut step = Step::new(mtu.clone(), before.clone(), now, why);
                step.outcome = Outcome::Changed;
                self.plan.steps.push(step);
                // The mode comes back first.
                let mode = self.changed.len().saturating_sub(1);
                self.changed.insert(mode, (mtu, before));
            }
            _ => drop(entries.remove(at)),
        }
    }

    /// Writes down what was changed. Files are written again if some of it could not be.
    fn end(&mut self, persistent: bool) -> Result<()> {
        let files = self.files(persistent)?;
        let mut texts = Texts::new();
        merge(&mut texts, &files);
        let paths: Texts = self
            .snapshot
            .keys()
            .map(|path| (path.clone(), Default::default()))
            .collect();
        self.store.write(&wanted(&paths, &files))?;
        let entries = self.plan.entries.clone();
        let record = Record::new(self.plan.preset, entries, texts);
        self.store
            .save((!record.entries.is_empty()).then_some(&record))
    }

    /// Gives all settings and files their old values again. Returns what went wrong before, and now.
    fn roll_back(&mut self, error: &anyhow::Error) -> String {
        let mut stuck = Vec::new();
        let mut entries = self
            .old
            .as_ref()
            .map_or_else(Vec::new, |old| old.entries.clone());
        for (setting, before) in std::mem::take(&mut self.changed).into_iter().rev() {
            let is_back = self.host.read(&setting).as_deref() == Some(&before)
                || set(self.host, &setting, &before).is_ok();
            let step = self
                .plan
                .steps
                .iter_mut()
                .find(|step| step.setting == setting);
            if let Some(step) = step.filter(|step| is_back && step.outcome == Outcome::Changed) {
                step.outcome = Outcome::Reverted;
            }
            if !is_back {
                stuck.push(setting.command(&before));
                let then = self.host.read(&setting).unwrap_or_default();
                entries.retain(|entry| entry.setting != setting);
                entries.push(Entry::new(setting, before, then));
            }
        }
        let mut text = format!("{error:#}. ");
        match self.store.write(&self.snapshot) {
            Ok(()) if stuck.is_empty() => text += "Nothing has been changed.",
            Ok(()) => {}
            Err(error) => text += &format!("The files could not be put back: {error:#}. "),
        }
        if !stuck.is_empty() {
            text += &format!(
                "All is as before but for what these commands bring back: {}",
                stuck.join("; ")
            );
        }
        let old = self.old.as_ref();
        let files = old.map_or_else(Texts::new, |old| old.files.clone());
        let preset = old.map_or(self.plan.preset, |old| old.preset);
        let record = Record::new(preset, entries, files);
        if let Err(error) = self
            .store
            .save((!record.entries.is_empty()).then_some(&record))
        {
            text += &format!(" The record could not be put back: {error:#}.");
        }
        text
    }
}

/// Gives all settings of a record the values that they had before the first change, and removes its files.
pub(super) fn undo(record: Record, host: &dyn Host, store: &Store) -> Done {
    let mut done = Done::default();
    let edited = store.edited(&record.files);
    for path in &edited {
        done.notes.push(format!(
            "/{path} was edited since ipoibctl has written it, and stays"
        ));
    }
    let files: Snapshot = record
        .files
        .keys()
        .filter(|path| !edited.contains(path))
        .map(|path| (path.clone(), None))
        .collect();
    if let Err(error) = store.write(&files) {
        done.error = Some(format!("{error:#}. No setting has been changed."));
        return done;
    }
    let mut left = Vec::new();
    for entry in record.entries.iter().rev() {
        let mut step = back(entry, host);
        if step.outcome == Outcome::Pending {
            let result = set(host, &step.setting, &step.then);
            step.outcome = match result {
                Ok(()) => Outcome::Undone,
                Err(_) if host.read(&step.setting).is_none() => Outcome::Gone,
                Err(error) => {
                    step.why = format!("{error:#}");
                    left.insert(0, entry.clone());
                    Outcome::Failed
                }
            };
        }
        done.steps.push(step);
    }
    if !left.is_empty() {
        done.error =
            Some("Not all settings have their old values; --undo tries the others again.".into());
    }
    let record = Record::new(record.preset, left, Texts::new());
    let saved = store.save((!record.entries.is_empty()).then_some(&record));
    if let Err(error) = saved.context("the record") {
        done.error = Some(format!("{error:#}"));
    }
    done
}
