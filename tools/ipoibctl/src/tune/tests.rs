// SPDX-License-Identifier: GPL-2.0

//! Changes of settings below a root of their own, with everything that may go wrong.

use super::persist::{SYSCTL, UDEV};
use super::plan::{Outcome, Plan};
use super::preset::{Preset, targets};
use super::setting::{COALESCING, GSO, Host, MODE, MTU, Setting, System};
use super::store::Store;
use super::{Place, Report};
use crate::facts::Facts;
use crate::healthy::healthy;
use anyhow::Result;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fs;
use std::io::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

const DATAGRAM_MTU: u32 = 4092;

/// Failure of a write.
#[derive(Debug, Clone, Copy)]
enum Fault {
    /// The kernel refuses it with this error.
    Refused(i32),
    /// The kernel refuses it, and what is refused once is refused for ever.
    Stuck,
    /// The interface goes away.
    Vanish,
    /// The program is killed.
    Killed,
}

/// A host below a root, whose interfaces behave as this driver's.
struct Fake {
    root: tempfile::TempDir,
    system: System,
    ethtool: RefCell<BTreeMap<(String, String), String>>,
    writes: Cell<usize>,
    /// Fate of a write, by its number.
    fault: Cell<Option<(usize, Fault)>>,
    stuck: RefCell<Vec<Setting>>,
}

impl Fake {
    /// A host with interfaces, the first in connected mode with a large MTU, all badly set.
    fn new(interfaces: &[&str]) -> Fake {
        let root = tempfile::tempdir().expect("a directory");
        let fake = Fake {
            system: System::new(root.path()),
            root,
            ethtool: RefCell::default(),
            writes: Cell::new(0),
            fault: Cell::new(None),
            stuck: RefCell::default(),
        };
        fake.file("usr/sbin/ethtool", "");
        fake.file("proc/sys/net/ipv4/tcp_delack_min_us", "40000\n");
        fake.file("proc/sys/net/ipv4/tcp_rmem", "4096 131072 33554432\n");
        fake.file("proc/sys/net/ipv4/tcp_wmem", "4096 16384 4194304\n");
        fake.file("proc/sys/net/core/rmem_max", "212992\n");
        for (n, name) in interfaces.iter().enumerate() {
            for (variable, value) in [
                ("extensions", "0"),
                ("large_frames", "1"),
                ("icrc", "0"),
                ("reorder_window", "0"),
                ("reorder_timeout_us", "9000"),
            ] {
                fake.file(
                    &format!("proc/sys/net/ipoib/{name}/{variable}"),
                    &format!("{value}\n"),
                );
            }
            let (mode, mtu) = if n == 0 {
                ("connected", "65520")
            } else {
                ("datagram", "2044")
            };
            fake.file(&format!("sys/class/net/{name}/mode"), &format!("{mode}\n"));
            fake.file(&format!("sys/class/net/{name}/mtu"), &format!("{mtu}\n"));
            let mut ethtool = fake.ethtool.borrow_mut();
            ethtool.insert(((*name).into(), GSO.into()), "off".into());
            ethtool.insert(
                ((*name).into(), COALESCING.into()),
                "rx-usecs 16 rx-frames 8".into(),
            );
        }
        fake
    }

    fn file(&self, name: &str, text: &str) {
        let path = self.root.path().join(name);
        fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        fs::write(path, text).expect("a file");
    }

    fn text(&self, name: &str) -> Option<String> {
        fs::read_to_string(self.root.path().join(name)).ok()
    }

    /// Everything: texts of all files, and the settings of ethtool.
    fn all(&self) -> BTreeMap<String, String> {
        fn walk(dir: &Path, found: &mut BTreeMap<String, String>) {
            for entry in fs::read_dir(dir).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    walk(&path, found);
                } else if path.file_name().is_some_and(|name| name != "lock") {
                    let text = fs::read_to_string(&path).expect("text");
                    found.insert(path.display().to_string(), text.trim().to_owned());
                }
            }
        }
        let mut found = BTreeMap::new();
        walk(self.root.path(), &mut found);
        for ((interface, name), value) in &*self.ethtool.borrow() {
            found.insert(format!("{interface} {name}"), value.clone());
        }
        found
    }

    fn place(&self) -> Place<'_> {
        Place {
            host: self,
            store: Store::new(self.root.path()),
            persistent: true,
        }
    }

    fn run(&self, preset: Preset, infiniband: bool, apply: bool) -> Report {
        let facts = facts(self, infiniband);
        self.place()
            .preset(preset, &facts, apply)
            .expect("a report")
    }

    fn apply(&self, preset: Preset) -> Report {
        self.run(preset, true, true)
    }

    fn undo(&self) -> Report {
        self.place().undo().expect("a report")
    }

    /// The interface goes away, with all that it has.
    fn vanish(&self, name: &str) {
        for dir in ["proc/sys/net/ipoib", "sys/class/net"] {
            fs::remove_dir_all(self.root.path().join(dir).join(name)).expect("it was there");
        }
        self.ethtool
            .borrow_mut()
            .retain(|(interface, _), _| interface != name);
    }
}

