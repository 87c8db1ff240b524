// SPDX-License-Identifier: GPL-2.0

//! Initramfs archives for kernels that have what their root needs in modules: the modules, in the
//! order in which they load, and the program `lab-initramfs`, which is not linked to any library.

use crate::layout::{Layout, read};
use crate::step::replace;
use crate::step::{Job, lock};
use anyhow::{Context, Result, bail, ensure};
use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Modules that a machine of the qemu lane needs before it has its root. Without a manager of devices in
/// the guest, its Ethernet is there from the start, too.
const WANTED: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
    "virtio_net",
];

/// Builds the program.
pub fn program(layout: &Layout) -> Result<PathBuf> {
    let dir = layout.own.join("initramfs");
    fs::create_dir_all(&dir)?;
    let _lock = lock(&dir.join("lock"))?;
    Job::new(
        layout,
        "initramfs",
        "build the initramfs' program",
        "The compiler's messages are above.",
    )?
    .run(
        Command::new("cargo")
            .current_dir(&layout.checkout)
            .args(["rustc", "--quiet", "--locked", "-p", "lab-initramfs", "--"])
            .args(["-C", "target-feature=+crt-static", "-C", "strip=symbols"]),
    )?;
    // cargo's next build of all may put one there that wants libraries.
    let program = dir.join("init");
    replace(
        &program,
        &read(&layout.own.join("target/debug/lab-initramfs"))?,
    )?;
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755))?;
    Ok(program)
}

/// Writes the archive for the kernel `release` whose modules are below `root`, unless it is there.
pub fn write(layout: &Layout, root: &Path, release: &str, to: &Path) -> Result<()> {
    let program = read(&program(layout)?)?;
    replace(to, &archive(&program, root, release)?)
}

/// Writes the archive with the program that [`program`] has built before.
pub(crate) fn write_with(program: &Path, root: &Path, release: &str, to: &Path) -> Result<()> {
    replace(to, &archive(&read(program)?, root, release)?)
}

/// Where [`program`] puts it.
pub(crate) fn program_path(layout: &Layout) -> PathBuf {
    layout.own.join("initramfs/init")
}

fn archive(program: &[u8], root: &Path, release: &str) -> Result<Vec<u8>> {
    let dir = root.join("lib/modules").join(release);
    let list = |name: &str| {
        let path = dir.join(name);
        fs::read_to_string(&path).with_context(|| path.display().to_string())
    };
    let files = order(&list("modules.dep")?, &list("modules.builtin")?, WANTED)?;
    let mut archive = Archive::default();
    // The kernel's own has them as well; an archive from outside takes its place.
    archive.directory("dev");
    archive.directory("m");
    archive.console();
    archive.file("init", 0o755, program);
    let mut names = String::new();
    for file in files {
        let name = format!("m/{}.ko", module_name(&file));
        archive.file(&name, 0o644, &module(&dir.join(&file))?);
        names += &format!("/{name}\n");
    }
    archive.file("modules", 0o644, names.as_bytes());
    Ok(archive.finish())
}

/// A module's content, decompressed: here it takes no time, in an emulated machine it does.
fn module(path: &Path) -> Result<Vec<u8>> {
    let program = match path.extension().and_then(|e| e.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        Some("gz") => "gzip",
        _ => return read(path),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(path)
        .output()
        .with_context(|| program.to_owned())?;
    ensure!(
        output.status.success(),
        "{} cannot be decompressed: {}",
        path.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(output.stdout)
}

/// The module that a file holds, by the name under which the kernel knows it.
fn module_name(file: &str) -> String {
    let name = file.rsplit('/').next().unwrap_or(file);
    name.split(".ko").next().unwrap_or(name).replace('-', "_")
}

/// The files of `wanted` and of all that they depend on, in the order in which they load.
fn order(dependencies: &str, builtin: &str, wanted: &[&str]) -> Result<Vec<String>> {
    let known: HashMap<String, (&str, Vec<&str>)> = dependencies
        .lines()
        .filter_map(|l| l.split_once(':'))
        .map(|(file, rest)| {
            // depmod names the one to load first last.
            let before = rest.split_ascii_whitespace().rev().collect();
            (module_name(file), (file, before))
        })
        .collect();
    let mut files: Vec<String> = Vec::new();
    for name in wanted {
        let Some((file, before)) = known.get(*name) else {
            if builtin.lines().any(|l| module_name(l) == *name) {
                continue;
            }
            bail!("the kernel has no {name}, which its machine needs to reach its root");
        };
        for file in before.iter().chain([file]) {
            if !files.iter().any(|f| f == file) {
                files.push((*file).to_owned());
            }
        }
    }
    Ok(files)
}

/// A cpio archive of the kind that the kernel reads ("newc").
#[derive(Default)]
struct Archive {
    content: Vec<u8>,
    inode: u32,
}

impl Archive {
    fn entry(&mut self, name: &str, mode: u32, device: (u32, u32), data: &[u8]) {
        self.inode += 1;
        // Magic; then inode, mode, uid, gid, links, time, size, the device that holds it (2), the
        // device that it is (2), the length of the name with its end, and an unused checksum.
        let size = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let length = u32::try_from(name.len() + 1).unwrap_or(u32::MAX);
        self.content.extend_from_slice(b"070701");
        for field in [
            self.inode, mode, 0, 0, 1, 0, size, 0, 0, device.0, device.1, length, 0,
        ] {
            self.content
                .extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.content.extend_from_slice(name.as_bytes());
        self.content.push(0);
        self.align();
        self.content.extend_from_slice(data);
        self.align();
    }

    fn align(&mut self) {
        self.content
            .resize(self.content.len().next_multiple_of(4), 0);
    }

    fn directory(&mut self, name: &str) {
        self.entry(name, 0o040_755, (0, 0), &[]);
    }

    fn console(&mut self) {
        self.entry("dev/console", 0o020_600, (5, 1), &[]);
    }

    fn file(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.entry(name, 0o100_000 | mode, (0, 0), data);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, (0, 0), &[]);
        self.content
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEP: &str = "kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko.xz\n\
        kernel/fs/9p/9p.ko.xz: kernel/net/9p/9pnet.ko.xz kernel/fs/netfs/netfs.ko.xz\n\
        kernel/net/9p/9pnet.ko.xz:\n";

    #[test]
    fn modules_load_after_what_they_need() {
        let files = order(
            DEP,
            "kernel/drivers/virtio/virtio-pci.ko\n",
            &["virtio_pci", "9pnet_virtio", "9p"],
        )
        .expect("an order");
        let names: Vec<String> = files.iter().map(|f| module_name(f)).collect();
        assert_eq!(names, ["9pnet", "9pnet_virtio", "netfs", "9p"]);
        let error = order(DEP, "", &["overlay"]).expect_err("there is none");
        assert!(error.to_string().contains("overlay"), "{error}");
    }

    #[test]
    fn archives_are_what_cpio_reads() {
        let dir = tempfile::tempdir().expect("a directory");
        let mut archive = Archive::default();
        archive.directory("m");
        archive.file("m/odd", 0o644, b"12345");
        archive.file("init", 0o755, b"x");
        let file = dir.path().join("archive");
        fs::write(&file, archive.finish()).expect("a file");
        let output = Command::new("cpio")
            .args(["-it", "--quiet", "-F"])
            .arg(&file)
            .output()
            .expect("cpio");
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "m\nm/odd\ninit\n");
    }
}
