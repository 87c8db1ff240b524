// SPDX-License-Identifier: GPL-2.0

//! Settings that can be read and written: variables of sysctl, files of an interface in sysfs, and those of ethtool.

use crate::ethtool::Ethtool;
use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use std::fs;
use std::io::{Error, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Names of settings that are no variables of sysctl.
pub(super) const MODE: &str = "mode";
pub(super) const MTU: &str = "mtu";
pub(super) const GSO: &str = "gso";
pub(super) const COALESCING: &str = "coalescing";

/// A setting of an interface, or of the host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Setting {
    /// The interface, or "" for the host.
    pub(super) interface: String,
    /// One of the names above, or the path of a variable below /proc/sys.
    #[serde(rename = "setting")]
    pub(super) name: String,
}

impl Setting {
    /// A setting of an interface that is no variable of sysctl.
    pub(super) fn of(interface: &str, name: &str) -> Setting {
        Setting {
            interface: interface.to_owned(),
            name: name.to_owned(),
        }
    }

    /// A variable of the driver's for an interface.
    pub(super) fn own(interface: &str, variable: &str) -> Setting {
        Setting::of(interface, &format!("net/ipoib/{interface}/{variable}"))
    }

    /// A variable of the host.
    pub(super) fn host(variable: &str) -> Setting {
        Setting::of("", variable)
    }

    /// The path below /proc/sys, if it is a variable of sysctl.
    pub(super) fn sysctl(&self) -> Option<&str> {
        self.name.starts_with("net/").then_some(&self.name)
    }

    /// Checks one that a file names.
    ///
    /// # Errors
    ///
    /// It is none that this program would make.
    pub(super) fn check(&self) -> Result<()> {
        let known = [MODE, MTU, GSO, COALESCING].contains(&self.name.as_str())
            && !["", ".", ".."].contains(&self.interface.as_str())
            && !self.interface.contains('/');
        let variable = self.sysctl().is_some_and(|path| {
            let mut parts = path.split('/');
            parts.all(|part| !part.is_empty() && part != "..")
        });
        ensure!(
            known || variable,
            "{}: no setting {:?}",
            self.interface,
            self.name
        );
        Ok(())
    }

    /// The command that gives it a value.
    pub(super) fn command(&self, value: &str) -> String {
        let Setting { interface, name } = self;
        match name.as_str() {
            MODE => format!("echo {value} >/sys/class/net/{interface}/mode"),
            MTU => format!("ip link set {interface} mtu {value}"),
            GSO => format!("ethtool -K {interface} gso {value}"),
            COALESCING => format!("ethtool -C {interface} {value}"),
            _ if value.contains(' ') => format!("sysctl -w {name}='{value}'"),
            _ => format!("sysctl -w {name}={value}"),
        }
    }
}

/// Access to settings.
pub(super) trait Host {
    /// The value of a setting; none if there is no such setting on this host, or it cannot be read or is not to be written.
    fn read(&self, setting: &Setting) -> Option<String>;

    /// Gives a setting a value.
    ///
    /// # Errors
    ///
    /// The kernel refuses it, or the interface is gone.
    fn write(&self, setting: &Setting, value: &str) -> Result<()>;
}

/// The settings of this host. Files are below a root, which tests make for themselves.
pub(super) struct System {
    root: PathBuf,
}

impl System {
    pub(super) fn new(root: &Path) -> System {
        System {
            root: root.to_owned(),
        }
    }

    /// The file that a setting is in, unless it is one of ethtool's.
    fn file(&self, setting: &Setting) -> Option<PathBuf> {
        if let Some(path) = setting.sysctl() {
            return Some(self.root.join("proc/sys").join(path));
        }
        let dir = self.root.join("sys/class/net").join(&setting.interface);
        match setting.name.as_str() {
            MODE | MTU => Some(dir.join(&setting.name)),
            _ => None,
        }
    }
}

/// The arguments of `ethtool -C` for a moderation of received frames.
pub(super) fn coalescing(usecs: u32, frames: u32) -> String {
    format!("rx-usecs {usecs} rx-frames {frames}")
}

/// The numbers in them.
pub(super) fn numbers(value: &str) -> Option<(u32, u32)> {
    match value.split(' ').collect::<Vec<_>>()[..] {
        ["rx-usecs", usecs, "rx-frames", frames] => {
            Some((usecs.parse().ok()?, frames.parse().ok()?))
        }
        _ => None,
    }
}

fn on(value: bool) -> &'static str {
    if value { "on" } else { "off" }
}