impl Host for Fake {
    fn read(&self, setting: &Setting) -> Option<String> {
        if setting.name == GSO || setting.name == COALESCING {
            let key = (setting.interface.clone(), setting.name.clone());
            return self.ethtool.borrow().get(&key).cloned();
        }
        self.system.read(setting)
    }

    fn write(&self, setting: &Setting, value: &str) -> Result<()> {
        self.writes.set(self.writes.get() + 1);
        if self.stuck.borrow().contains(setting) {
            return Err(Error::from_raw_os_error(libc::EIO).into());
        }
        match self.fault.get() {
            Some((at, fault)) if at == self.writes.get() => match fault {
                Fault::Refused(errno) => return Err(Error::from_raw_os_error(errno).into()),
                Fault::Stuck => {
                    // What was changed before cannot be changed back.
                    let known = [MODE, GSO].map(|name| Setting::of("ib1", name));
                    self.stuck.borrow_mut().extend(known);
                    return Err(Error::from_raw_os_error(libc::EIO).into());
                }
                Fault::Vanish => self.vanish(&setting.interface),
                Fault::Killed => panic!("killed"),
            },
            _ => {}
        }
        let mtu = Setting::of(&setting.interface, MTU);
        let mode = Setting::of(&setting.interface, MODE);
        let large = |text: Option<String>| {
            text.and_then(|text| text.parse().ok())
                .is_some_and(|mtu: u32| mtu > DATAGRAM_MTU)
        };
        match setting.name.as_str() {
            GSO | COALESCING => {
                let key = (setting.interface.clone(), setting.name.clone());
                let mut ethtool = self.ethtool.borrow_mut();
                let Some(place) = ethtool.get_mut(&key) else {
                    return Err(Error::from_raw_os_error(libc::ENODEV).into());
                };
                value.clone_into(place);
                return Ok(());
            }
            MODE if value == "datagram" && large(self.system.read(&mtu)) => {
                self.system.write(&mtu, &DATAGRAM_MTU.to_string())?;
            }
            MTU if self.system.read(&mode).as_deref() == Some("datagram")
                && large(Some(value.into())) =>
            {
                return Err(Error::from_raw_os_error(libc::EINVAL).into());
            }
            _ => {}
        }
        self.system.write(setting, value)
    }
}

/// Facts about the interfaces of a host.
fn facts(fake: &Fake, infiniband: bool) -> Facts {
    let mut facts = healthy(!infiniband);
    let like = facts.interfaces.remove(0);
    let dir = fake.root.path().join("sys/class/net");
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("UTF-8")
        })
        .collect();
    names.sort();
    for name in names {
        let mut interface = like.clone();
        interface.name = name;
        facts.interfaces.push(interface);
    }
    facts
}

fn outcome(report: &Report, interface: &str, name: &str) -> Option<Outcome> {
    let setting = Setting::of(interface, name);
    let found = report.settings.iter().find(|step| step.setting == setting);
    found.map(|step| step.outcome)
}

const BOTH: [Preset; 2] = [Preset::Throughput, Preset::Latency];

