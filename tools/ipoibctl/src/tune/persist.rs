// SPDX-License-Identifier: GPL-2.0

//! Files that bring settings back after a reboot: one for sysctl, with what is the host's, and one for udev, with what is an
//! interface's, since that has no settings before it is there.

use super::preset::Preset;
use super::setting::{COALESCING, GSO, MODE, MTU};
use super::store::Entry;
use anyhow::{Context, Result};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

/// The file for sysctl, below the root.
pub(super) const SYSCTL: &str = "etc/sysctl.d/90-ipoibctl.conf";
/// The file for udev, below the root.
pub(super) const UDEV: &str = "etc/udev/rules.d/90-ipoibctl.rules";

/// Texts of files by their paths below the root.
pub(super) type Files = BTreeMap<String, String>;

/// Returns true if a name can stand in a rule of udev, where others would be patterns or end a string.
pub(super) fn is_plain(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    !name.is_empty() && name.chars().all(plain)
}

fn heading(preset: Preset) -> String {
    format!(
        "# Made by \"ipoibctl tune --preset {}\"; \"ipoibctl tune --undo\" removes it.\n",
        preset.name()
    )
}

/// The program ethtool below a root, as an absolute path.
fn ethtool(root: &Path) -> Option<String> {
    ["usr/sbin/ethtool", "sbin/ethtool", "usr/bin/ethtool"]
        .into_iter()
        .find(|path| root.join(path).exists())
        .map(|path| format!("/{path}"))
}

/// Action of a rule on a setting; none for one that follows from others.
fn assignment(entry: &Entry, root: &Path) -> Result<Option<String>> {
    let (setting, then) = (&entry.setting, &entry.then);
    let interface = &setting.interface;
    let program = || {
        ethtool(root).context(
            "udev needs the program ethtool for this to survive a reboot: apt install ethtool",
        )
    };
    Ok(match setting.name.as_str() {
        MODE => Some(format!("ATTR{{mode}}=\"{then}\"")),
        MTU => None,
        GSO => Some(format!("RUN+=\"{} -K {interface} gso {then}\"", program()?)),
        COALESCING => Some(format!("RUN+=\"{} -C {interface} {then}\"", program()?)),
        path => {
            // The interface may be about to get this name, and has its variables under the old one.
            let own = path.strip_prefix(&format!("net/ipoib/{interface}/"));
            let variable = own.unwrap_or(path);
            Some(format!("SYSCTL{{net/ipoib/$kernel/{variable}}}=\"{then}\""))
        }
    })
}

/// The files for the settings that were changed; none for none.
///
/// # Errors
///
/// A program that they need is missing.
pub(super) fn files(preset: Preset, entries: &[Entry], root: &Path) -> Result<Files> {
    let mut files = Files::new();
    let (of_host, of_interfaces): (Vec<&Entry>, Vec<&Entry>) = entries
        .iter()
        .partition(|entry| entry.setting.interface.is_empty());
    if !of_host.is_empty() {
        let mut text = heading(preset);
        for Entry { setting, then, .. } in of_host {
            // sysctl goes on without those that the next kernel does not have.
            text += &format!("-{} = {then}\n", setting.name);
        }
        files.insert(SYSCTL.to_owned(), text);
    }
    let mut rules = String::new();
    for entry in of_interfaces {
        if let Some(assignment) = assignment(entry, root)? {
            let interface = &entry.setting.interface;
            rules += &format!("ENV{{.ipoibctl}}==\"{interface}\", {assignment}\n");
        }
    }
    if !rules.is_empty() {
        let text = format!(
            "{}ACTION!=\"add\", GOTO=\"ipoibctl_end\"\nSUBSYSTEM!=\"net\", GOTO=\"ipoibctl_end\"\n\
             ENV{{.ipoibctl}}=\"$name\"\n{rules}LABEL=\"ipoibctl_end\"\n",
            heading(preset)
        );
        files.insert(UDEV.to_owned(), text);
    }
    Ok(files)
}

/// The variable that a line of a file for sysctl sets, with slashes.
pub(super) fn variable(line: &str) -> Option<String> {
    let line = line.trim().trim_start_matches('-');
    if line.starts_with(['#', ';']) {
        return None;
    }
    let name = line.split_once('=')?.0.trim();
    // The first separator says which one is meant.
    Some(match name.find(['/', '.']) {
        Some(at) if name[at..].starts_with('.') => {
            let swap = |c| match c {
                '.' => '/',
                '/' => '.',
                other => other,
            };
            name.chars().map(swap).collect()
        }
        _ => name.to_owned(),
    })
}

