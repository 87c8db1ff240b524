// SPDX-License-Identifier: GPL-2.0

//! Steps of a build: what was done once is not done again, and what failed says so.
//!
//! A step owns a directory whose name holds the hash of all that goes into it. Its stamp is
//! written last; without it the directory counts as not there. A lock keeps other runs out.

use crate::layout::Layout;
use anyhow::{Context, Result, bail};
use console::style;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use nix::fcntl::{Flock, FlockArg};
use std::fmt;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Without a terminal, progress is a line this often.
const REPORT_EVERY: Duration = Duration::from_secs(20);
/// Lines of the log shown when a command fails.
const TAIL: usize = 25;

/// One line to the user, and for how long we have been at it.
pub fn say(text: &str) {
    static START: OnceLock<Instant> = OnceLock::new();
    let seconds = START.get_or_init(Instant::now).elapsed().as_secs();
    bars().suspend(|| {
        eprintln!(
            "{} {}:{:02} {text}",
            style("::").bold().for_stderr(),
            seconds / 60,
            seconds % 60
        );
    });
}

/// Prints a line of results; progress bars stay below it.
pub(crate) fn print(text: &str) {
    bars().suspend(|| println!("{text}"));
}

/// Where all progress bars are drawn, several at a time.
pub(crate) fn bars() -> &'static MultiProgress {
    static BARS: LazyLock<MultiProgress> = LazyLock::new(MultiProgress::new);
    &BARS
}

/// Steps that run, and where they are, while somebody gathers that.
static RUNNING: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());
static GATHERED: AtomicBool = AtomicBool::new(false);

/// Without a terminal, steps do not tell their progress: who asks for this does, with [`building`].
pub(crate) fn gather_progress(on: bool) {
    GATHERED.store(on, Ordering::Relaxed);
}

/// The oldest step that runs, and how far it is; empty if none does.
pub(crate) fn building() -> String {
    let running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
    running.first().map_or(String::new(), |(what, at)| {
        if at.is_empty() {
            what.clone()
        } else {
            format!("{what}: {at}")
        }
    })
}

/// Holds a file's lock until dropped.
pub(crate) fn lock(path: &Path) -> Result<Flock<File>> {
    let open = || File::create(path).with_context(|| path.display().to_string());
    match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(lock),
        Err(_) => {
            say(&format!("waiting for another run ({})", path.display()));
            Flock::lock(open()?, FlockArg::LockExclusive)
                .map_err(|(_, e)| e)
                .with_context(|| path.display().to_string())
        }
    }
}

/// Writes a file unless it has that content, under a temporary name first: another run may read it right now.
pub(crate) fn replace(path: &Path, content: &[u8]) -> Result<()> {
    if fs::read(path).is_ok_and(|old| old == content) {
        return Ok(());
    }
    let temporary = path.with_extension("tmp");
    fs::write(&temporary, content).with_context(|| temporary.display().to_string())?;
    fs::rename(&temporary, path).with_context(|| path.display().to_string())
}

/// The C library's words for ENOSPC: commands tell it so.
const NO_SPACE: &str = "No space left on device";

fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded
    )
}

/// A command failed since a disk is full.
#[derive(Debug)]
struct FullDisk {
    /// A path on a disk that it wrote to.
    path: PathBuf,
}

impl fmt::Display for FullDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{NO_SPACE} ({})", self.path.display())
    }
}

impl std::error::Error for FullDisk {}

/// Returns true if an error comes from a full disk.
#[must_use]
pub fn no_space(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.is::<FullDisk>()
            || cause.downcast_ref::<io::Error>().is_some_and(is_full)
            || cause.downcast_ref::<nix::Error>() == Some(&nix::Error::ENOSPC)
            // Of commands that have no log.
            || cause.to_string().contains(NO_SPACE)
    })
}

/// Gigabytes that root, kernel source and the kernels of a lane take.
const WANTED: u64 = 12;

