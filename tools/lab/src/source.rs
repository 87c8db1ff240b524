// SPDX-License-Identifier: GPL-2.0

//! The kernel source: Debian's linux-source package, with this project's patches.

use crate::layout::{Layout, digest, read};
use crate::step::{Interrupted, Job, directory_with, no_space, say};
use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The package's name.
const PACKAGE: &str = "linux-source-7.3";
/// Suites that may have it, the preferred first.
const SUITES: &[&str] = &["trixie-backports", "forky", "sid", "experimental"];
const HINT: &str =
    "If a mirror cannot be reached, set http_proxy or IPOIB_RS_MIRROR, then run make again.";

/// A chosen version of the kernel, and its source package.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Choice {
    /// The packages' version.
    pub(crate) version: String,
    /// Where they come from.
    pub(crate) suite: String,
    /// The source package.
    pub(crate) file: PathBuf,
}

/// A kernel source tree, patched and ready to build from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The tree.
    pub dir: PathBuf,
    /// The package's version.
    pub version: String,
    /// Names the tree's content.
    pub id: String,
}

/// Patches of this checkout, in order.
pub fn patches(layout: &Layout) -> Result<Vec<PathBuf>> {
    let dir = layout.checkout.join("patches/linux-7.3");
    if !dir.exists() {
        return Ok(Vec::new());
    }
    let mut patches: Vec<PathBuf> = fs::read_dir(&dir)?
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| p.extension().is_some_and(|e| e == "patch"))
        .collect();
    patches.sort();
    Ok(patches)
}

/// Makes the source tree ready.
pub fn ensure(layout: &Layout) -> Result<Source> {
    let choice = choose(layout, &|_| Ok(Vec::new()))?;
    let patches = patches(layout)?;
    let mut parts = vec![choice.version.clone().into_bytes()];
    for patch in &patches {
        parts.push(changes(&read(patch)?).to_vec());
    }
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let id = digest(&[&parts[..], &[b"source"]].concat());
    let dir = layout
        .cache
        .join("linux")
        .join(format!("{}-{id}", plain(&choice.version)));
    directory_with(&dir, Interrupted::Discard, &["Makefile"], |dir| {
        let what = format!("unpack {PACKAGE} {} from {}", choice.version, choice.suite);
        Job::new(layout, "source-unpack", &what, HINT)?.run(
            Command::new("bash")
                .args(["-c", "set -euo pipefail; dpkg-deb --fsys-tarfile \"$1\" | tar -xO --wildcards './usr/src/linux-source-*.tar.xz' | tar -xJ --strip-components=1 -C \"$2\"", "bash"])
                .args([choice.file.as_path(), dir]),
        ).or_else(|e| if no_space(&e) { Err(e) } else { damaged(&choice.file, e) })?;
        for patch in &patches {
            let name = patch
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let what = format!("apply {name} to the kernel source");
            Job::new(
                layout,
                "source-patch",
                &what,
                "The patch does not fit this kernel version: refresh it.",
            )?
            .run(
                Command::new("patch")
                    .arg("-d")
                    .arg(dir)
                    .args(["-p1", "--fuzz=0", "-i"])
                    .arg(patch),
            )?;
        }
        Ok(())
    })?;
    Ok(Source {
        dir,
        version: choice.version,
        id,
    })
}

/// Changes of a patch, without its message, for the sake of which no kernel is compiled anew.
fn changes(patch: &[u8]) -> &[u8] {
    let end = b"\n---\n";
    let at = patch.windows(end.len()).position(|text| text == end);
    &patch[at.unwrap_or(0)..]
}

/// A package that cannot be unpacked goes away, so that the next run fetches another copy.
fn damaged(file: &Path, error: anyhow::Error) -> Result<()> {
    fs::remove_file(file).with_context(|| file.display().to_string())?;
    Err(error.context(format!(
        "{} is damaged and was removed: run make again to fetch it anew",
        file.display()
    )))
}