/// Files for sysctl that are read after ours and set one of its variables: the variable and the file.
pub(super) fn overruled(entries: &[Entry], root: &Path) -> Vec<(String, PathBuf)> {
    let own = Path::new(SYSCTL).file_name().unwrap_or_default();
    let mut later = BTreeMap::new();
    let mut seen = BTreeSet::new();
    // A file in a directory hides those of its name in later ones.
    for dir in ["etc/sysctl.d", "run/sysctl.d", "usr/lib/sysctl.d"] {
        let files = fs::read_dir(root.join(dir)).into_iter().flatten().flatten();
        for file in files {
            let name = file.file_name();
            let is_conf = Path::new(&name).extension().is_some_and(|e| e == "conf");
            if is_conf && name.as_os_str() > own && seen.insert(name.clone()) {
                later.insert(name, file.path());
            }
        }
    }
    let mut found = Vec::new();
    for path in later.into_values() {
        let text = fs::read_to_string(&path).unwrap_or_default();
        for variable in text.lines().filter_map(variable) {
            let ours = |entry: &&Entry| {
                entry.setting.interface.is_empty() && entry.setting.name == variable
            };
            if entries.iter().any(|entry| ours(&entry)) {
                found.push((variable, path.clone()));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::setting::Setting;
    use super::*;

    fn entry(setting: Setting, then: &str) -> Entry {
        Entry::new(setting, "before".into(), then.into())
    }

    /// A root with files, and a program ethtool.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().expect("a directory");
        for (name, text) in [("usr/sbin/ethtool", "")].iter().chain(files) {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
            fs::write(path, text).expect("a file");
        }
        root
    }

    #[test]
    fn each_setting_is_in_a_file() {
        let root = root(&[]);
        let entries = [
            entry(Setting::of("ib0", MTU), "4092"),
            entry(Setting::of("ib0", MODE), "datagram"),
            entry(Setting::of("ib0", COALESCING), "rx-usecs 0 rx-frames 0"),
            entry(Setting::own("ib0.8001", "icrc"), "1"),
            entry(Setting::of("ib0.8001", GSO), "on"),
            entry(Setting::host("net/ipv4/tcp_delack_min_us"), "2000"),
        ];
        let files = files(Preset::Latency, &entries, root.path()).expect("files");
        let heading =
            "# Made by \"ipoibctl tune --preset latency\"; \"ipoibctl tune --undo\" removes it.\n";
        assert_eq!(
            files[SYSCTL],
            format!("{heading}-net/ipv4/tcp_delack_min_us = 2000\n")
        );
        assert_eq!(
            files[UDEV],
            format!(
                "{heading}ACTION!=\"add\", GOTO=\"ipoibctl_end\"\n\
                 SUBSYSTEM!=\"net\", GOTO=\"ipoibctl_end\"\n\
                 ENV{{.ipoibctl}}=\"$name\"\n\
                 ENV{{.ipoibctl}}==\"ib0\", ATTR{{mode}}=\"datagram\"\n\
                 ENV{{.ipoibctl}}==\"ib0\", RUN+=\"/usr/sbin/ethtool -C ib0 rx-usecs 0 rx-frames 0\"\n\
                 ENV{{.ipoibctl}}==\"ib0.8001\", SYSCTL{{net/ipoib/$kernel/icrc}}=\"1\"\n\
                 ENV{{.ipoibctl}}==\"ib0.8001\", RUN+=\"/usr/sbin/ethtool -K ib0.8001 gso on\"\n\
                 LABEL=\"ipoibctl_end\"\n"
            )
        );
        assert!(
            super::files(Preset::Latency, &[], root.path())
                .expect("none")
                .is_empty()
        );
        assert!(
            super::files(Preset::Latency, &entries[..1], root.path())
                .expect("none")
                .is_empty()
        );
    }

    #[test]
    fn a_missing_ethtool_is_said() {
        let empty = tempfile::tempdir().expect("a directory");
        let entries = [entry(Setting::of("ib0", GSO), "on")];
        let error = files(Preset::Throughput, &entries, empty.path()).expect_err("no ethtool");
        assert!(error.to_string().contains("apt install ethtool"), "{error}");
    }

    #[test]
    fn names_that_udev_would_interpret_are_told() {
        for (name, plain) in [
            ("ib0.8001", true),
            ("ib*", false),
            ("ib$0", false),
            ("i\"b", false),
            ("", false),
        ] {
            assert_eq!(is_plain(name), plain, "{name}");
        }
    }

    #[test]
    fn later_files_for_sysctl_are_found() {
        let line = "net.ipv4.tcp_delack_min_us=40000\n";
        let commented = format!("# {line}");
        let root = root(&[
            ("etc/sysctl.d/10-early.conf", line),
            ("etc/sysctl.d/90-ipoibctl.conf", line),
            ("etc/sysctl.d/95-other.conf", "net.ipv4.conf.a/b.x = 1\n"),
            ("etc/sysctl.d/98-hidden.conf", &commented),
            ("run/sysctl.d/98-hidden.conf", line),
            ("etc/sysctl.d/99-z.conf", line),
            ("etc/sysctl.d/99-z.bak", line),
        ]);
        let entries = [entry(Setting::host("net/ipv4/tcp_delack_min_us"), "2000")];
        let found = overruled(&entries, root.path());
        let expected = root.path().join("etc/sysctl.d/99-z.conf");
        assert_eq!(found, [("net/ipv4/tcp_delack_min_us".into(), expected)]);
        assert_eq!(
            variable("net.ipv4.conf.a/b.x = 1").as_deref(),
            Some("net/ipv4/conf/a.b/x")
        );
        assert_eq!(variable("-net/ipv4/x=1").as_deref(), Some("net/ipv4/x"));
    }
}
