// SPDX-License-Identifier: GPL-2.0

//! Record of what was changed, and the files that bring it back after a reboot.
//!
//! The record is written before anything is changed: whatever ends the program, `--undo` finds the old values.

use super::persist::{SYSCTL, UDEV};
use super::preset::Preset;
use super::setting::Setting;
use crate::sys;
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// The directory of the record, below the root.
const DIR: &str = "var/lib/ipoibctl";
const RECORD: &str = "tune.json";

/// A setting that was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    #[serde(flatten)]
    pub(super) setting: Setting,
    /// Value before the first change.
    pub(super) before: String,
    /// Value that it was given.
    pub(super) then: String,
    /// Other values that it may have had from ipoibctl, while settings are being changed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) also: Vec<String>,
}

impl Entry {
    pub(super) fn new(setting: Setting, before: String, then: String) -> Entry {
        Entry {
            setting,
            before,
            then,
            also: Vec::new(),
        }
    }

    /// Returns true if nobody else can have set the value.
    pub(super) fn is_ours(&self, value: &String) -> bool {
        // An MTU of which it is not known yet how the mode has changed it has one value twice.
        self.then == self.before
            || [&self.then, &self.before].contains(&value)
            || self.also.contains(value)
    }
}

/// Record of the changes made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Record {
    version: u32,
    pub(super) preset: Preset,
    /// In the order in which they were changed.
    pub(super) entries: Vec<Entry>,
    /// Files that were written, with the texts that they may have: while settings are changed, the old one and the new one.
    pub(super) files: Texts,
}

/// Texts that are ours, by the path of the file below the root.
pub(super) type Texts = BTreeMap<String, BTreeSet<String>>;

impl Record {
    pub(super) fn new(preset: Preset, entries: Vec<Entry>, files: Texts) -> Record {
        Record {
            version: 1,
            preset,
            entries,
            files,
        }
    }

    /// Reads one that was written.
    ///
    /// # Errors
    ///
    /// It is none that this program would write.
    pub(super) fn parse(text: &str) -> Result<Record> {
        let record: Record = serde_json::from_str(text)?;
        ensure!(record.version == 1, "version {}", record.version);
        for entry in &record.entries {
            entry.setting.check()?;
        }
        for path in record.files.keys() {
            // They are removed, or written to.
            ensure!([SYSCTL, UDEV].contains(&path.as_str()), "no file {path:?}");
        }
        Ok(record)
    }

    /// The text that [`Self::parse`] reads.
    pub(super) fn text(&self) -> Result<String> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// The entry of a setting.
    pub(super) fn entry(&self, setting: &Setting) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.setting == *setting)
    }
}

/// Texts of files by path, none for a file that is not there.
pub(super) type Snapshot = BTreeMap<String, Option<String>>;

/// The record and the files below a root.
pub(super) struct Store {
    root: PathBuf,
}

/// A lock on the record, until it is dropped.
pub(super) struct Lock {
    _file: File,
}

/// Replaces a file as a whole, with its directory if that is missing.
fn replace(path: &Path, text: &str) -> Result<()> {
    let write = || -> std::io::Result<()> {
        let dir = path.parent().unwrap_or(Path::new("/"));
        fs::create_dir_all(dir)?;
        let mut new = path.as_os_str().to_owned();
        new.push(".new");
        let new = PathBuf::from(new);
        let written = File::create(&new)
            .and_then(|mut file| {
                file.write_all(text.as_bytes())?;
                file.sync_all()
            })
            .and_then(|()| fs::rename(&new, path));
        if written.is_err() {
            let _ = fs::remove_file(&new);
        }
        written?;
        File::open(dir)?.sync_all()
    };
    write().with_context(|| path.display().to_string())
}

/// Removes a file, which may be missing.
fn remove(path: &Path) -> Result<()> {
    // On a file system that is read-only, what is missing could not be removed either.
    if fs::symlink_metadata(path).is_err() {
        return Ok(());
    }
    fs::remove_file(path).with_context(|| path.display().to_string())
}

impl Store {
    pub(super) fn new(root: &Path) -> Store {
        Store {
            root: root.to_owned(),
        }
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    fn record_path(&self) -> PathBuf {
        self.root.join(DIR).join(RECORD)
    }

    /// Keeps other processes from changing the record.
    ///
    /// # Errors
    ///
    /// The directory cannot be written, or another process has the lock.
    pub(super) fn lock(&self) -> Result<Lock> {
        let path = self.root.join(DIR).join("lock");
        let open = || -> std::io::Result<File> {
            fs::create_dir_all(self.root.join(DIR))?;
            // Nobody else can open it, and hold the lock for ever.
            let mut options = File::options();
            options.write(true).create(true).truncate(false).mode(0o600);
            options.open(&path)
        };
        let file = open().with_context(|| path.display().to_string())?;
        match sys::try_lock(&file) {
            Ok(()) => Ok(Lock { _file: file }),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                bail!("another ipoibctl is changing settings; try again when it is done")
            }
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// The record; none if nothing was changed.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none of ours.
    pub(super) fn load(&self) -> Result<Option<Record>> {
        let path = self.record_path();
        let text = match fs::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| path.display().to_string())?,
        };
        let record = Record::parse(&text).with_context(|| {
            format!(
                "{} is not as ipoibctl has written it; move it away to go on without --undo",
                path.display()
            )
        })?;
        Ok(Some(record))
    }

