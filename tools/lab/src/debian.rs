// SPDX-License-Identifier: GPL-2.0

//! Debian guests: a Debian system in a directory, with packages of the caller's choice, that boots as
//! Debian does, with its own kernel and systemd.
//!
//! ```no_run
//! # fn scenario(bed: lab::bed::Builder) -> anyhow::Result<()> {
//! use lab::debian::Root;
//!
//! let root = Root::new(&["systemd-resolved"])?;
//! root.write("/etc/systemd/network/eth0.network", "[Match]\nName=eth0\n[Network]\nDHCP=yes\n")?;
//! root.run("systemctl enable systemd-networkd")?.ok()?;
//! let bed = bed.debian(&[&root, &root]).up()?; // two guests, one wire
//! let (a, _) = bed.pair()?;
//! a.ok("systemctl is-system-running --wait")?;
//! bed.reset(a)?; // what the boot before has written is gone, what `root` has is there
//! bed.finish()
//! # }
//! ```
//!
//! Nothing configures such a guest's interfaces but what its root has been told to: [`Host::rxe_up`]
//! wants [`Host::ethernet_up`] or the guest's own programs first.
//!
//! [`Host::rxe_up`]: crate::bed::Host::rxe_up
//! [`Host::ethernet_up`]: crate::bed::Host::ethernet_up

use crate::layout::{Layout, digest};
use crate::machine::Output;
use crate::source;
use crate::step::{Interrupted, Job, directory};
use crate::stock::{self, Stock};
use anyhow::{Context, Result, bail, ensure};
use nix::fcntl::{Flock, FlockArg};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

/// The lab's Debian.
const SUITE: &str = "trixie";
/// Packages of every guest: systemd, its device manager, and the commands that scenarios and the lab run.
const PACKAGES: &[&str] = &[
    "ethtool",
    "initramfs-tools",
    "iproute2",
    "iputils-ping",
    "kmod",
    "procps",
    "systemd-sysv",
    "udev",
];
/// Where the agent is in a guest.
const AGENT: &str = "/usr/local/lib/lab/agent";
const UNIT: &str = "\
[Unit]
Description=The lab's agent

[Service]
ExecStart=/usr/local/lib/lab/agent serve

[Install]
WantedBy=multi-user.target
";
const HINT: &str =
    "If a mirror cannot be reached, set http_proxy or IPOIB_RS_MIRROR, then run make again.";

/// A Debian system in a directory. It is its holder's own: changes are gone with it.
#[derive(Clone)]
pub struct Root {
    tree: Arc<Tree>,
    /// The release of the kernel to boot, if it was chosen.
    kernel: Option<String>,
}

/// A layer of its own above a system that the cache has; both are gone when it is dropped.
#[derive(Debug)]
struct Tree {
    dir: PathBuf,
    mounted: bool,
    /// Tells other runs that it is in use.
    _lock: Flock<File>,
}

impl Root {
    /// A system with Debian's stock kernel, systemd and `packages`, without what these recommend. The
    /// first one with these packages takes a minute to make.
    pub fn new(packages: &[&str]) -> Result<Root> {
        let layout = Layout::from_env()?;
        let base = base(&layout, packages)?;
        let tree = Tree::above(&layout, &base)?;
        let root = Root {
            tree: Arc::new(tree),
            kernel: None,
        };
        root.add_agent(&layout)?;
        Ok(root)
    }

    /// A handle to this system that boots its kernel `release`.
    #[must_use]
    pub fn with_kernel(&self, release: &str) -> Root {
        Root {
            tree: Arc::clone(&self.tree),
            kernel: Some(release.to_owned()),
        }
    }

