// SPDX-License-Identifier: GPL-2.0

//! The shell scripts of `tools/`, each on a computer that is made up of small files.

#![cfg(test)]

mod bootstrap;
mod hwsim;
mod hwsim_host;
mod hwsim_topology;
mod module;
mod module_host;

use std::fs;
use std::path::Path;
use std::process::Child;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Returns true if a command succeeds, and all that it says.
fn outcome(child: Child) -> (bool, String) {
    let output = child.wait_with_output().expect("ends");
    let text = [output.stderr, output.stdout].concat();
    (
        output.status.success(),
        String::from_utf8_lossy(&text).into_owned(),
    )
}

/// How many lines a file has.
fn lines(file: &Path) -> usize {
    fs::read_to_string(file).map_or(0, |text| text.lines().count())
}

/// Waits until a file has so many lines.
fn wait_for_lines(file: &Path, wanted: usize) {
    let limit = Instant::now() + Duration::from_secs(20);
    while lines(file) < wanted {
        assert!(Instant::now() < limit, "{} of {wanted}", lines(file));
        sleep(Duration::from_millis(10));
    }
}
