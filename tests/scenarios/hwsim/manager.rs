// SPDX-License-Identifier: GPL-2.0

//! opensm, as it runs on a port.

use super::Port;
use anyhow::{Context, Result, ensure};
use lab::bed::Host;
use lab::task::Task;
use std::time::Duration;

/// An opensm that runs. It lives as long as the machine unless it is ended.
pub(crate) struct Manager {
    host: Host,
    task: Task,
    guid: u64,
    log: String,
}

/// Options of a standby that gives its master up after 4 s. With less, it does so on a busy machine, where the master
/// takes a second for an answer, and then there are two.
const WATCHFUL: &str = "sminfo_polling_timeout 1000\npolling_retry_number 3\n";

impl Manager {
    /// Starts one on the port of an HCA. Its files are its own: on real hosts no two share any.
    pub(crate) fn start(host: &Host, hca: &str, options: &str) -> Result<Manager> {
        let (guid, log, command) = prepare(host, hca, options)?;
        Ok(Manager {
            host: host.clone(),
            task: host.spawn(&command)?,
            guid,
            log,
        })
    }

    /// Starts one beside a master, and waits until it is the standby.
    pub(super) fn standby(host: &Host, hca: &str) -> Result<Manager> {
        let file = "/tmp/watchful.conf";
        host.outside().ok(&format!("printf '{WATCHFUL}' >{file}"))?;
        let standby = Manager::start(host, hca, &format!("-F {file}"))?;
        standby.wait_for("Entering STANDBY state", Duration::from_secs(20))?;
        Ok(standby)
    }

    /// Runs one on the port of an HCA until the fabric is set up, and fails if it has logged an error.
    pub(super) fn once(host: &Host, hca: &str) -> Result<()> {
        let (_, log, command) = prepare(host, hca, "-o")?;
        host.ok(&command)?;
        is_content(host, &log)
    }

    /// Kills it.
    pub(super) fn kill(&self) -> Result<()> {
        // `ib-hwsim down` may have ended it.
        let _ = self.signal("KILL");
        self.task.wait(self.host.scaled(Duration::from_secs(5)))?;
        Ok(())
    }

    /// Ends it, and fails if it has logged an error.
    pub(crate) fn end(&self) -> Result<()> {
        // It writes the rest of its log then.
        self.signal("TERM")?;
        self.task.wait(self.host.scaled(Duration::from_secs(10)))?;
        is_content(&self.host, &self.log)
    }

    /// Fails if its log, which is complete when it has ended, has no such text.
    pub(super) fn has_logged(&self, text: &str) -> Result<()> {
        let log = self.host.ok(&format!("cat {}", self.log))?;
        ensure!(log.contains(text), "{log}");
        Ok(())
    }

    /// Waits until its log has a line that contains a text; fails with the end of the log.
    pub(super) fn wait_for(&self, text: &str, limit: Duration) -> Result<()> {
        let log = &self.log;
        let shown = format!("grep -q '{text}' {log} || {{ tail -n 30 {log} >&2; false; }}");
        self.host.wait_until(&shown, limit)
    }

    fn signal(&self, name: &str) -> Result<()> {
        let outside = self.host.outside();
        outside.ok(&format!(
            "pkill -{name} -f '^opensm -g {:#018x}'",
            self.guid
        ))?;
        Ok(())
    }
}

/// The GUID of an HCA's port, and the log and the command line of an opensm on it.
fn prepare(host: &Host, hca: &str, options: &str) -> Result<(u64, String, String)> {
    let guid = Port::of(host, hca)?.guid;
    let cache = format!("/var/cache/opensm-{hca}");
    let log = format!("/var/log/opensm-{hca}.log");
    // A module of Debian's kernel, which `ib-hwsim` loads; but there are fabrics made by hand.
    host.ok(&format!(
        "modprobe ib_umad && mkdir -p {cache} && {{ [ ! -e {log} ] || mv --backup=numbered {log} {log}.old; }}"
    ))?;
    // With -d 2 it writes each line at once.
    let command = format!(
        "env OSM_CACHE_DIR={cache} OSM_TMP_DIR={cache} opensm -g {guid:#018x} -d 2 -f {log} {options}"
    );
    Ok((guid, log, command))
}

/// Fails if an opensm, which has ended, has logged an error before it was told to. It gives its agents up then, and cannot
/// answer what it is asked in that moment.
fn is_content(host: &Host, log: &str) -> Result<()> {
    let log = host.ok(&format!("cat {log}")).context("opensm's log")?;
    ensure!(log.contains("SUBNET UP"), "{log}");
    let ran = log.lines().take_while(|l| !l.contains("Exiting SM"));
    let errors: Vec<&str> = ran.filter(|l| l.contains(" ERR ")).collect();
    ensure!(errors.is_empty(), "{}", errors.join("\n"));
    Ok(())
}
