// SPDX-License-Identifier: GPL-2.0

//! The state of a history that is played.

use anyhow::{Context, Result};
use sim::plan::{Driver, Host, HostSetting, Setting};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Setting, log, and the programs that run.
pub(crate) struct World {
    pub(crate) setting: Setting,
    /// Packets are captured.
    pub(crate) trace: bool,
    log: Mutex<File>,
    begin: Instant,
    /// The subnet managers that run, by host.
    managers: Mutex<BTreeMap<Host, Child>>,
    /// HCAs for which there are rules by which they fail.
    failing: Mutex<BTreeSet<Host>>,
    /// HCAs that have reported that they are beyond use.
    beyond_use: Mutex<BTreeSet<Host>>,
    /// Hosts on which users have changed addresses.
    addressed: Mutex<BTreeSet<Host>>,
    /// The driver was loaded with options.
    pub(crate) has_options: AtomicBool,
    /// Atomic allocations fail.
    pub(crate) scarce: AtomicBool,
    /// Cables may have brought packets twice.
    pub(crate) doubles: Arc<AtomicBool>,
}

impl World {
    /// The world of a setting at its beginning, with a log in a new file.
    pub(crate) fn new(setting: Setting, trace: bool, log: &Path) -> Result<World> {
        Ok(World {
            setting,
            trace,
            log: Mutex::new(File::create(log).context("log")?),
            begin: Instant::now(),
            managers: Mutex::default(),
            failing: Mutex::default(),
            beyond_use: Mutex::default(),
            addressed: Mutex::default(),
            has_options: AtomicBool::new(false),
            scarce: AtomicBool::new(false),
            doubles: Arc::default(),
        })
    }

    /// The hosts, by number.
    pub(crate) fn hosts(&self) -> impl Iterator<Item = (Host, &HostSetting)> {
        (1..).zip(&self.setting.hosts)
    }

    /// A host's setting.
    pub(crate) fn host(&self, host: Host) -> Result<&HostSetting> {
        let index = usize::from(host).checked_sub(1);
        index
            .and_then(|index| self.setting.hosts.get(index))
            .with_context(|| format!("no host {host}"))
    }

    /// Returns true if a host has the kernel's own driver.
    pub(crate) fn has_theirs(&self) -> bool {
        self.setting
            .hosts
            .iter()
            .any(|host| host.driver == Driver::Theirs)
    }

    /// Writes a line with the time to the log.
    pub(crate) fn log(&self, text: &str) {
        let at = self.begin.elapsed();
        let mut log = lock(&self.log);
        // The history goes on without its log.
        let _ = writeln!(log, "{:>10.6} {text}", at.as_secs_f64());
    }

    /// Returns true if an HCA has to be switched off before it works again.
    pub(crate) fn beyond_use(&self, host: Host) -> bool {
        lock(&self.beyond_use).contains(&host)
    }

    /// Notes that an HCA has rules by which it fails, or none.
    pub(crate) fn note_rules(&self, host: Host, some: bool) {
        note(&self.failing, host, some);
    }

    /// Returns true if an HCA has rules by which it fails.
    pub(crate) fn fails(&self, host: Host) -> bool {
        lock(&self.failing).contains(&host)
    }

    /// Notes that an HCA has to be switched off, or was.
    pub(crate) fn note_use(&self, host: Host, beyond: bool) {
        note(&self.beyond_use, host, beyond);
    }

    /// Notes that a user has changed addresses on a host.
    pub(crate) fn note_address(&self, host: Host) {
        note(&self.addressed, host, true);
    }

    /// Returns true if a user has changed addresses on a host.
    pub(crate) fn has_changed_addresses(&self, host: Host) -> bool {
        lock(&self.addressed).contains(&host)
    }

    /// The subnet managers that run, by host.
    pub(crate) fn managers(&self) -> MutexGuard<'_, BTreeMap<Host, Child>> {
        lock(&self.managers)
    }
}

/// Notes that a host is one of these, or is not.
fn note(hosts: &Mutex<BTreeSet<Host>>, host: Host, is_one: bool) {
    let mut hosts = lock(hosts);
    if is_one {
        hosts.insert(host);
    } else {
        hosts.remove(&host);
    }
}

/// Locks a mutex. Its content stays valid if a holder panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