#[test]
fn a_plan_changes_nothing_and_says_what_it_would() {
    let fake = Fake::new(&["ib0"]);
    let before = fake.all();
    let report = fake.run(Preset::Throughput, true, false);
    assert_eq!(fake.all(), before);
    assert_eq!((report.status, report.action), (1, "plan"));
    let pending: Vec<_> = report
        .settings
        .iter()
        .filter(|step| step.outcome == Outcome::Pending)
        .map(|step| (&*step.setting.name, &*step.now, &*step.then, &*step.command))
        .collect();
    assert_eq!(
        pending,
        [
            ("gso", "off", "on", "ethtool -K ib0 gso on"),
            (
                "net/ipoib/ib0/extensions",
                "0",
                "1",
                "sysctl -w net/ipoib/ib0/extensions=1"
            ),
            (
                "net/ipoib/ib0/icrc",
                "0",
                "1",
                "sysctl -w net/ipoib/ib0/icrc=1"
            ),
            (
                "net/ipoib/ib0/reorder_window",
                "0",
                "32",
                "sysctl -w net/ipoib/ib0/reorder_window=32"
            ),
            (
                "net/ipv4/tcp_wmem",
                "4096 16384 4194304",
                "4096 16384 16777216",
                "sysctl -w net/ipv4/tcp_wmem='4096 16384 16777216'"
            ),
            (
                "net/core/rmem_max",
                "212992",
                "16777216",
                "sysctl -w net/core/rmem_max=16777216"
            ),
            (
                "net/ipv4/tcp_delack_min_us",
                "40000",
                "2000",
                "sysctl -w net/ipv4/tcp_delack_min_us=2000"
            ),
        ]
    );
    assert!(report.settings.iter().all(|step| step.why.ends_with('.')));
    assert_eq!(outcome(&report, "ib0", MODE), Some(Outcome::Same));
}

#[test]
fn settings_that_are_not_there_are_not_in_a_plan() {
    let fake = Fake::new(&["ib0"]);
    fs::remove_dir_all(fake.root.path().join("proc/sys/net/ipv4")).expect("removed");
    fs::remove_dir_all(fake.root.path().join("proc/sys/net/core")).expect("removed");
    fs::remove_file(fake.root.path().join("proc/sys/net/ipoib/ib0/icrc")).expect("removed");
    let report = fake.apply(Preset::Throughput);
    assert_eq!(report.status, 0, "{report:?}");
    let names: Vec<_> = report
        .settings
        .iter()
        .map(|step| step.setting.name.clone())
        .collect();
    assert!(
        !names
            .iter()
            .any(|name| name.contains("delack") || name.contains("icrc")),
        "{names:?}"
    );
    assert_eq!(report.files, [format!("/{UDEV}")]);
}

#[test]
fn undo_restores_everything() {
    for infiniband in [false, true] {
        for preset in BOTH {
            let fake = Fake::new(&["ib0", "ib1"]);
            let before = fake.all();
            let report = fake.run(preset, infiniband, true);
            assert_eq!(report.status, 0, "{report:?}");
            assert_eq!(report.files, [format!("/{SYSCTL}"), format!("/{UDEV}")]);
            let plan = fake.run(preset, infiniband, false);
            assert_eq!(plan.status, 0, "{plan:?}");
            let undone = fake.undo();
            assert_eq!(undone.status, 0, "{undone:?}");
            assert_eq!(fake.all(), before);
        }
    }
}

#[test]
fn twice_is_as_once() {
    let fake = Fake::new(&["ib0", "ib1"]);
    let before = fake.all();
    fake.apply(Preset::Throughput);
    let (once, writes) = (fake.all(), fake.writes.get());
    let report = fake.apply(Preset::Throughput);
    assert_eq!((report.status, fake.writes.get()), (0, writes));
    assert_eq!(fake.all(), once);
    fake.undo();
    assert_eq!(fake.all(), before);
}

#[test]
fn undo_without_apply_does_nothing() {
    let fake = Fake::new(&["ib0"]);
    let before = fake.all();
    let report = fake.undo();
    assert_eq!((report.status, report.settings.len()), (0, 0));
    assert_eq!((fake.all(), fake.writes.get()), (before, 0));
}

#[test]
fn one_preset_after_the_other_goes_back_to_the_first_values() {
    let fake = Fake::new(&["ib0", "ib1"]);
    let before = fake.all();
    for preset in [
        Preset::Latency,
        Preset::Throughput,
        Preset::Latency,
        Preset::Latency,
    ] {
        let report = fake.apply(preset);
        assert_eq!(report.status, 0, "{report:?}");
        let other = if preset == Preset::Latency {
            GSO
        } else {
            COALESCING
        };
        let key = ("ib1".to_owned(), other.to_owned());
        let was = if other == GSO {
            "off"
        } else {
            "rx-usecs 16 rx-frames 8"
        };
        assert_eq!(
            fake.ethtool.borrow()[&key],
            was,
            "{preset:?} left it as the other one wanted it"
        );
    }
    let report = fake.undo();
    assert_eq!(report.status, 0, "{report:?}");
    assert_eq!(fake.all(), before);
}