/// An error as the user gets it: a full disk in one sentence, else what it says.
#[must_use]
pub fn explain(layout: &Layout, error: anyhow::Error) -> anyhow::Error {
    if !no_space(&error) {
        return error;
    }
    let free = |dir: &Path| {
        nix::sys::statvfs::statvfs(dir)
            .map_or(u64::MAX, |s| s.blocks_available() * s.fragment_size())
    };
    let (build, cache) = (layout.build(), layout.cache.clone());
    let dirs = [cache.clone(), build, "/tmp".into(), "/dev/shm".into()];
    let full = dirs.iter().min_by_key(|dir| free(dir)).unwrap_or(&cache);
    let space = format!("the disk with {} is full", full.display());
    if *full == cache {
        anyhow::anyhow!(
            "{space}: free some of it (the lab takes about {WANTED} GB there) or set IPOIB_RS_CACHE to a \
             directory on a larger one, then run make again: it goes on from there"
        )
    } else {
        anyhow::anyhow!("{space}: free some of it, then run make again: it goes on from there")
    }
}

/// Treatment of a directory whose step was interrupted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Interrupted {
    /// Begin anew.
    Discard,
    /// Go on: the tool in there knows what is missing, as make does.
    Resume,
}

/// Does a step unless it is done: `work` fills the directory that this returns.
pub(crate) fn directory(
    dir: &Path,
    interrupted: Interrupted,
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    directory_with(dir, interrupted, &[], work)
}

/// [`directory`] for a step that is not done without these files, whatever its stamp says: somebody may
/// have made room.
pub(crate) fn directory_with(
    dir: &Path,
    interrupted: Interrupted,
    files: &[&str],
    work: impl FnOnce(&Path) -> Result<()>,
) -> Result<PathBuf> {
    let stamp = dir.join(".done");
    let done = || stamp.exists() && files.iter().all(|f| dir.join(f).exists());
    if done() {
        return Ok(dir.to_owned());
    }
    let parent = dir.parent().context("a step's directory has a parent")?;
    fs::create_dir_all(parent).with_context(|| parent.display().to_string())?;
    let _lock = lock(&dir.with_extension("lock"))?;
    if done() {
        return Ok(dir.to_owned());
    }
    if stamp.exists() {
        say(&format!("{} is not whole: made anew", dir.display()));
        fs::remove_file(&stamp).with_context(|| stamp.display().to_string())?;
    }
    if interrupted == Interrupted::Discard && dir.exists() {
        fs::remove_dir_all(dir).with_context(|| dir.display().to_string())?;
    }
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    work(dir)?;
    fs::write(&stamp, "").with_context(|| stamp.display().to_string())?;
    Ok(dir.to_owned())
}

/// A command whose output goes to a log, with progress for the user.
pub(crate) struct Job<'a> {
    /// Its purpose, for the user: "compile the um kernel".
    what: String,
    log: PathBuf,
    hint: &'a str,
}

