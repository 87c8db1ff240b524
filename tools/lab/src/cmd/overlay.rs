// SPDX-License-Identifier: GPL-2.0

//! `make overlay`: the modules as a part of a kernel tree.

use crate::layout::Layout;
use crate::step::say;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

/// Where the checkout appears in a kernel tree.
pub(crate) const PLACE: &str = "drivers/infiniband/ulp/ipoib_rs";
/// File, the line that it needs, and the line before which that goes; none is the end.
const LINES: &[(&str, &str, Option<&str>)] = &[
    (
        "drivers/infiniband/Kconfig",
        "source \"drivers/infiniband/ulp/ipoib_rs/Kconfig\"",
        Some("source \"drivers/infiniband/ulp/iser/Kconfig\""),
    ),
    (
        "drivers/infiniband/ulp/Makefile",
        "obj-$(CONFIG_INFINIBAND_IPOIB_RS)\t+= ipoib_rs/",
        None,
    ),
    (
        "drivers/infiniband/ulp/Makefile",
        "obj-$(CONFIG_INFINIBAND_IB_HWSIM)\t+= ipoib_rs/",
        None,
    ),
];

/// The files of a kernel tree that [`link`] changes.
pub(crate) fn changed() -> impl Iterator<Item = &'static str> {
    let mut files: Vec<&str> = LINES.iter().map(|(file, _, _)| *file).collect();
    files.dedup();
    files.into_iter()
}

/// `make overlay`.
pub fn run(layout: &Layout, kdir: &Path) -> Result<()> {
    link(layout, kdir)?;
    say(&format!(
        "linked into {}; try there:\n   tools/testing/kunit/kunit.py run --kunitconfig={PLACE} --arch=um",
        kdir.display()
    ));
    Ok(())
}

/// Links the checkout into the kernel tree `kdir`; doing it twice changes nothing.
pub(crate) fn link(layout: &Layout, kdir: &Path) -> Result<()> {
    ensure!(
        kdir.join("drivers/infiniband/ulp/Makefile").exists(),
        "{} is no kernel source tree that the lab can see; it must lie below the checkout or the cache",
        kdir.display()
    );
    let link = kdir.join(PLACE);
    if fs::read_link(&link).ok().as_deref() != Some(&layout.checkout) {
        ensure!(
            !link.exists(),
            "{} is there already and not this checkout",
            link.display()
        );
        // A link to another checkout, or to nothing.
        let _ = fs::remove_file(&link);
        symlink(&layout.checkout, &link).with_context(|| link.display().to_string())?;
    }
    for (file, line, before) in LINES {
        let path = kdir.join(file);
        let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        if let Some(text) = with_line(&text, line, *before) {
            fs::write(&path, text).with_context(|| path.display().to_string())?;
        }
    }
    Ok(())
}

/// The text with `line` in it, or none if it is there.
fn with_line(text: &str, line: &str, before: Option<&str>) -> Option<String> {
    if text.lines().any(|l| l == line) {
        return None;
    }
    if let Some((head, tail)) =
        before.and_then(|b| text.split_once(b).map(|(h, t)| (h, format!("{b}{t}"))))
    {
        return Some(format!("{head}{line}\n{tail}"));
    }
    Some(format!("{}\n{line}\n", text.trim_end_matches('\n')))
}

#[cfg(test)]
mod tests {
    use super::with_line;

    #[test]
    fn a_line_goes_in_once_and_in_its_place() {
        let once = with_line("a\nc\n", "b", Some("c")).expect("a change");
        assert_eq!(once, "a\nb\nc\n");
        assert_eq!(with_line(&once, "b", Some("c")), None);
        assert_eq!(with_line("a", "b", None).as_deref(), Some("a\nb\n"));
        assert_eq!(with_line("a\n", "b", Some("c")).as_deref(), Some("a\nb\n"));
    }
}