#[test]
fn the_mtu_falls_with_the_mode_and_comes_back() {
    let fake = Fake::new(&["ib0"]);
    let report = fake.apply(Preset::Latency);
    assert_eq!(outcome(&report, "ib0", MTU), Some(Outcome::Changed));
    assert_eq!(fake.text("sys/class/net/ib0/mtu").as_deref(), Some("4092"));
    assert!(!fake.text(UDEV).expect("a file").contains("mtu"));
    let report = fake.undo();
    assert_eq!(outcome(&report, "ib0", MTU), Some(Outcome::Undone));
    assert_eq!(fake.text("sys/class/net/ib0/mtu").as_deref(), Some("65520"));
}

/// The number of changes to a preset.
fn changes(preset: Preset) -> usize {
    let fake = Fake::new(&["ib0", "ib1"]);
    let plan = Plan::new(preset, targets(preset, &facts(&fake, true)), None, &fake);
    let pending = plan
        .steps
        .iter()
        .filter(|step| step.outcome == Outcome::Pending);
    pending.count()
}

#[test]
fn a_failure_changes_nothing_wherever_it_strikes() {
    for preset in BOTH {
        let count = changes(preset);
        assert!(count >= 4, "{count}");
        for at in 1..=count {
            let fake = Fake::new(&["ib0", "ib1"]);
            let before = fake.all();
            fake.fault.set(Some((at, Fault::Refused(libc::EIO))));
            let report = fake.apply(preset);
            let error = report.error.as_deref().unwrap_or_default();
            assert_eq!(report.status, 2, "{at}: {report:?}");
            assert!(
                error.ends_with("Nothing has been changed."),
                "{at}: {error}"
            );
            assert!(report.files.is_empty());
            assert_eq!(fake.all(), before, "{at}");
        }
    }
}

#[test]
fn a_failure_leaves_the_preset_before_as_it_was() {
    let fake = Fake::new(&["ib0", "ib1"]);
    let first = fake.all();
    fake.apply(Preset::Latency);
    let before = fake.all();
    fake.fault
        .set(Some((fake.writes.get() + 3, Fault::Refused(libc::EIO))));
    assert_eq!(fake.apply(Preset::Throughput).status, 2);
    assert_eq!(fake.all(), before);
    fake.undo();
    assert_eq!(fake.all(), first);
}

#[test]
fn what_cannot_be_rolled_back_is_named_and_undone_later() {
    let fake = Fake::new(&["ib0", "ib1"]);
    let before = fake.all();
    fake.fault
        .set(Some((changes(Preset::Throughput), Fault::Stuck)));
    let report = fake.apply(Preset::Throughput);
    let error = report.error.as_deref().unwrap_or_default();
    assert_eq!(report.status, 2);
    for command in [
        "echo datagram >/sys/class/net/ib1/mode",
        "ethtool -K ib1 gso off",
    ] {
        assert!(error.contains(command), "{error}");
    }
    assert!(!error.contains("Nothing has been changed"), "{error}");
    let again = fake.undo();
    assert_eq!(again.status, 2, "{again:?}");
    fake.stuck.borrow_mut().clear();
    let report = fake.undo();
    assert_eq!(report.status, 0, "{report:?}");
    assert_eq!(fake.all(), before);
}

#[test]
fn a_program_that_was_killed_can_be_undone() {
    for (preset, first) in [
        (Preset::Throughput, None),
        (Preset::Latency, None),
        (Preset::Throughput, Some(Preset::Latency)),
    ] {
        for at in 1.. {
            let fake = Fake::new(&["ib0", "ib1"]);
            let before = fake.all();
            if let Some(first) = first {
                fake.apply(first);
            }
            fake.fault
                .set(Some((fake.writes.get() + at, Fault::Killed)));
            let killed = catch_unwind(AssertUnwindSafe(|| fake.apply(preset))).is_err();
            fake.fault.set(None);
            let report = fake.undo();
            assert_eq!(report.status, 0, "{at}: {report:?}");
            assert_eq!(fake.all(), before, "{preset:?} {first:?} {at}");
            if !killed {
                assert!(at > 4, "{at}");
                break;
            }
        }
    }
}

