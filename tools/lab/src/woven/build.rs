// SPDX-License-Identifier: GPL-2.0

//! Builds the module with places.

use crate::kernel::Built;
use crate::layout::{Layout, digest, read};
use crate::module::{self, MODULES};
use crate::stage::Stage;
use crate::step::say;
use crate::woven::weave::{Places, Site, Tree};
use anyhow::{Result, bail};
use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};

/// Most builds until all refused places are found. Errors of one build hide those of the next.
const BUILDS: usize = 60;

/// A module with places, staged for guests.
#[derive(Debug)]
pub(crate) struct Woven {
    pub(crate) sites: Vec<Site>,
    /// Places that do not compile.
    refused: HashSet<usize>,
    /// The layout whose staging area has the module.
    layout: Layout,
    /// Names the module's content.
    pub(crate) id: String,
}

impl Woven {
    /// The numbers of the places that the module has.
    pub(crate) fn compiled(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.sites.len()).filter(|number| !self.refused.contains(number))
    }

    /// The number of the place whose name contains a text.
    pub(crate) fn named(&self, text: &str) -> Result<usize> {
        let found: Vec<usize> = self
            .compiled()
            .filter(|number| self.sites[*number].name().contains(text))
            .collect();
        let exact = |number: &&usize| self.sites[**number].name() == text;
        match (found.iter().find(exact), &found[..]) {
            (Some(number), _) | (None, [number]) => Ok(*number),
            _ => bail!("{} places have {text:?} in their names", found.len()),
        }
    }

    /// The staging area with this module, for the kernel that it was built for.
    pub(crate) fn stage(&self, built: &Built) -> Stage {
        Stage::of(&self.layout, built.lane, built.kernel)
    }
}

/// Builds the module of a checkout with places of a kind, for a kernel whose other modules are staged.
pub(crate) fn build(layout: &Layout, built: &Built, places: Places) -> Result<Woven> {
    let sites = places.find(&layout.checkout)?;
    let own = layout.own.join(places.name());
    let (refused, objects) = compile(layout, built, &own, &sites, places)?;
    say(&format!(
        "{} {}, {} of which do not compile",
        sites.len(),
        places.name(),
        refused.len()
    ));
    let woven = Layout {
        own,
        ..layout.clone()
    };
    let stage = module::stage(&woven, built)?;
    let file = module::install(&stage, &objects, MODULES[0])?;
    // The other modules are as they are.
    let plain = Stage::of(layout, built.lane, built.kernel);
    for name in module::installed(&plain)? {
        if name != MODULES[0] {
            module::install(&stage, &module::updates(&plain)?, &name)?;
        }
    }
    Ok(Woven {
        sites,
        refused,
        layout: woven,
        id: digest(&[&read(&file)?]),
    })
}

/// Builds the module below `own`. Returns the places that do not compile, and the directory of the objects.
fn compile(
    layout: &Layout,
    built: &Built,
    own: &Path,
    sites: &[Site],
    places: Places,
) -> Result<(HashSet<usize>, PathBuf)> {
    let dir = own.join("tree");
    let list = own.join("refused");
    let names: BTreeMap<String, usize> = sites.iter().map(Site::name).zip(0..).collect();
    let before = fs::read_to_string(&list).unwrap_or_default();
    let mut refused: HashSet<usize> = before
        .lines()
        .filter_map(|line| names.get(line).copied())
        .collect();
    let mut rounds = 0;
    let objects = loop {
        rounds += 1;
        let tree = Tree::write(&layout.checkout, &dir, sites, &refused)?;
        let arguments = [
            "CONFIG_INFINIBAND_IB_HWSIM=",
            "KRUSTFLAGS=--cap-lints=allow",
            "-k",
        ];
        let error = match module::build(layout, built, &dir, places.name(), &arguments) {
            Ok(objects) => break objects,
            Err(error) => error,
        };
        let log = layout.logs().join(format!(
            "module-{}-{}-{}.log",
            places.name(),
            built.lane,
            built.kernel
        ));
        let found = tree.complaints(&dir, &fs::read_to_string(log)?)?;
        let count = refused.len();
        refused.extend(found);
        if refused.len() == count || rounds == BUILDS {
            return Err(error);
        }
        let lines: Vec<String> = refused.iter().map(|n| sites[*n].name() + "\n").collect();
        fs::write(&list, lines.concat())?;
    };
    Ok((refused, objects))
}
