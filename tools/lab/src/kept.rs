// SPDX-License-Identifier: GPL-2.0

//! Kept results. A plain `make test` does not run a scenario again that has passed with the same inputs.
//!
//! All scenarios and the lab are one program, so a change of any of its sources runs all of them. `FRESH=1` does so, too.

use crate::layout::{Layout, digest, read};
use crate::module::{self, MODULES, SAMPLES};
use crate::stage::Stage;
use crate::step::replace;
use anyhow::{Context, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The scenarios that have passed with the same inputs.
pub(crate) struct Kept {
    file: PathBuf,
    names: BTreeSet<String>,
}

/// Returns true if all scenarios are to run, whatever is kept.
pub(crate) fn is_fresh() -> bool {
    std::env::var("LAB_ARG_FRESH").is_ok_and(|value| !value.is_empty())
}

/// All files below a directory, in order.
fn files(dir: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    let entries = fs::read_dir(dir).with_context(|| dir.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort_unstable();
    for path in paths {
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

impl Kept {
    /// Loads the results for a program and a staged kernel.
    pub(crate) fn load(layout: &Layout, stage: &Stage, program: &Path) -> Result<Kept> {
        let mut inputs = vec![program.to_owned(), layout.agent(), layout.ipoibctl()];
        let updates = module::updates(stage)?;
        // Others are built from tests/modules and tools/ as scenarios ask for them.
        inputs.extend(
            MODULES
                .iter()
                .chain(&SAMPLES)
                .map(|name| updates.join(format!("{name}.ko"))),
        );
        for dir in [
            layout.iproute(),
            layout.checkout.join("tools"),
            layout.checkout.join("tests/histories"),
            layout.checkout.join("tests/modules"),
        ] {
            files(&dir, &mut inputs)?;
        }
        // The link's target has the digest of the kernel and of the root directory in its name.
        let image = fs::read_link(stage.image()).context("image")?;
        let rounds = std::env::var("LAB_ARG_ROUNDS").unwrap_or_default();
        let mut parts = vec![
            image.into_os_string().into_encoded_bytes(),
            rounds.into_bytes(),
        ];
        for input in &inputs {
            parts.push(input.as_os_str().as_encoded_bytes().to_owned());
            parts.push(read(input)?);
        }
        let id = digest(&parts.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let dir = layout.own.join("kept");
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(Kept::of(dir.join(id)))
    }

    fn of(file: PathBuf) -> Kept {
        let text = fs::read_to_string(&file).unwrap_or_default();
        let names = text.lines().map(str::to_owned).collect();
        Kept { file, names }
    }

    /// Returns true if a scenario has passed.
    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Notes which scenarios have passed in a run, and which have failed. A run whose inputs are no longer these has nothing
    /// to note: something was built while it ran.
    pub(crate) fn note(mut self, now: &Kept, passed: &[String], failed: &[String]) -> Result<()> {
        if self.file != now.file {
            return Ok(());
        }
        self.names.extend(passed.iter().cloned());
        for name in failed {
            self.names.remove(name);
        }
        let text: String = self.names.iter().flat_map(|name| [name, "\n"]).collect();
        replace(&self.file, text.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn what_has_passed_is_kept_until_it_fails() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("id");
        let kept = || Kept::of(file.clone());
        let note = |passed: &[&str], failed: &[&str]| {
            kept()
                .note(&kept(), &names(passed), &names(failed))
                .expect("writes");
        };
        assert!(!kept().has("a::uml_base"));
        note(&["a::uml_base", "b::uml_base"], &["c::uml_base"]);
        assert!(kept().has("a::uml_base") && kept().has("b::uml_base"));
        assert!(!kept().has("c::uml_base"));
        note(&[], &["a::uml_base"]);
        assert!(!kept().has("a::uml_base") && kept().has("b::uml_base"));
        // Something was built in between.
        let other = Kept::of(dir.path().join("other"));
        kept()
            .note(&other, &names(&["d::uml_base"]), &[])
            .expect("writes nothing");
        assert!(!kept().has("d::uml_base") && !Kept::of(other.file).has("d::uml_base"));
    }

    /// Any input that changes has all scenarios run.
    #[test]
    fn a_change_of_an_input_keeps_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let layout = Layout {
            checkout: dir.path().join("checkout"),
            cache: dir.path().into(),
            own: dir.path().join("own"),
        };
        let lane = crate::machine::Lane::Uml;
        let stage = Stage::of(&layout, lane, crate::machine::Kernel::Base);
        let updates = stage.modules().join("lib/modules/7.3/updates");
        let program = dir.path().join("scenarios");
        let mut inputs = vec![
            program.clone(),
            layout.agent(),
            layout.ipoibctl(),
            layout.iproute().join("link.so"),
            layout.checkout.join("tools/lab/x.config"),
            layout.checkout.join("tests/histories/p.plan"),
            layout.checkout.join("tests/modules/m.c"),
        ];
        let modules = MODULES.iter().chain(&SAMPLES);
        inputs.extend(modules.map(|name| updates.join(format!("{name}.ko"))));
        for input in &inputs {
            fs::create_dir_all(input.parent().expect("a parent")).expect("a directory");
            fs::write(input, "").expect("writes");
        }
        std::os::unix::fs::symlink("kernel-1", stage.image()).expect("a link");
        let kept = || Kept::load(&layout, &stage, &program).expect("loads");
        let keep = || kept().note(&kept(), &names(&["a"]), &[]).expect("writes");
        for (n, input) in inputs.iter().enumerate() {
            keep();
            assert!(kept().has("a"));
            fs::write(input, n.to_string()).expect("writes");
            assert!(!kept().has("a"), "{}", input.display());
        }
        keep();
        // A module of a scenario's own, which is built from tests/modules.
        fs::write(updates.join("cm_report.ko"), "").expect("writes");
        assert!(kept().has("a"));
        fs::remove_file(stage.image()).expect("removes");
        std::os::unix::fs::symlink("kernel-2", stage.image()).expect("a link");
        assert!(!kept().has("a"));
    }
}