#[test]
fn what_somebody_else_has_changed_is_left_alone() {
    let fake = Fake::new(&["ib0"]);
    fake.apply(Preset::Throughput);
    let window = "proc/sys/net/ipoib/ib0/reorder_window";
    fake.file(window, "64\n");
    let report = fake.undo();
    assert_eq!(report.status, 1);
    assert_eq!(
        outcome(&report, "ib0", "net/ipoib/ib0/reorder_window"),
        Some(Outcome::Kept)
    );
    assert_eq!(fake.text(window).as_deref(), Some("64\n"));
    assert_eq!(
        fake.text("proc/sys/net/ipoib/ib0/icrc").as_deref(),
        Some("0")
    );
    assert_eq!(fake.undo().settings.len(), 0);
}

#[test]
fn apply_comes_back_to_what_somebody_else_has_set() {
    let fake = Fake::new(&["ib0"]);
    let window = "proc/sys/net/ipoib/ib0/reorder_window";
    fake.apply(Preset::Throughput);
    fake.file(window, "16\n");
    let report = fake.apply(Preset::Throughput);
    assert_eq!(
        outcome(&report, "ib0", "net/ipoib/ib0/reorder_window"),
        Some(Outcome::Changed)
    );
    assert_eq!(fake.undo().status, 0);
    assert_eq!(fake.text(window).as_deref(), Some("16"));
    assert_eq!(
        fake.text("proc/sys/net/ipoib/ib0/icrc").as_deref(),
        Some("0")
    );
}

#[test]
fn nothing_is_changed_where_etc_cannot_be_written() {
    let fake = Fake::new(&["ib0"]);
    // Root may write anything but this.
    fake.file("etc", "no directory\n");
    let before = fake.all();
    let report = fake.apply(Preset::Throughput);
    let error = report.error.as_deref().unwrap_or_default();
    assert_eq!((report.status, fake.writes.get()), (2, 0), "{report:?}");
    assert!(
        error.contains("etc/sysctl.d") && error.ends_with("Nothing has been changed."),
        "{error}"
    );
    assert_eq!(fake.all(), before);
}

#[test]
fn undo_changes_nothing_where_etc_cannot_be_written() {
    let fake = Fake::new(&["ib0"]);
    fake.apply(Preset::Throughput);
    let (before, writes) = (fake.all(), fake.writes.get());
    // A directory in the place of the file cannot be unlinked.
    let path = fake.root.path().join(UDEV);
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("a directory");
    let report = fake.undo();
    assert_eq!(
        (report.status, fake.writes.get()),
        (2, writes),
        "{report:?}"
    );
    fs::remove_dir(&path).expect("removed");
    assert_eq!(fake.undo().status, 0);
    assert_ne!(fake.all(), before);
}

#[test]
fn nothing_is_changed_without_rights() {
    let fake = Fake::new(&["ib0"]);
    fake.file("var/lib", "no directory\n");
    let before = fake.all();
    let report = fake.apply(Preset::Throughput);
    let error = report.error.as_deref().unwrap_or_default();
    assert_eq!((report.status, fake.writes.get()), (2, 0));
    assert!(
        error.contains("var/lib/ipoibctl") && error.ends_with("Nothing has been changed."),
        "{error}"
    );
    assert_eq!(fake.all(), before);
}

#[test]
fn an_interface_may_go_between() {
    let fake = Fake::new(&["ib0", "ib1"]);
    fake.apply(Preset::Throughput);
    fake.vanish("ib1");
    let report = fake.undo();
    assert_eq!(report.status, 0, "{report:?}");
    assert_eq!(outcome(&report, "ib1", GSO), Some(Outcome::Gone));
    assert_eq!(outcome(&report, "ib0", GSO), Some(Outcome::Undone));
    assert_eq!(fake.text(UDEV), None);
    assert_eq!(fake.undo().settings.len(), 0);
}