impl<'a> Job<'a> {
    /// `name` is the log's; `hint` tells the user what to do when it fails.
    pub(crate) fn new(
        layout: &'a Layout,
        name: &str,
        what: &str,
        hint: &'a str,
    ) -> Result<Job<'a>> {
        say(what);
        let logs = layout.logs();
        fs::create_dir_all(&logs).with_context(|| logs.display().to_string())?;
        let log = logs.join(format!("{name}.log"));
        File::create(&log).with_context(|| log.display().to_string())?;
        Ok(Job {
            what: what.to_owned(),
            log,
            hint,
        })
    }

    /// Runs the command. Lines that begin with two blanks, as Kbuild's do, count as progress.
    pub(crate) fn run(&self, command: &mut Command) -> Result<()> {
        let mut log = File::options()
            .append(true)
            .open(&self.log)
            .with_context(|| self.log.display().to_string())?;
        let total_file = self.log.with_extension("count");
        let total = fs::read_to_string(&total_file)
            .ok()
            .and_then(|s| s.trim().parse().ok());
        let mut progress = Progress::new(&self.what, total);

        let (output, input) = nix::unistd::pipe2(nix::fcntl::OFlag::O_CLOEXEC)?;
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::from(input.try_clone()?))
            .stderr(Stdio::from(input))
            .spawn()
            .with_context(|| format!("{}: start {:?}", self.what, command.get_program()))?;
        // They hold the pipe's writing end.
        command.stdout(Stdio::null()).stderr(Stdio::null());

        let mut lines = BufReader::new(File::from(output));
        let mut line = Vec::new();
        let mut full = false;
        while lines.read_until(b'\n', &mut line)? > 0 {
            full |= line
                .windows(NO_SPACE.len())
                .any(|words| words == NO_SPACE.as_bytes());
            // The command goes on; if it needed the disk, too, it fails by itself.
            full |= log.write_all(&line).is_err_and(|e| is_full(&e));
            if line.starts_with(b"  ") && line.get(2).is_some_and(u8::is_ascii_uppercase) {
                progress.step(String::from_utf8_lossy(&line).trim());
            }
            line.clear();
        }
        let status = child.wait()?;
        let count = progress.count;
        drop(progress);
        if status.success() {
            if count > 0 {
                // Only for the next run's progress bar.
                let _ = fs::write(total_file, count.to_string());
            }
            return Ok(());
        }
        if full {
            let path = self.log.clone();
            return Err(FullDisk { path }).context(format!("could not {}", self.what));
        }
        bail!(
            "could not {} ({status})\n{}\nlog: {}\n{}",
            self.what,
            tail(&self.log),
            self.log.display(),
            self.hint
        )
    }
}

/// The last lines of a log, or those about the first error.
fn tail(log: &Path) -> String {
    let text = fs::read(log)
        .map(|b| String::from_utf8_lossy(&b).into_owned())
        .unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    // With parallel make, the error may be far above the end.
    let error = lines
        .iter()
        .position(|l| l.starts_with("error") || l.contains(" error: ") || l.contains("ERROR: "));
    let end = lines.len().saturating_sub(TAIL);
    let from = error.map_or(end, |e| e.saturating_sub(3).min(end));
    let mut shown = String::new();
    for line in lines[from..].iter().take(TAIL * 2) {
        shown += &format!(
            "  | {line}
"
        );
    }
    shown
}

struct Progress {
    bar: Option<ProgressBar>,
    what: String,
    total: Option<u64>,
    count: u64,
    start: Instant,
    last: Instant,
}