    /// The directory.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.tree.dir.join("root")
    }

    /// Where a path of the guest is outside of it.
    #[must_use]
    pub fn outside(&self, path: &str) -> PathBuf {
        self.path().join(path.trim_start_matches('/'))
    }

    /// Writes a file of the guest, before it boots.
    pub fn write(&self, path: &str, text: &str) -> Result<()> {
        let file = self.outside(path);
        if let Some(dir) = file.parent() {
            fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
        }
        fs::write(&file, text).with_context(|| file.display().to_string())
    }

    /// Copies a file into the guest's directory `to`, before it boots; the path in the guest.
    pub fn copy(&self, from: &Path, to: &str) -> Result<String> {
        let name = from
            .file_name()
            .and_then(|n| n.to_str())
            .with_context(|| format!("{} has no name", from.display()))?;
        let dir = self.outside(to);
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        fs::copy(from, dir.join(name)).with_context(|| from.display().to_string())?;
        Ok(format!("{}/{name}", to.trim_end_matches('/')))
    }

    /// Runs a shell command in the system before it boots, at this computer's own speed. There is a
    /// network, and nothing of the system runs: `apt-get install -y …` works, services do not start.
    pub fn run(&self, script: &str) -> Result<Output> {
        // In a mount and process namespace of its own: nothing of it outlives the command.
        let enter = r#"
            set -e
            mount -t proc proc "$1/proc"
            mount --rbind /dev "$1/dev"
            mount -t tmpfs tmpfs "$1/run"
            for file in /etc/resolv.conf /etc/ssl/certs/ca-certificates.crt; do
                [ -e "$file" ] && [ -e "$1$file" ] || continue
                mount --bind "$file" "$1$file"
            done
            exec chroot "$1" /bin/sh -c "$2""#;
        let mut command = Command::new("unshare");
        command
            // In a chroot there is no mount whose propagation could be changed; bootstrap has done it.
            .args(["--propagation=unchanged", "--mount", "--pid", "--fork"])
            .args(["--kill-child", "--"])
            .args(["bash", "-c", enter, "bash"])
            .arg(self.path())
            .arg(script)
            .env_clear()
            .envs([
                ("HOME", "/root"),
                ("LANG", "C.UTF-8"),
                ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"),
                ("DEBIAN_FRONTEND", "noninteractive"),
                // The lab boots the guest with an initramfs of its own.
                ("INITRD", "No"),
            ])
            .stdin(Stdio::null());
        for name in ["http_proxy", "https_proxy", "no_proxy"] {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        let output = command.output().context("unshare")?;
        Ok(Output {
            what: script.to_owned(),
            code: output.status.code(),
            signal: output.status.signal(),
            timed_out: false,
            stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        })
    }

    /// The releases of the kernels that it has.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let dir = self.outside("/lib/modules");
        let mut releases = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| dir.display().to_string())? {
            let release = entry?.file_name().to_string_lossy().into_owned();
            if self.image_of(&release).is_some() {
                releases.push(release);
            }
        }
        releases.sort();
        Ok(releases)
    }

    /// The kernel that it boots: the chosen one, or its only one.
    pub fn release(&self) -> Result<String> {
        if let Some(release) = &self.kernel {
            return Ok(release.clone());
        }
        match self.kernels()?.as_slice() {
            [release] => Ok(release.clone()),
            [] => bail!("the guest has no kernel"),
            several => bail!(
                "the guest has several kernels, choose one with with_kernel(): {}",
                several.join(", ")
            ),
        }
    }

    /// The kernel image.
    pub(crate) fn image(&self) -> Result<PathBuf> {
        let release = self.release()?;
        self.image_of(&release)
            .with_context(|| format!("the guest has no kernel {release}"))
    }

    fn image_of(&self, release: &str) -> Option<PathBuf> {
        [
            format!("/boot/vmlinuz-{release}"),
            format!("/lib/modules/{release}/vmlinuz"),
        ]
        .iter()
        .map(|path| self.outside(path))
        .find(|path| path.is_file())
    }

    /// Puts the agent in, as a service.
    fn add_agent(&self, layout: &Layout) -> Result<()> {
        let to = self.outside(AGENT);
        fs::create_dir_all(to.parent().context("a directory")?)?;
        // An emulated machine reads all of it.
        let status = Command::new("objcopy")
            .arg("--strip-all")
            .args([&layout.agent(), &to])
            .status()
            .context("objcopy")?;
        ensure!(status.success(), "objcopy: {status}");
        fs::set_permissions(&to, fs::Permissions::from_mode(0o755))?;
        const SERVICE: &str = "/etc/systemd/system/lab-agent.service";
        self.write(SERVICE, UNIT)?;
        let wants = self.outside("/etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants)?;
        symlink(SERVICE, wants.join("lab-agent.service")).context("enable the agent")
    }
}