/// A version as part of a file name.
pub(crate) fn plain(version: &str) -> String {
    version
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || ".-".contains(c) {
                c
            } else {
                '_'
            }
        })
        .collect()
}

/// The version that was chosen before, or the newest that the archive has now. Its source package is
/// fetched, together with those that `others` names for an archive that has this version.
pub(crate) fn choose(
    layout: &Layout,
    others: &dyn Fn(&Archive<'_>) -> Result<Vec<String>>,
) -> Result<Choice> {
    let apt = layout.cache.join("apt");
    let record = apt.join("choice.json");
    let update = std::env::var_os("LAB_UPDATE").is_some();
    if let Some(choice) = recorded(&record).filter(|_| !update) {
        return Ok(choice);
    }
    fs::create_dir_all(&apt)?;
    let _lock = crate::step::lock(&apt.join("lock"))?;
    // Another run may have chosen meanwhile.
    if let Some(choice) = recorded(&record).filter(|_| !update) {
        return Ok(choice);
    }
    let wanted = std::env::var("IPOIB_RS_KERNEL_SUITE").ok();
    let suites: Vec<&str> = match &wanted {
        Some(suite) => vec![suite],
        None => SUITES.to_vec(),
    };
    let mut found: Option<Archive<'_>> = None;
    let mut unread = 0;
    for suite in &suites {
        let mut archive = Archive::new(layout, &apt, suite, "")?;
        match archive.newest() {
            Ok(Some(version)) => {
                archive.version = version;
                // A release candidate only if nothing better is to be had anywhere.
                let candidate = archive.version.contains("~rc");
                if found.is_none() || !candidate {
                    found = Some(archive);
                }
                if !candidate {
                    break;
                }
            }
            Ok(None) => {}
            Err(e) if no_space(&e) => return Err(e),
            Err(e) => {
                unread += 1;
                say(&format!(
                    "{suite} cannot be read, going on without it: {e:#}"
                ));
            }
        }
    }
    let Some(archive) = found else {
        if unread == suites.len() {
            bail!(
                "no Debian archive can be reached, and {PACKAGE} is not in the cache yet. {HINT}"
            );
        }
        bail!(
            "no Debian suite has {PACKAGE} now (looked in {})\n{HINT}",
            suites.join(", ")
        );
    };
    let version = archive.version.clone();
    say(&format!(
        "kernel source: {PACKAGE} {version} from {}",
        archive.suite
    ));
    let mut packages = vec![PACKAGE.to_owned()];
    packages.extend(others(&archive)?);
    let file = archive.download(&packages)?.swap_remove(0);
    let choice = Choice {
        version,
        suite: archive.suite,
        file,
    };
    let temporary = record.with_extension("tmp");
    fs::write(&temporary, serde_json::to_vec_pretty(&choice)?)?;
    fs::rename(&temporary, &record)?;
    Ok(choice)
}

/// Packages that are made from the same source, in the same version; `names` chooses them.
pub(crate) fn siblings(
    layout: &Layout,
    choice: &Choice,
    names: impl FnOnce(&Archive<'_>) -> Result<Vec<String>>,
) -> Result<Vec<PathBuf>> {
    let apt = layout.cache.join("apt");
    let _lock = crate::step::lock(&apt.join("lock"))?;
    let archive = Archive::new(layout, &apt, &choice.suite, &choice.version)?;
    let names = names(&archive)?;
    archive.download(&names)
}

/// The choice of an earlier run, if it can be read and its package is there.
fn recorded(record: &Path) -> Option<Choice> {
    let choice: Choice = serde_json::from_slice(&fs::read(record).ok()?).ok()?;
    choice.file.exists().then_some(choice)
}

/// apt with lists and settings of its own, so that the root stays as it was made.
pub(crate) struct Archive<'a> {
    layout: &'a Layout,
    dir: PathBuf,
    suite: String,
    /// The version of all packages that are fetched.
    version: String,
}

impl<'a> Archive<'a> {
    fn new(layout: &'a Layout, apt: &Path, suite: &str, version: &str) -> Result<Archive<'a>> {
        let dir = apt.join(suite);
        for sub in ["state/lists/partial", "cache/archives/partial"] {
            fs::create_dir_all(dir.join(sub))?;
        }
        let own = fs::read_to_string("/etc/apt/sources.list").context("the root's sources.list")?;
        let line = suite_line(&own, suite).context("the root's sources.list names no archive")?;
        fs::write(dir.join("sources.list"), line)?;
        Ok(Archive {
            layout,
            dir,
            suite: suite.to_owned(),
            version: version.to_owned(),
        })
    }

    fn apt(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.current_dir(&self.dir);
        for (key, value) in [
            ("Dir::Etc::sourcelist", self.dir.join("sources.list")),
            ("Dir::Etc::sourceparts", "-".into()),
            ("Dir::State", self.dir.join("state")),
            ("Dir::State::status", "/var/lib/dpkg/status".into()),
            ("Dir::Cache", self.dir.join("cache")),
            ("APT::Sandbox::User", "root".into()),
            ("Acquire::Retries", "3".into()),
        ] {
            command.arg("-o").arg(format!("{key}={}", value.display()));
        }
        command
    }

    /// The newest version that the suite has.
    fn newest(&self) -> Result<Option<String>> {
        let job = Job::new(
            self.layout,
            "source-update",
            &format!("read the package lists of {}", self.suite),
            HINT,
        )?;
        job.run(self.apt("apt-get").args(["update", "--error-on=any"]))?;
        let output = self.apt("apt-cache").args(["madison", PACKAGE]).output()?;
        Ok(newest(&String::from_utf8_lossy(&output.stdout)))
    }

    /// The packages that `name` depends on, by the lists that were read last.
    pub(crate) fn dependencies(&self, name: &str) -> Result<Vec<String>> {
        let output = self
            .apt("apt-cache")
            .arg("show")
            .arg(format!("{name}={}", self.version))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let Some(list) = text.lines().find_map(|l| l.strip_prefix("Depends: ")) else {
            bail!(
                "{} has no {name} {} (any more)\n\
                 Its newer version is taken with LAB_UPDATE=1 in front of make.",
                self.suite,
                self.version
            );
        };
        Ok(list
            .split(',')
            .filter_map(|d| d.split_ascii_whitespace().next())
            .map(str::to_owned)
            .collect())
    }

    /// Fetches packages that are not there yet; their files.
    fn download(&self, names: &[String]) -> Result<Vec<PathBuf>> {
        let missing: Vec<String> = names
            .iter()
            .filter(|name| self.file(name).is_none())
            .map(|name| format!("{name}={}", self.version))
            .collect();
        if !missing.is_empty() {
            let what = format!(
                "fetch {} packages of the kernel {}",
                missing.len(),
                self.version
            );
            Job::new(self.layout, "source-fetch", &what, HINT)?
                .run(self.apt("apt-get").arg("download").args(&missing))?;
        }
        names
            .iter()
            .map(|name| {
                self.file(name)
                    .with_context(|| format!("apt-get download left no {name}"))
            })
            .collect()
    }

    /// The file of a package that was fetched.
    fn file(&self, name: &str) -> Option<PathBuf> {
        // An epoch's colon would be %3a; the kernel's packages have none.
        let begin = format!("{name}_{}_", self.version);
        fs::read_dir(&self.dir)
            .ok()?
            .filter_map(|e| e.ok().map(|e| e.path()))
            .find(|p| {
                p.file_name()
                    .and_then(|n| n.to_str())
                    .is_some_and(|n| n.starts_with(&begin) && n.ends_with(".deb"))
            })
    }
}

/// The newest version in `apt-cache madison`'s output, which lists the newest first.
fn newest(madison: &str) -> Option<String> {
    madison
        .lines()
        .map(|l| l.split('|').map(str::trim).collect::<Vec<_>>())
        .find(|f| f.len() == 3 && f[0] == PACKAGE && f[2].contains("Packages"))
        .map(|f| f[1].to_owned())
}

/// The sources.list line for `suite`, from the first archive that `list` names.
pub(crate) fn suite_line(list: &str, suite: &str) -> Option<String> {
    let line = list
        .lines()
        .map(str::trim)
        .find(|l| l.starts_with("deb "))?;
    // deb [options] uri suite component...
    let (options, rest) = match line["deb ".len()..].trim_start().split_once(']') {
        Some((options, rest)) => (format!("{options}] "), rest),
        None => (String::new(), &line["deb ".len()..]),
    };
    let uri = rest.split_ascii_whitespace().next()?;
    Some(format!("deb {options}{uri} {suite} main\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_archive_of_the_root_serves_other_suites() {
        let list = "# a comment\n\ndeb http://mirror.example/debian trixie main\ndeb http://mirror.example/debian trixie-updates main\n";
        assert_eq!(
            suite_line(list, "sid").as_deref(),
            Some("deb http://mirror.example/debian sid main\n")
        );
        assert_eq!(
            suite_line(
                "deb [signed-by=/k.gpg arch=amd64] file:/m trixie main",
                "sid"
            )
            .as_deref(),
            Some("deb [signed-by=/k.gpg arch=amd64] file:/m sid main\n")
        );
        assert_eq!(suite_line("", "sid"), None);
    }

    #[test]
    fn a_message_changes_nothing() {
        let patch = |message: &str, line: &str| {
            format!("Subject: x\n\n{message}\n---\n a.c | 2 +-\n\n--- a/a.c\n{line}\n")
        };
        let of = |message: &str, line: &str| changes(patch(message, line).as_bytes()).to_vec();
        assert_eq!(of("one", "+y"), of("another", "+y"));
        assert_ne!(of("one", "+y"), of("one", "+z"));
        assert_eq!(changes(b"--- a/a.c\n"), b"--- a/a.c\n");
    }

    #[test]
    fn madison() {
        let text = "linux-source-7.3 | 7.3.4-1~bpo13+1 | http://m/debian trixie-backports/main amd64 Packages\n\
                    linux-source-7.3 | 7.3.1-1~bpo13+1 | http://m/debian trixie-backports/main amd64 Packages\n";
        assert_eq!(newest(text).as_deref(), Some("7.3.4-1~bpo13+1"));
        assert_eq!(newest(""), None);
    }

    #[test]
    fn a_choice_counts_only_whole_and_with_its_package() {
        let dir = tempfile::tempdir().expect("a directory");
        let (record, file) = (dir.path().join("choice.json"), dir.path().join("a.deb"));
        assert_eq!(recorded(&record), None);
        let choice = Choice {
            version: "7.3.4-1".into(),
            suite: "sid".into(),
            file: file.clone(),
        };
        let text = serde_json::to_vec(&choice).expect("text");
        fs::write(&record, &text).expect("writes");
        assert_eq!(recorded(&record), None);
        fs::write(&file, "half of it").expect("writes");
        assert_eq!(recorded(&record), Some(choice));
        fs::write(&record, &text[..text.len() / 2]).expect("writes");
        assert_eq!(recorded(&record), None);
    }

    #[test]
    fn a_damaged_package_is_fetched_anew() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("a.deb");
        fs::write(&file, "half of it").expect("writes");
        let error = damaged(&file, anyhow::anyhow!("tar: Unexpected EOF")).expect_err("fails");
        assert!(!file.exists());
        assert!(error.to_string().contains("run make again"), "{error}");
    }

    #[test]
    fn versions_become_file_names() {
        assert_eq!(plain("7.3.4-1~bpo13+1"), "7.3.4-1_bpo13_1");
    }
}
