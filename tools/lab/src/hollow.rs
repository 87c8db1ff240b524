// SPDX-License-Identifier: GPL-2.0

//! `make test HOLLOW=1`: whether scenarios notice when a program in the background does nothing.
//!
//! Each scenario runs once as it is, which tells the sites in its source where it starts programs in the background, and
//! then once for each site, with `true` there instead of the program: then it has to fail.

use crate::bed::Builder;
use anyhow::{Result, ensure};
use std::collections::BTreeSet;
use std::panic::Location;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The sites where a run of a scenario starts programs in the background.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sites {
    seen: Arc<Mutex<BTreeSet<String>>>,
    /// The site whose programs are replaced.
    hollow: Option<String>,
}

impl Sites {
    fn seen(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a site. Returns true if its program is to be replaced.
    pub(crate) fn note(&self, site: &Location<'_>) -> bool {
        let site = format!("{}:{}", site.file(), site.line());
        let hollow = self.hollow.as_ref() == Some(&site);
        self.seen().insert(site);
        hollow
    }
}

/// Returns true if that is what the run of tests is about.
pub(crate) fn wanted() -> bool {
    std::env::var("LAB_ARG_HOLLOW").is_ok_and(|value| !value.is_empty())
}

/// Runs a scenario as often as it takes.
///
/// # Errors
///
/// It fails as it is, or passes without one of its programs.
pub(crate) fn run(builder: &Builder, body: fn(Builder) -> Result<()>) -> Result<()> {
    let whole = Sites::default();
    body(builder.clone().sites(whole.clone()))?;
    let sites = whole.seen().clone();
    let mut unnoticed = Vec::new();
    for site in &sites {
        let hollow = Sites {
            hollow: Some(site.clone()),
            ..Sites::default()
        };
        if body(builder.clone().sites(hollow)).is_ok() {
            unnoticed.push(site.as_str());
        }
    }
    ensure!(
        unnoticed.is_empty(),
        "passes with `true` in place of what it starts at {}",
        unnoticed.join(", ")
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_programs_of_one_site_are_replaced() {
        let whole = Sites::default();
        let site = Location::caller();
        assert!(!whole.note(site));
        let hollow = Sites {
            hollow: whole.seen().first().cloned(),
            ..Sites::default()
        };
        assert!(hollow.note(site));
        assert!(!hollow.note(Location::caller()));
    }
}