#[test]
fn an_interface_may_go_meanwhile() {
    // The last three are the host's.
    for at in 1..=changes(Preset::Throughput) - 3 {
        let fake = Fake::new(&["ib0", "ib1"]);
        fake.fault.set(Some((at, Fault::Vanish)));
        let report = fake.apply(Preset::Throughput);
        assert_eq!(report.status, 0, "{at}: {report:?}");
        let gone = if at <= 4 { "ib0" } else { "ib1" };
        let rules = fake.text(UDEV).expect("a file");
        let other = if at <= 4 { "ib1" } else { "ib0" };
        assert!(rules.contains(&format!("\"{other}\"")), "{at}: {rules}");
        let mut steps = report
            .settings
            .iter()
            .filter(|step| step.setting.interface == gone);
        assert!(steps.any(|step| step.outcome == Outcome::Gone), "{at}");
        let undone = fake.undo();
        assert_eq!(undone.status, 0, "{at}: {undone:?}");
        assert_eq!(fake.text(UDEV), None);
    }
}

#[test]
fn what_the_device_cannot_do_is_left_out() {
    let fake = Fake::new(&["ib1"]);
    fake.file("sys/class/net/ib1/mode", "datagram\n");
    // The only change to ib1 that this preset makes.
    fake.fault.set(Some((1, Fault::Refused(libc::EOPNOTSUPP))));
    let report = fake.apply(Preset::Latency);
    assert_eq!(report.status, 0, "{report:?}");
    assert_eq!(
        outcome(&report, "ib1", COALESCING),
        Some(Outcome::Unsupported)
    );
    assert_eq!(fake.text(UDEV), None);
    assert_eq!(report.files, [format!("/{SYSCTL}")]);
}

#[test]
fn an_mtu_is_forgotten_with_its_mode() {
    let fake = Fake::new(&["ib0"]);
    fake.fault.set(Some((1, Fault::Refused(libc::EOPNOTSUPP))));
    let report = fake.apply(Preset::Latency);
    assert_eq!(outcome(&report, "ib0", MODE), Some(Outcome::Unsupported));
    fake.file("sys/class/net/ib0/mtu", "9000\n");
    assert_eq!(fake.undo().status, 0);
    assert_eq!(
        fake.text("sys/class/net/ib0/mtu").as_deref(),
        Some("9000\n")
    );
}

#[test]
fn files_that_somebody_has_edited_stay() {
    let fake = Fake::new(&["ib0"]);
    fake.apply(Preset::Throughput);
    let edited = fake.text(SYSCTL).expect("a file") + "net.ipv4.tcp_sack = 1\n";
    fake.file(SYSCTL, &edited);
    let (before, writes) = (fake.all(), fake.writes.get());
    let report = fake.apply(Preset::Latency);
    assert_eq!((report.status, fake.writes.get()), (2, writes));
    assert_eq!(fake.all(), before);
    let report = fake.undo();
    assert_eq!((report.status, report.notes.len()), (1, 1), "{report:?}");
    assert_eq!(fake.text(SYSCTL), Some(edited));
    assert_eq!(fake.text(UDEV), None);
}

#[test]
fn files_of_others_are_not_overwritten() {
    let fake = Fake::new(&["ib0"]);
    fake.file(UDEV, "mine\n");
    let before = fake.all();
    let report = fake.apply(Preset::Throughput);
    assert_eq!((report.status, fake.writes.get()), (2, 0));
    assert!(report.error.is_some_and(|error| error.contains(UDEV)));
    assert_eq!(fake.all(), before);
}

#[test]
fn no_file_is_written_outside_of_the_hosts_namespace() {
    let fake = Fake::new(&["ib0"]);
    let place = Place {
        persistent: false,
        ..fake.place()
    };
    let facts = facts(&fake, true);
    let report = place
        .preset(Preset::Throughput, &facts, true)
        .expect("a report");
    assert_eq!((report.status, report.notes.len()), (1, 1), "{report:?}");
    assert_eq!((fake.text(UDEV), fake.text(SYSCTL)), (None, None));
    assert_eq!(fake.undo().status, 0);
}

#[test]
fn a_name_that_udev_would_interpret_is_left_alone() {
    let fake = Fake::new(&["ib*"]);
    let before = fake.all();
    let report = fake.run(Preset::Throughput, true, false);
    assert_eq!(report.notes.len(), 1, "{report:?}");
    assert!(
        report
            .settings
            .iter()
            .all(|step| step.setting.interface.is_empty())
    );
    assert_eq!(fake.all(), before);
}
