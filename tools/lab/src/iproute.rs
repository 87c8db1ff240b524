// SPDX-License-Identifier: GPL-2.0

//! The plugin with which `ip` knows the options of the driver's link type.

use crate::layout::Layout;
use crate::step::lock;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::Path;
use std::process::Command;

/// Builds this checkout's plugin where guests find it, unless it is there.
pub(crate) fn ensure(layout: &Layout) -> Result<()> {
    let dir = layout.iproute();
    fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
    let _lock = lock(&dir.with_extension("lock"))?;
    build(&layout.checkout, &dir, "-O2 -Werror")
}

/// Builds the plugin of a checkout in `dir`.
fn build(checkout: &Path, dir: &Path, flags: &str) -> Result<()> {
    let output = Command::new("make")
        .arg("-C")
        .arg(checkout.join("tools/iproute2"))
        .arg(format!("O={}", dir.display()))
        .arg(format!("CFLAGS={flags}"))
        .output()
        .context("make")?;
    ensure!(
        output.status.success(),
        "the iproute2 plugin does not build:\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Output;
    use tempfile::TempDir;

    fn plugin(flags: &str) -> TempDir {
        let dir = tempfile::tempdir().expect("a directory");
        let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        build(&checkout, dir.path(), flags).expect("builds");
        dir
    }

    /// Runs `ip link` with the plugin in `dir`. Only for what ends before the kernel is asked.
    fn ip_link(dir: &Path, arguments: &str) -> Output {
        Command::new("ip")
            .arg("link")
            .args(arguments.split_whitespace())
            .env("IP_LIB_DIR", dir)
            .output()
            .expect("runs")
    }

    fn help(dir: &Path, kind: &str) -> String {
        let output = ip_link(dir, &format!("help {kind}"));
        String::from_utf8(output.stdout).expect("is text")
    }

    #[test]
    fn the_help_is_that_of_ipoib_and_more() {
        let dir = plugin("-O2 -Werror");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let mut text = words(&help(dir.path(), "ipoib_rs"));
        for more in [
            " [ device DEVICE [ port PORT ] ]",
            " DEVICE := name of an RDMA device; not needed with \"link\"",
            " PORT := its port, from 1",
        ] {
            assert!(text.contains(more), "{text}");
            text = text.replace(more, "");
        }
        let theirs = words(&help(dir.path(), "ipoib"));
        assert_eq!(text.replace("ipoib_rs", "ipoib"), theirs);
    }

    #[test]
    fn nonsense_is_refused() {
        let dir = plugin("-O2 -Werror");
        let unknown = "ipoib_rs: unknown option";
        let pkey = "is wrong: pkey must be a number, at most 0xffff";
        let mode = "is wrong: mode must be datagram or connected";
        let umcast = "is wrong: umcast must be 0 or 1";
        let missing = "needs a value";
        for (options, reason) in [
            ("help", "Usage: ... ipoib_rs"),
            ("speed", unknown),
            // ip itself takes beginnings of words; then no option can be added later.
            ("pk 0xffff", unknown),
            ("pkey", missing),
            ("mode", missing),
            ("mode connected umcast", missing),
            ("pkey 0x10000", pkey),
            ("pkey 99999999999999999999", pkey),
            ("pkey -1", pkey),
            ("pkey 0x", pkey),
            ("pkey 12z", pkey),
            ("mode foo", mode),
            ("mode connect", mode),
            ("mode 1", mode),
            ("umcast 2", umcast),
            ("umcast on", umcast),
        ] {
            let output = ip_link(dir.path(), &format!("add type ipoib_rs {options}"));
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(
                !output.status.success() && text.contains(reason),
                "{options}: {} {text}",
                output.status
            );
        }
    }

    #[test]
    fn without_a_function_of_ip_it_does_not_load() {
        let dir = plugin("-Daddattr_l=no_such_function");
        let output = ip_link(dir.path(), "add type ipoib_rs pkey 0xffff");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains("Garbage instead of arguments"), "{text}");
    }
}