    /// Writes the record, or removes it.
    ///
    /// # Errors
    ///
    /// The directory cannot be written; the record is what it was then.
    pub(super) fn save(&self, record: Option<&Record>) -> Result<()> {
        let path = self.record_path();
        match record {
            Some(record) => replace(&path, &record.text()?),
            None => remove(&path),
        }
    }

    /// Files that are there and have none of the texts that are ours.
    pub(super) fn edited(&self, ours: &Texts) -> Vec<String> {
        let is_edited = |(path, texts): &(&String, &BTreeSet<String>)| {
            fs::read_to_string(self.root.join(path)).is_ok_and(|text| !texts.contains(&text))
        };
        let edited = ours.iter().filter(is_edited);
        edited.map(|(path, _)| path.clone()).collect()
    }

    /// The files as they are; none for one that is not there.
    pub(super) fn snapshot<'a>(&self, paths: impl Iterator<Item = &'a String>) -> Snapshot {
        paths
            .map(|path| (path.clone(), fs::read_to_string(self.root.join(path)).ok()))
            .collect()
    }

    /// Makes the files what they are to be.
    ///
    /// # Errors
    ///
    /// One cannot be written or removed; those before it were.
    pub(super) fn write(&self, files: &Snapshot) -> Result<()> {
        for (path, text) in files {
            let path = self.root.join(path);
            match text {
                Some(text) if fs::read_to_string(&path).ok().as_ref() == Some(text) => {}
                Some(text) => replace(&path, text)?,
                None => remove(&path)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Record {
        let entry = Entry::new(Setting::own("ib0", "icrc"), "0".into(), "1".into());
        let texts = BTreeSet::from(["x\n".to_owned()]);
        let files = Texts::from([(SYSCTL.to_owned(), texts)]);
        Record::new(Preset::Throughput, vec![entry], files)
    }

    #[test]
    fn a_record_comes_back() {
        let root = tempfile::tempdir().expect("a directory");
        let store = Store::new(root.path());
        assert_eq!(store.load().expect("none"), None);
        store.save(Some(&record())).expect("saved");
        assert_eq!(store.load().expect("a record"), Some(record()));
        store.save(None).expect("removed");
        store.save(None).expect("removed twice");
        assert_eq!(store.load().expect("none"), None);
    }

    #[test]
    fn a_strange_record_is_refused() {
        let root = tempfile::tempdir().expect("a directory");
        let store = Store::new(root.path());
        store.save(Some(&record())).expect("saved");
        let path = store.record_path();
        let good = fs::read_to_string(&path).expect("text");
        for bad in [
            "",
            "{}",
            &good[..good.len() / 2],
            &good.replace("\"version\": 1", "\"version\": 2"),
            &good.replace("net/ipoib/ib0/icrc", "../../etc/passwd"),
            &good.replace(SYSCTL, "etc/passwd"),
            &good.replace(SYSCTL, "../etc/passwd"),
            &good
                .replace("net/ipoib/ib0/icrc", "mtu")
                .replace("\"interface\": \"ib0\"", "\"interface\": \"..\""),
        ] {
            fs::write(&path, bad).expect("written");
            let error = store.load().expect_err("it is refused");
            assert!(format!("{error:#}").contains("move it away"), "{error:#}");
        }
    }

    #[test]
    fn one_at_a_time() {
        let root = tempfile::tempdir().expect("a directory");
        let store = Store::new(root.path());
        let lock = store.lock().expect("a lock");
        let other = Store::new(root.path()).lock();
        assert!(other.is_err_and(|error| error.to_string().contains("another ipoibctl")));
        drop(lock);
        store.lock().expect("a lock again");
    }

    #[test]
    fn files_that_others_have_edited_are_told() {
        let root = tempfile::tempdir().expect("a directory");
        let store = Store::new(root.path());
        let (a, b) = ("etc/a".to_owned(), "etc/b".to_owned());
        let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let ours = Texts::from([
            (a.clone(), texts(&["old", "new"])),
            (b.clone(), texts(&["b"])),
        ]);
        assert!(store.edited(&ours).is_empty());
        let mut files = Snapshot::from([(a.clone(), Some("old".into())), (b.clone(), None)]);
        store.write(&files).expect("written");
        assert_eq!(store.snapshot(ours.keys()), files);
        assert!(store.edited(&ours).is_empty());
        files.insert(b.clone(), Some("else".into()));
        store.write(&files).expect("written");
        assert_eq!(store.edited(&ours), [b.clone()]);
        files.insert(b.clone(), None);
        store.write(&files).expect("removed");
        store.write(&files).expect("removed twice");
        assert!(!root.path().join(&b).exists() && root.path().join(&a).exists());
    }
}
