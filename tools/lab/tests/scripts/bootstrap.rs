// SPDX-License-Identifier: GPL-2.0

//! `tools/bootstrap` where something is missing: one sentence, a status that is not 0, and a next run that
//! goes on. The programs that it calls are this computer's, but for those that a test replaces.

use super::{lines, outcome, wait_for_lines};
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Stands in for mmdebstrap: `$tmp` is the directory that it is to fill, `$here` that of the test.
const MMDEBSTRAP: &str = r#"
for a in "$@"; do case $a in */root.tmp.*) tmp=$a ;; esac; done
here=${0%/*}/..
mkdir -p "$tmp/etc/apt/apt.conf.d"
echo run >>"$here/runs"
"#;

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// A computer with root, mmdebstrap, and an `unshare` that does not go in.
    fn new() -> Host {
        // A cache below /tmp would be refused.
        let host = Host {
            dir: tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory"),
        };
        let bin = host.bin();
        fs::create_dir(&bin).expect("a directory");
        for from in ["/usr/sbin", "/usr/bin"] {
            for entry in fs::read_dir(from).expect("programs").flatten() {
                let to = bin.join(entry.file_name());
                if to.symlink_metadata().is_err() {
                    symlink(entry.path(), to).expect("a link");
                }
            }
        }
        for missing in ["mmdebstrap", "apt-get", "apt-config"] {
            host.without(missing);
        }
        host.with("id", "echo 0");
        host.with("uname", "echo x86_64");
        host.with("unshare", "echo inside");
        host.with("mmdebstrap", MMDEBSTRAP);
        host
    }

    fn bin(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    fn cache(&self) -> PathBuf {
        self.dir.path().join("cache")
    }

    fn without(&self, program: &str) {
        // Most computers lack it anyway.
        let _ = fs::remove_file(self.bin().join(program));
    }

    fn with(&self, program: &str, script: &str) {
        self.without(program);
        let file = self.bin().join(program);
        fs::write(&file, format!("#!/bin/bash\n{script}\n")).expect("writes");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    /// How often the root was begun.
    fn runs(&self) -> usize {
        lines(&self.dir.path().join("runs"))
    }

    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("PATH", self.bin())
            .env("HOME", self.dir.path())
            .env("IPOIB_RS_CACHE", self.cache())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn bootstrap(&self) -> Command {
        let mut command = self.command(&script());
        command.arg("help");
        command
    }

    /// It goes in.
    fn passes(&self) {
        let (ok, text) = outcome(self.bootstrap().spawn().expect("starts"));
        assert!(ok && text.contains("inside"), "{text}");
    }

    /// It fails with words that contain all of these.
    fn fails(&self, command: &mut Command, words: &[&str]) {
        let (ok, text) = outcome(command.spawn().expect("starts"));
        assert!(!ok && !text.contains("inside"), "{text}");
        for word in words {
            assert!(text.contains(word), "no {word:?} in {text}");
        }
    }

    /// Waits until the root was begun so often.
    fn wait_for_runs(&self, runs: usize) {
        wait_for_lines(&self.dir.path().join("runs"), runs);
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../bootstrap")
}

#[test]
fn a_root_is_built_once() {
    let host = Host::new();
    host.passes();
    host.passes();
    assert_eq!(host.runs(), 1);
}

#[test]
fn without_root_it_says_sudo() {
    let host = Host::new();
    host.with("id", "echo 1000");
    host.fails(&mut host.bootstrap(), &["needs root", "sudo make help"]);
    assert!(!host.cache().exists());
}

#[test]
fn another_architecture_is_named() {
    let host = Host::new();
    host.with("uname", "echo aarch64");
    host.fails(&mut host.bootstrap(), &["x86-64 only", "aarch64"]);
}

#[test]
fn a_missing_mmdebstrap_is_named_or_installed() {
    let host = Host::new();
    host.without("mmdebstrap");
    host.fails(
        &mut host.bootstrap(),
        &["mmdebstrap is missing", "Install mmdebstrap"],
    );
    host.with("apt-get", "exit 100");
    host.fails(
        &mut host.bootstrap(),
        &["mmdebstrap could not be installed"],
    );
    let install = format!(
        "[ $1 = update ] || {{ cp {0}/bin/saved {0}/bin/mmdebstrap; }}",
        host.dir.path().display()
    );
    host.with("saved", MMDEBSTRAP);
    host.with("apt-get", &install);
    host.passes();
}

#[test]
fn without_a_network_it_says_so_and_the_next_run_builds() {
    let host = Host::new();
    let unreachable =
        "echo 'E: Failed to fetch http://mirror.example/: Temporary failure resolving' >&2
        exit 1";
    host.with("mmdebstrap", &format!("{MMDEBSTRAP}{unreachable}"));
    host.fails(
        &mut host.bootstrap(),
        &["no Debian mirror can be reached", "IPOIB_RS_MIRROR"],
    );
    host.with("mmdebstrap", MMDEBSTRAP);
    host.passes();
    assert_eq!(host.runs(), 2);
}

#[test]
fn a_failure_of_its_own_shows_the_log() {
    let host = Host::new();
    host.with(
        "mmdebstrap",
        &format!("{MMDEBSTRAP}echo 'E: no such package: nonsense'; exit 1"),
    );
    host.fails(
        &mut host.bootstrap(),
        &[
            "no such package: nonsense",
            "could not be built",
            "root.log",
        ],
    );
}

#[test]
fn a_full_disk_is_told_in_a_sentence() {
    let host = Host::new();
    // The log does not find room either.
    host.with(
        "mmdebstrap",
        &format!("{MMDEBSTRAP}head -c 4M /dev/zero >\"$tmp/large\" && exit 0; exit 1"),
    );
    fs::create_dir(host.cache()).expect("a directory");
    let mut command = host.command(Path::new("/usr/bin/unshare"));
    command
        .args(["--mount", "--propagation=unchanged", "bash", "-c"])
        .args([
            "mount -t tmpfs -o size=1m tmpfs \"$1\" && exec \"$2\" help".as_ref(),
            "bash".as_ref(),
            host.cache().as_os_str(),
            script().as_os_str(),
        ]);
    host.fails(
        &mut command,
        &["the disk with", "is full", "IPOIB_RS_CACHE"],
    );
}

#[test]
fn a_cache_that_cannot_be_made_is_named() {
    let host = Host::new();
    fs::write(host.cache(), "a file").expect("writes");
    host.fails(
        &mut host.bootstrap(),
        &["cannot be written", "IPOIB_RS_CACHE"],
    );
}

#[test]
fn a_cache_below_tmp_is_refused() {
    let host = Host::new();
    let dir = tempfile::tempdir_in("/tmp").expect("a directory");
    host.fails(
        host.bootstrap().env("IPOIB_RS_CACHE", dir.path()),
        &["cannot be below /tmp", "IPOIB_RS_CACHE"],
    );
    assert_eq!(host.runs(), 0);
}

#[test]
fn two_runs_at_once_build_one_root() {
    let host = Host::new();
    host.with("mmdebstrap", &format!("{MMDEBSTRAP}sleep 1"));
    let first = host.bootstrap().spawn().expect("starts");
    host.wait_for_runs(1);
    let second = host.bootstrap().spawn().expect("starts");
    let (ok, text) = outcome(second);
    assert!(ok && text.contains("waiting for another run"), "{text}");
    assert!(outcome(first).0);
    assert_eq!(host.runs(), 1);
}

#[test]
fn a_run_that_was_killed_leaves_nothing_half_done() {
    let host = Host::new();
    host.with("mmdebstrap", &format!("{MMDEBSTRAP}sleep 1; exit 1"));
    let mut first = host.bootstrap().spawn().expect("starts");
    host.wait_for_runs(1);
    first.kill().expect("kills");
    first.wait().expect("ends");
    host.with("mmdebstrap", MMDEBSTRAP);
    host.passes();
    assert_eq!(host.runs(), 2);
    let left: Vec<String> = fs::read_dir(host.cache())
        .expect("the cache")
        .flatten()
        .map(|e| e.file_name().to_string_lossy().into_owned())
        .filter(|name| name.starts_with("root.tmp"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}
