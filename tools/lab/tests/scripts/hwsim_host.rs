// SPDX-License-Identifier: GPL-2.0

//! A computer on which `tools/ib-hwsim` runs: `/sys` and `/run` are directories, in a mount namespace, and mkdir
//! and rmdir make of one what configfs is. The kernel's part, RDMA devices and their ports, is a test's.

use super::outcome;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A directory of configfs comes with its attributes.
const MKDIR: &str = r#"
echo "$@" >>"$lab/mkdirs"
case $* in -p*) exec /usr/bin/mkdir "$@" ;; esac
/usr/bin/mkdir "$@" || exit
[ ! -e "$lab/slow" ] || sleep 1
for dir; do
    case $dir in
    hcas/*)
        echo 1 >"$dir/ports"
        echo >"$dir/device"
        ;;
    switches/*) echo 36 >"$dir/ports" ;;
    cables/*)
        echo >"$dir/ends"
        echo 1 >"$dir/plugged"
        ;;
    *)
        /usr/bin/mkdir "$dir/hcas" "$dir/switches" "$dir/cables"
        echo 0 >"$dir/live"
        [ ! -e "$lab/stillborn" ] || { rm "$dir/live" && /usr/bin/mkdir "$dir/live"; }
        ;;
    esac
done
"#;

/// Attributes go with their directory, and default groups with theirs. Whoever has items stays.
const RMDIR: &str = r#"
for dir; do
    for item in "$dir"/hcas/* "$dir"/switches/* "$dir"/cables/*; do
        [ ! -d "$item" ] || { echo "rmdir: failed to remove '$dir': Directory not empty" >&2; exit 1; }
    done
    rm -r "$dir" || exit
done
"#;

const MODPROBE: &str = r#"
echo "$1" >>"$lab/modules"
case $1 in
ib_hwsim) /usr/bin/mkdir -p "$lab/unmounted/ib_hwsim" /sys/kernel/config ;;
ib_umad) /usr/bin/mkdir /sys/class/infiniband_mad ;;
esac
"#;

const MOUNT: &str = r#"
[ "$*" = '-t configfs configfs /sys/kernel/config' ] && mv "$lab/unmounted/ib_hwsim" /sys/kernel/config
"#;

/// In a namespace, the devices that were moved are there.
const IP: &str = r#"
echo "$@" >>"$lab/ip"
case $* in
*-batch*)
    while read -r object verb name rest; do
        echo "$object $verb $name $rest" >>"$lab/ip"
        case $verb in
        add) : >"/run/netns/$name" ;;
        del) rm "/run/netns/$name" ;;
        exec)
            case $rest in
            rdma*)
                set -- $rest
                mv "$lab/elsewhere/$4" /sys/class/infiniband
                ;;
            esac
            ;;
        esac
    done
    ;;
"netns exec"*)
    mv "$lab"/elsewhere/* /sys/class/infiniband
    shift 3
    "$@"
    ;;
esac
"#;

const RDMA: &str = r#"
echo "$@" >>"$lab/rdma"
case $* in
-b*)
    while read -r _ _ device _ name; do
        echo "$device $name" >>"$lab/rdma"
        mv "/sys/class/infiniband/$device" "$lab/elsewhere" || exit
    done
    ;;
esac
"#;

const OPENSM: &str = r#"
echo "$@" >>"$lab/opensm"
for state in /sys/class/infiniband/*/ports/*/state; do
    read -r old <"$state"
    [ "$old" = '1: DOWN' ] || echo '4: ACTIVE' >"$state"
done
"#;

/// Programs that the script may call as they are, and those above.
const PROGRAMS: &str = "cat cp mv rm sed sh sleep tail";

pub(super) struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    /// A computer with all programs, and the module not loaded yet.
    pub(super) fn new() -> Host {
        let host = Host {
            dir: tempfile::tempdir().expect("a directory"),
        };
        for dir in [
            "bin",
            "elsewhere",
            "run/netns",
            "sys/class/infiniband",
            "sys/kernel/config",
        ] {
            fs::create_dir_all(host.path(dir)).expect("a directory");
        }
        for program in PROGRAMS.split_whitespace() {
            let path = Path::new("/usr/bin").join(program);
            symlink(path, host.path("bin").join(program)).expect("a link");
        }
        for (name, script) in [
            ("mkdir", MKDIR),
            ("rmdir", RMDIR),
            ("modprobe", MODPROBE),
            ("mount", MOUNT),
            ("ip", IP),
            ("rdma", RDMA),
            ("opensm", OPENSM),
            ("id", "echo 0"),
            (
                "dmesg",
                "echo '[ 1.2] ib_hwsim: star: cable c1: there is no h9'",
            ),
        ] {
            host.program(name, script);
        }
        host
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Replaces a program.
    pub(super) fn program(&self, name: &str, script: &str) {
        let file = self.path("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).expect("writes");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).expect("a mode");
    }

    pub(super) fn without(&self, program: &str) {
        fs::remove_file(self.path("bin").join(program)).expect("removes");
    }

    /// A file that says how the programs above behave.
    pub(super) fn flag(&self, name: &str) {
        fs::write(self.path(name), "").expect("writes");
    }

    /// Arguments of a program, or the content of a file of the fabrics; nothing if there is no such file.
    pub(super) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        let file = self.path(name);
        fs::create_dir_all(file.parent().expect("a parent")).expect("a directory");
        fs::write(file, text).expect("writes");
    }

    /// The command line `ib-hwsim …`, with its words split at spaces.
    pub(super) fn command(&self, arguments: &str) -> Command {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../ib-hwsim");
        let mut command = Command::new("/usr/bin/unshare");
        command
            // A chroot's root is no mount of its own, whose propagation could be changed.
            .args(["--mount", "--propagation=unchanged", "/usr/bin/sh", "-c"])
            .arg(
                "/usr/bin/mount --bind \"$lab/sys\" /sys && /usr/bin/mount --bind \"$lab/run\" /run &&
                 exec \"$@\"",
            )
            .arg("sh")
            .arg(script)
            .args(arguments.split_whitespace())
            .env_clear()
            .env("PATH", self.path("bin"))
            .env("lab", self.dir.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// It succeeds; all that it says.
    pub(super) fn passes(&self, arguments: &str) -> String {
        let (ok, text) = outcome(self.command(arguments).spawn().expect("starts"));
        assert!(ok, "{arguments}: {text}");
        text
    }

    /// It fails with one sentence, and something to do, that contain all of these; and leaves no fabric.
    pub(super) fn fails(&self, arguments: &str, words: &[&str]) {
        let before = self.fabrics();
        let (ok, text) = outcome(self.command(arguments).spawn().expect("starts"));
        assert!(!ok, "{arguments}: {text}");
        for word in words {
            assert!(text.contains(word), "{arguments}: no {word:?} in {text}");
        }
        assert_eq!(text.matches("ib-hwsim: ").count(), 1, "{arguments}: {text}");
        assert!(text.lines().count() <= 3, "{arguments}: {text}");
        assert_eq!(self.fabrics(), before, "{arguments}");
    }

    /// The names of the fabrics.
    pub(super) fn fabrics(&self) -> Vec<String> {
        names(&self.path("sys/kernel/config/ib_hwsim"))
    }

    /// The items of a fabric: their names, and the first attribute of each.
    pub(super) fn items(
        &self,
        fabric: &str,
        group: &str,
        attribute: &str,
    ) -> BTreeMap<String, String> {
        let dir = format!("sys/kernel/config/ib_hwsim/{fabric}/{group}");
        names(&self.path(&dir))
            .into_iter()
            .map(|name| {
                let text = self.read(&format!("{dir}/{name}/{attribute}"));
                (name, text.trim().to_owned())
            })
            .collect()
    }

    /// Does what the kernel does when a fabric goes live: a device with a port for each HCA.
    pub(super) fn power(&self, fabric: &str, state: &str) {
        for (number, name) in self.items(fabric, "hcas", "ports").keys().enumerate() {
            let device = format!("hwsim{number}");
            let item = format!("sys/kernel/config/ib_hwsim/{fabric}/hcas/{name}/device");
            self.write(&item, &format!("{device}\n"));
            let port = format!("sys/class/infiniband/{device}/ports/1");
            self.write(&format!("{port}/state"), &format!("{state}\n"));
            let gid = format!("fe80:0000:0000:0000:1234:5678:9abc:000{number}\n");
            self.write(&format!("{port}/gids/0"), &gid);
        }
    }
}

/// The names of a directory's entries, in their order.
fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .map(|entries| {
            entries
                .flatten()
                .map(|entry| entry.file_name().to_string_lossy().into_owned())
                .collect()
        })
        .unwrap_or_default();
    names.sort();
    names
}