impl Progress {
    fn new(what: &str, total: Option<u64>) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let (bar, template) = match total {
                Some(n) => (
                    ProgressBar::new(n),
                    "   {bar:30} {pos}/{len} {elapsed} {wide_msg}",
                ),
                None => (
                    ProgressBar::new_spinner(),
                    "   {spinner} {pos} {elapsed} {wide_msg}",
                ),
            };
            if let Ok(style) = ProgressStyle::with_template(template) {
                bar.set_style(style);
            }
            let bar = bars().add(bar);
            bar.enable_steady_tick(Duration::from_millis(500));
            bar
        });
        RUNNING
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push((what.to_owned(), String::new()));
        let now = Instant::now();
        Progress {
            bar,
            what: what.to_owned(),
            total,
            count: 0,
            start: now,
            last: now,
        }
    }

    fn step(&mut self, line: &str) {
        self.count += 1;
        if let Some(bar) = &self.bar {
            bar.set_position(self.count);
            bar.set_message(line.to_owned());
        }
        let of = self
            .total
            .map_or(String::new(), |n| format!(" of about {n}"));
        let at = format!("{}{of}", self.count);
        if self.bar.is_none()
            && self.last.elapsed() > REPORT_EVERY
            && !GATHERED.load(Ordering::Relaxed)
        {
            self.last = Instant::now();
            eprintln!(
                "   {}: {at} after {} s",
                self.what,
                self.start.elapsed().as_secs()
            );
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = running.iter_mut().find(|step| step.0 == self.what) {
            own.1 = at;
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(own) = running.iter().position(|step| step.0 == self.what) {
            running.remove(own);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_done_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("a-1");
        let mut runs = 0;
        for _ in 0..2 {
            directory(&dir, Interrupted::Discard, |_| {
                runs += 1;
                Ok(())
            })
            .expect("works");
        }
        assert_eq!(runs, 1);
    }

    #[test]
    fn an_interrupted_step_is_done_again() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("a-1");
        let half = |d: &Path| {
            fs::write(d.join("half"), "")?;
            bail!("interrupted")
        };
        directory(&dir, Interrupted::Discard, half).expect_err("fails");
        directory(&dir, Interrupted::Discard, |d| {
            assert!(!d.join("half").exists());
            bail!("once more")
        })
        .expect_err("fails");
        directory(&dir, Interrupted::Discard, half).expect_err("fails");
        directory(&dir, Interrupted::Resume, |d| {
            assert!(d.join("half").exists());
            Ok(())
        })
        .expect("resumes");
    }

    #[test]
    fn a_stamp_without_content_does_not_count() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path().join("a-1");
        let mut runs = 0;
        for _ in 0..2 {
            directory_with(&dir, Interrupted::Resume, &["image"], |d| {
                runs += 1;
                assert!(!d.join(".done").exists());
                fs::write(d.join("image"), "").map_err(Into::into)
            })
            .expect("works");
        }
        fs::remove_file(dir.join("image")).expect("is there");
        directory_with(&dir, Interrupted::Resume, &["image"], |_| {
            runs += 1;
            bail!("half")
        })
        .expect_err("fails");
        directory_with(&dir, Interrupted::Resume, &["image"], |d| {
            runs += 1;
            fs::write(d.join("image"), "").map_err(Into::into)
        })
        .expect("works");
        assert_eq!(runs, 3);
    }

    fn layout_of(dir: &Path) -> Layout {
        Layout {
            checkout: dir.into(),
            cache: dir.into(),
            own: dir.into(),
        }
    }

    #[test]
    fn a_full_disk_is_told_in_a_sentence() {
        let cache = tempfile::tempdir().expect("a directory");
        let layout = layout_of(cache.path());
        let job = Job::new(&layout, "x", "do x", "Try again.").expect("a log");
        let error = job
            .run(Command::new("sh").args([
                "-c",
                "echo 'error: cannot write y: No space left on device'; exit 1",
            ]))
            .expect_err("fails");
        let job = Job::new(&layout, "y", "do x", "Try again.").expect("a log");
        let plain = job.run(&mut Command::new("false")).expect_err("fails");
        assert!(no_space(&error) && !no_space(&plain));
        let ours = anyhow::Error::from(io::Error::from_raw_os_error(28)).context("a file");
        for error in [error, ours] {
            let text = explain(&layout, error).to_string();
            assert!(text.contains(" is full: free some"), "{text}");
            assert!(!text.contains('\n'), "{text}");
        }
        assert!(
            explain(&layout, plain)
                .to_string()
                .contains("could not do x")
        );
    }

    #[test]
    fn a_log_that_cannot_be_written_is_a_full_disk() {
        let job = Job {
            what: "do x".into(),
            log: "/dev/full".into(),
            hint: "",
        };
        let error = job
            .run(Command::new("sh").args(["-c", "echo a line; exit 1"]))
            .expect_err("fails");
        assert!(no_space(&error), "{error:#}");
    }

    #[test]
    fn a_failed_command_tells_its_log_and_the_hint() {
        let cache = tempfile::tempdir().expect("a directory");
        let layout = layout_of(cache.path());
        let job = Job::new(&layout, "x", "do x", "Try again.").expect("a log");
        let error = job
            .run(
                Command::new("sh")
                    .args(["-c", "echo '  CC a.o'; echo 'a.c:1: error: no' >&2; exit 2"]),
            )
            .expect_err("fails")
            .to_string();
        for part in ["do x", "a.c:1: error: no", "x.log", "Try again."] {
            assert!(error.contains(part), "{error}");
        }
        job.run(Command::new("true").arg("x")).expect("works");
    }
}
