// SPDX-License-Identifier: GPL-2.0

//! `tools/module/build` and plain Kbuild with the headers of Debian's kernel. No guest boots: whether the
//! module loads and works is for the scenarios on the kernel `stock`.

use anyhow::{Context, Result, ensure};
use lab::layout::Layout;
use lab::module::MODULES;
use lab::scenario;
use lab::stock::{self, Stock};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs a program, `$@`, in the checkout `$0`.
const DIRECTLY: &str = "exec \"$@\"";

/// A variant in which nothing in the checkout can be written.
const READ_ONLY: &str = "mount --bind \"$0\" \"$0\" && mount -o remount,bind,ro \"$0\" &&
    ! touch \"$0/file\" 2>/dev/null && exec \"$@\"";

scenario! {
    /// Headers that bring metadata need nothing made: the script builds from a checkout that cannot be
    /// written, and Kbuild alone builds in place. Neither compiler nor objtool warns.
    #[on(stock)]
    fn headers_with_metadata_are_enough(bed) {
        let _ = bed;
        let debian = Debian::new("with-metadata")?;
        let objects = debian.cache.join("module").join(&debian.stock.release);
        let said = debian.refused_or_built(READ_ONLY, &["--kdir", text(&debian.tree)?], true)?;
        ensure!(said.lines().next_back() == Some(text(&objects.join("ipoib_rs.ko"))?), "{said}");
        let made = fs::read_dir(debian.cache.join("metadata"))?.count();
        ensure!(made == 0, "metadata was made: {said}");
        is_good(&objects, &fs::read_to_string(objects.join("build.log"))?)?;

        let copy = debian.dir.join("copy");
        fs::create_dir(&copy)?;
        for part in ["Kbuild", "Makefile", "drivers", "rust"] {
            run(Command::new("cp").arg("-r").arg(debian.layout.checkout.join(part)).arg(&copy))?;
        }
        let make = |target: &str| {
            run(Command::new("make")
                .arg("-C")
                .arg(&debian.tree)
                .arg(format!("M={}", copy.display()))
                .arg(target))
        };
        let log = make("modules")?;
        is_good(&copy, &log)?;
        ensure!(copy.join("modules.order").exists());
        make("clean")?;
        ensure!(!copy.join("modules.order").exists() && !copy.join("ipoib_rs.ko").exists());
        debian.done()
    }
}

scenario! {
    /// Metadata whose symbols the kernel does not export is refused before the module is compiled.
    #[on(stock)]
    fn metadata_of_another_build_is_refused(bed) {
        let _ = bed;
        let debian = Debian::new("another-build")?;
        let kdir = debian.dir.join("headers");
        fs::create_dir(&kdir)?;
        for entry in fs::read_dir(&debian.tree)? {
            let entry = entry?;
            symlink(entry.path(), kdir.join(entry.file_name()))?;
        }
        for name in ["Makefile", "Module.symvers"] {
            fs::remove_file(kdir.join(name))?;
        }
        let makefile = fs::read_to_string(debian.tree.join("Makefile"))?;
        fs::write(
            kdir.join("Makefile"),
            makefile.replace(text(&debian.tree)?, text(&kdir)?),
        )?;
        let symbols = fs::read_to_string(debian.tree.join("Module.symvers"))?;
        let (_, rest) = symbols.split_once("_RNvNtCs").context("no symbol of a crate")?;
        ensure!(rest.contains("_6kernel"));
        let hash = symbols
            .split("_6kernel")
            .next()
            .and_then(|before| before.rsplit_once("Cs"))
            .map(|(_, hash)| hash.to_owned())
            .context("no hash of the kernel crate")?;
        let other: String = hash.chars().rev().collect();
        fs::write(kdir.join("Module.symvers"), symbols.replace(&hash, &other))?;
        let objects = debian.dir.join("objects");
        let options = ["--kdir", text(&kdir)?, "--output", text(&objects)?];
        let said = debian.refused_or_built(DIRECTLY, &options, false)?;
        for part in ["is not that of Linux", &hash, &other] {
            ensure!(said.contains(part), "no {part} in {said}");
        }
        ensure!(!objects.exists(), "something was compiled: {said}");
        debian.done()
    }
}

scenario! {
    /// A source with one header that is not Debian's is refused, and the header is named.
    #[on(stock)]
    fn another_source_is_refused(bed) {
        let _ = bed;
        let debian = Debian::new("another-source")?;
        let source = debian.dir.join("linux");
        fs::create_dir(&source)?;
        run(Command::new("tar")
            .args(["--strip-components=1", "--wildcards", "-C"])
            .arg(&source)
            .arg("-xf")
            .arg(&debian.stock.source)
            .args(["*/Makefile", "*/include", "*/scripts"]))?;
        let header = source.join("include/linux/ethtool.h");
        let content = fs::read_to_string(&header)?;
        fs::write(&header, format!("{content}\n"))?;
        let options = ["--kdir", text(&debian.stock.kdir)?, "--source", text(&source)?];
        let said = debian.refused_or_built(DIRECTLY, &options, false)?;
        ensure!(
            said.contains("include/linux/ethtool.h differs") && said.contains("apt policy"),
            "{said}"
        );
        debian.done()
    }
}

