// SPDX-License-Identifier: GPL-2.0

//! Plans: which settings a preset changes on this host, given what it has changed already.

use super::preset::{Preset, Target};
use super::setting::{Host, MODE, MTU, Setting};
use super::store::{Entry, Record};
use serde::Serialize;

/// Outcome for a setting.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// It has its value already.
    Same,
    /// It is to be changed.
    Pending,
    Changed,
    /// Somebody else has changed it, and it is left alone.
    Kept,
    /// There is no such setting any more.
    Gone,
    /// The device cannot do that.
    Unsupported,
    /// The kernel refused it.
    Failed,
    /// It has the value again that it had before the first change.
    Undone,
    /// It was changed, and changed back, since something else failed.
    Reverted,
}

/// A setting, its value and the one that it gets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Step {
    #[serde(flatten)]
    pub(super) setting: Setting,
    pub(super) now: String,
    pub(super) then: String,
    pub(super) why: String,
    /// The command that does the same.
    pub(super) command: String,
    pub(super) outcome: Outcome,
}

impl Step {
    pub(super) fn new(setting: Setting, now: String, then: String, why: impl Into<String>) -> Step {
        Step {
            command: setting.command(&then),
            outcome: if now == then {
                Outcome::Same
            } else {
                Outcome::Pending
            },
            setting,
            now,
            then,
            why: why.into(),
        }
    }
}

/// The steps to a preset, and the record of them.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) preset: Preset,
    pub(super) steps: Vec<Step>,
    /// Content of the record when all is done.
    pub(super) entries: Vec<Entry>,
}

impl Plan {
    /// The plan for a preset. Settings that this host does not have are in none.
    pub(super) fn new(
        preset: Preset,
        targets: Vec<Target>,
        record: Option<&Record>,
        host: &dyn Host,
    ) -> Plan {
        let mut plan = Plan {
            preset,
            steps: Vec::new(),
            entries: Vec::new(),
        };
        for target in targets {
            if let Some(now) = host.read(&target.setting) {
                let known = record.and_then(|record| record.entry(&target.setting));
                plan.aim(target, now, known, host);
            }
        }
        for entry in record.iter().flat_map(|record| record.entries.iter().rev()) {
            plan.revert(entry, host);
        }
        plan
    }

    fn entry(&self, setting: &Setting) -> Option<usize> {
        self.entries.iter().position(|e| e.setting == *setting)
    }

    /// Adds a target. `known` is its entry in the record.
    fn aim(&mut self, target: Target, now: String, known: Option<&Entry>, host: &dyn Host) {
        let then = target.want.given(&now);
        // A value that somebody else has set since is the one to come back to.
        let before = match known {
            Some(entry) if entry.then == now => entry.before.clone(),
            _ => now.clone(),
        };
        let mut why = target.why.to_owned();
        let mtu = Setting::of(&target.setting.interface, MTU);
        if target.setting.name == MODE && then == "datagram" && now != then {
            if let Some(mtu_now) = host.read(&mtu) {
                why += &format!(" The MTU, {mtu_now}, becomes that of a datagram if it is larger.");
                // Its value is known when the mode has changed. It comes back after the mode.
                if before != then {
                    self.entries.push(Entry::new(mtu, mtu_now.clone(), mtu_now));
                }
            }
        }
        if before != then {
            let setting = target.setting.clone();
            self.entries.push(Entry::new(setting, before, then.clone()));
        }
        self.steps.push(Step::new(target.setting, now, then, why));
    }

    /// Adds the way back from an entry of the record that is no target any more.
    fn revert(&mut self, entry: &Entry, host: &dyn Host) {
        if self.steps.iter().any(|step| step.setting == entry.setting) {
            return;
        }
        let mode = Setting::of(&entry.setting.interface, MODE);
        if let (MTU, Some(at)) = (entry.setting.name.as_str(), self.entry(&mode)) {
            if self.entry(&entry.setting).is_none() {
                self.entries.insert(at, entry.clone());
            }
            return;
        }
        self.steps.push(back(entry, host));
    }

    /// The record while the plan is being carried out: with the values before, and all that settings may have until then.
    pub(super) fn journal(&self, old: Option<&Record>) -> Vec<Entry> {
        let mut entries = old.map_or_else(Vec::new, |old| old.entries.clone());
        let at = |entries: &[Entry], setting: &Setting| {
            entries.iter().position(|entry| entry.setting == *setting)
        };
        for entry in &self.entries {
            let mode = Setting::of(&entry.setting.interface, MODE);
            match at(&entries, &entry.setting) {
                Some(known) => {
                    let then = std::mem::replace(&mut entries[known].then, entry.then.clone());
                    entries[known].also.push(then);
                    entries[known].before.clone_from(&entry.before);
                }
                // The mode comes back first.
                None if entry.setting.name == MTU => {
                    let place = at(&entries, &mode).unwrap_or(entries.len());
                    entries.insert(place, entry.clone());
                }
                None => entries.push(entry.clone()),
            }
        }
        let pending = self
            .steps
            .iter()
            .filter(|step| step.outcome == Outcome::Pending);
        for step in pending {
            if at(&entries, &step.setting).is_none() {
                let (setting, now) = (step.setting.clone(), step.now.clone());
                entries.push(Entry::new(setting, now, step.then.clone()));
            }
        }
        entries
    }
}

/// The step back to the value before the first change, unless somebody else has changed it since.
pub(super) fn back(entry: &Entry, host: &dyn Host) -> Step {
    let (setting, before) = (entry.setting.clone(), entry.before.clone());
    let Some(now) = host.read(&setting) else {
        let mut step = Step::new(
            setting,
            String::new(),
            before,
            "There is no such setting any more.",
        );
        step.outcome = Outcome::Gone;
        return step;
    };
    if !entry.is_ours(&now) {
        let why = format!(
            "Somebody else has changed it since ipoibctl set {}.",
            entry.then
        );
        let mut step = Step::new(setting, now, before, why);
        step.outcome = Outcome::Kept;
        return step;
    }
    Step::new(
        setting,
        now,
        before,
        "It was so before ipoibctl changed it.",
    )
}