impl Tree {
    /// Makes a layer above `base`: an overlay, or a copy where the kernel here has none.
    fn above(layout: &Layout, base: &Path) -> Result<Tree> {
        let guests = layout.own.join("guests");
        forget_dead(&guests);
        fs::create_dir_all(&guests).with_context(|| guests.display().to_string())?;
        // A name of its own: processes of two runs may have the same number.
        let dir = tempfile::Builder::new()
            .prefix("guest")
            .tempdir_in(&guests)
            .context("a directory for a guest")?
            .keep();
        let lock = File::create(dir.join("lock"))?;
        let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| e)?;
        for name in ["upper", "work", "root"] {
            let dir = dir.join(name);
            fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        }
        let options = format!(
            "lowerdir={},upperdir={},workdir={}",
            base.display(),
            dir.join("upper").display(),
            dir.join("work").display()
        );
        let root = dir.join("root");
        let mounted = mount(
            Some("overlay"),
            &root,
            Some("overlay"),
            MsFlags::empty(),
            Some(options.as_str()),
        )
        .is_ok();
        let tree = Tree {
            dir,
            mounted,
            _lock: lock,
        };
        if !mounted {
            let status = Command::new("cp")
                .args(["-a", "--reflink=auto", "--"])
                .arg(base.join("."))
                .arg(&root)
                .status()
                .context("cp")?;
            ensure!(status.success(), "copy the guest's root: {status}");
        }
        Ok(tree)
    }
}

/// Removes the trees of processes that were killed. Their mounts are gone with their namespace.
fn forget_dead(guests: &Path) {
    for entry in fs::read_dir(guests).into_iter().flatten().flatten() {
        let Ok(lock) = File::open(entry.path().join("lock")) else {
            // It is being made.
            continue;
        };
        if Flock::lock(lock, FlockArg::LockExclusiveNonblock).is_ok() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        if self.mounted && umount2(&self.dir.join("root"), MntFlags::MNT_DETACH).is_err() {
            return;
        }
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Makes the system that all roots with these packages share.
fn base(layout: &Layout, packages: &[&str]) -> Result<PathBuf> {
    let Stock { release, suite, .. } = stock::fetch(layout)?;
    let mut names: Vec<String> = PACKAGES
        .iter()
        .chain(packages)
        .map(|p| (*p).into())
        .collect();
    names.push(format!("linux-image-{release}"));
    // The kernel wants a newer one than the release has.
    names.push(format!("linux-base/{suite}"));
    names.sort();
    names.dedup();
    let list = fs::read_to_string("/etc/apt/sources.list").context("the root's sources.list")?;
    let kernels =
        source::suite_line(&list, &suite).context("the root's sources.list names no archive")?;
    let lists = format!("{list}{kernels}");
    let wanted = names.join(",");
    let id = digest(&[wanted.as_bytes(), lists.as_bytes(), b"v1"]);
    directory(
        &layout.cache.join("debian").join(&id),
        Interrupted::Discard,
        |dir| {
            let what = format!(
                "make a Debian guest's root: {}",
                if packages.is_empty() {
                    "systemd and a kernel".to_owned()
                } else {
                    packages.join(", ")
                }
            );
            let mut command = Command::new("mmdebstrap");
            command
                .args(["--mode=root", "--variant=minbase", "--format=directory"])
                .arg(format!("--include={wanted}"))
                .args(["--aptopt=Acquire::Retries \"3\""])
                .env("INITRD", "No");
            let proxy = Path::new("/etc/apt/apt.conf.d/90host-proxy");
            if fs::metadata(proxy).is_ok_and(|m| m.len() > 1) {
                command.arg(format!("--aptopt={}", proxy.display()));
            }
            let root = dir.join("root");
            command.arg(SUITE).arg(&root);
            command.args(lists.lines().filter(|l| l.starts_with("deb ")));
            Job::new(layout, &format!("debian-{id}"), &what, HINT)?.run(&mut command)?;
            // Neither the first boot, which would enable every service there is, nor a known machine.
            fs::write(root.join("etc/machine-id"), "")?;
            Ok(())
        },
    )?;
    Ok(layout.cache.join("debian").join(id).join("root"))
}