const THREE_ENDS: &str = include_str!("../../guest/debian/three_ends.sh");

scenario! {
    /// Metadata that could not be made, since the disk was too small, since it filled up, and since the
    /// script was killed, is made by the next run. Those before say why they failed.
    #[on(stock)]
    fn a_full_disk_and_a_kill_are_got_over(bed) {
        let _ = bed;
        let debian = Debian::new("full-disk")?;
        let options = [
            "--metadata-only",
            "--kdir",
            text(&debian.stock.kdir)?,
            "--release",
            &debian.stock.release,
            "--source",
            text(&debian.stock.source)?,
        ];
        let output = debian.script(THREE_ENDS, &options)?;
        let said = said(&output);
        ensure!(output.status.success(), "{}: {said}", output.status);
        for part in ["100 MB free", "too small: 1", "full: 1", "killed: 137"] {
            ensure!(said.contains(part), "no {part:?} in {said}");
        }
        // It may fill up in a step, or between two.
        let between = said.matches("MB are needed").count() == 2;
        ensure!(said.contains("the disk is full") || between, "{said}");
        ensure!(said.matches("error:").count() == 2, "{said}");
        let tree = format!("{}/metadata/{}-", debian.cache.display(), debian.stock.release);
        ensure!(said.lines().next_back().is_some_and(|line| line.starts_with(&tree)), "{said}");
        debian.done()
    }
}

/// Debian's headers, the metadata that this checkout makes for them, and an empty directory.
struct Debian {
    layout: Layout,
    stock: Stock,
    /// Headers with metadata.
    tree: PathBuf,
    dir: PathBuf,
    /// The script's cache in these scenarios.
    cache: PathBuf,
}

impl Debian {
    fn new(name: &str) -> Result<Debian> {
        let layout = Layout::from_env()?;
        let stock = stock::fetch(&layout)?;
        let said = run(Command::new(layout.checkout.join("tools/module/build"))
            .arg("--metadata-only")
            .arg("--kdir")
            .arg(&stock.kdir)
            .args(["--release", &stock.release])
            .arg("--source")
            .arg(&stock.source)
            .arg("--cache")
            .arg(&layout.cache))?;
        let tree = PathBuf::from(said.lines().next_back().unwrap_or_default());
        ensure!(
            tree.join("rust/libkernel.rmeta").exists(),
            "no metadata: {said}"
        );
        let dir = layout.own.join("scenarios").join(name);
        if dir.exists() {
            fs::remove_dir_all(&dir)?;
        }
        let cache = dir.join("cache");
        fs::create_dir_all(&cache)?;
        Ok(Debian {
            layout,
            stock,
            tree,
            dir,
            cache,
        })
    }

    /// Runs the script by another one, in a mount namespace.
    fn script(&self, how: &str, options: &[&str]) -> Result<Output> {
        let checkout = &self.layout.checkout;
        Command::new("unshare")
            // The root of a chroot is no mount of its own, whose propagation could be changed.
            .args(["--mount", "--propagation", "unchanged", "bash", "-c", how])
            .arg(checkout)
            .arg(checkout.join("tools/module/build"))
            .arg("--cache")
            .arg(&self.cache)
            .args(options)
            .output()
            .context("unshare")
    }

    /// Output of the script, if it succeeds or fails as it is to. A failure is one sentence.
    fn refused_or_built(&self, how: &str, options: &[&str], built: bool) -> Result<String> {
        let output = self.script(how, options)?;
        let said = said(&output);
        ensure!(
            output.status.success() == built,
            "{}: {said}",
            output.status
        );
        let sentences = said.matches("error:").count();
        ensure!(
            sentences == usize::from(!built),
            "{sentences} sentences: {said}"
        );
        Ok(said)
    }

    /// Removes what the scenario has made. After a failure it is left.
    fn done(self) -> Result<()> {
        fs::remove_dir_all(&self.dir).with_context(|| self.dir.display().to_string())
    }
}

/// A module was built and nothing warned.
fn is_good(objects: &Path, log: &str) -> Result<()> {
    for name in MODULES {
        let module = objects.join(format!("{name}.ko"));
        ensure!(module.exists(), "no {}", module.display());
    }
    let warnings: Vec<&str> = log.lines().filter(|l| l.contains("warning:")).collect();
    ensure!(warnings.is_empty(), "{}", warnings.join("\n"));
    ensure!(log.contains("[M]  "), "nothing was built: {log}");
    let info = run(Command::new("modinfo").arg(objects.join("ipoib_rs.ko")))?;
    ensure!(info.contains("rtnl-link-ipoib_rs"), "{info}");
    Ok(())
}

/// Runs a command; all that it has written.
fn run(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("{:?}", command.get_program()))?;
    let said = said(&output);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(said)
}

/// All that a command has written.
fn said(output: &Output) -> String {
    String::from_utf8_lossy(&[&output.stderr[..], &output.stdout[..]].concat()).into_owned()
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().context("a path that is not UTF-8")
}