impl Host for System {
    fn read(&self, setting: &Setting) -> Option<String> {
        if let Some(file) = self.file(setting) {
            // Some variables of sysctl can be read in each network namespace and are the first one's.
            let is_ours = fs::metadata(&file).ok()?.permissions().mode() & 0o200 != 0;
            let text = fs::read_to_string(file).ok().filter(|_| is_ours)?;
            // Variables with several numbers have tabs between them.
            return Some(text.split_whitespace().collect::<Vec<_>>().join(" "));
        }
        let ethtool = Ethtool::new(&setting.interface).ok()?;
        match setting.name.as_str() {
            GSO => Some(on(ethtool.offloads().ok()?.0).to_owned()),
            COALESCING => {
                let (usecs, frames) = ethtool.moderation().ok()?;
                Some(coalescing(usecs, frames))
            }
            _ => None,
        }
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<()> {
        if let Some(file) = self.file(setting) {
            // These files are there or not: one that is made by writing would be none of the kernel's.
            if !file.exists() {
                return Err(Error::from(ErrorKind::NotFound).into());
            }
            return Ok(fs::write(file, value)?);
        }
        let ethtool = Ethtool::new(&setting.interface)?;
        match setting.name.as_str() {
            GSO => ethtool.set_gso(value == "on"),
            _ => {
                let (usecs, frames) = numbers(value).with_context(|| value.to_owned())?;
                ethtool.set_moderation(usecs, frames)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first network namespace's variables are in others, too, and can be read there.
    #[test]
    fn what_is_not_to_be_written_is_no_setting() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("proc/sys/net/core");
        fs::create_dir_all(&dir).expect("directories");
        fs::write(dir.join("rmem_max"), "212992\n").expect("a file");
        let system = System::new(root.path());
        let setting = Setting::host("net/core/rmem_max");
        assert_eq!(system.read(&setting).as_deref(), Some("212992"));
        let mode = fs::Permissions::from_mode(0o444);
        fs::set_permissions(dir.join("rmem_max"), mode).expect("other rights");
        assert_eq!(system.read(&setting), None);
    }

    #[test]
    fn files_are_read_and_written_below_the_root() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("proc/sys/net/ipoib/ib0");
        fs::create_dir_all(&dir).expect("directories");
        fs::write(dir.join("icrc"), "1\n").expect("a file");
        let system = System::new(root.path());
        let icrc = Setting::own("ib0", "icrc");
        assert_eq!(system.read(&icrc).as_deref(), Some("1"));
        system.write(&icrc, "0").expect("it is written");
        assert_eq!(system.read(&icrc).as_deref(), Some("0"));
        for missing in [Setting::own("ib1", "icrc"), Setting::of("ib0", MODE)] {
            assert_eq!(system.read(&missing), None);
            assert!(system.write(&missing, "1").is_err());
            assert_eq!(system.read(&missing), None, "writing made the file");
        }
        let gone = Setting::of("no-such-link", COALESCING);
        assert_eq!(system.read(&gone), None);
        assert!(system.write(&gone, &coalescing(0, 0)).is_err());
    }

    #[test]
    fn variables_with_several_numbers_have_single_spaces() {
        let root = tempfile::tempdir().expect("a directory");
        let dir = root.path().join("proc/sys/net/ipv4");
        fs::create_dir_all(&dir).expect("directories");
        fs::write(dir.join("tcp_rmem"), "4096\t131072\t6291456\n").expect("a file");
        let found = System::new(root.path()).read(&Setting::host("net/ipv4/tcp_rmem"));
        assert_eq!(found.as_deref(), Some("4096 131072 6291456"));
    }

    #[test]
    fn only_our_own_settings_pass() {
        for good in [
            Setting::of("ib0", MODE),
            Setting::own("ib0.8001", "icrc"),
            Setting::host("net/ipv4/tcp_delack_min_us"),
        ] {
            good.check().expect("a setting");
        }
        for bad in [
            Setting::of("", MODE),
            Setting::of("../x", MTU),
            Setting::of("ib0", "address"),
            Setting::host("net/../kernel/core_pattern"),
            Setting::host("kernel/core_pattern"),
        ] {
            assert!(bad.check().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn moderation_is_what_ethtool_takes() {
        assert_eq!(numbers(&coalescing(16, 8)), Some((16, 8)));
        for bad in ["", "rx-usecs 16", "rx-usecs x rx-frames 1"] {
            assert_eq!(numbers(bad), None);
        }
    }
}
