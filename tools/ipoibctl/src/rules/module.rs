// SPDX-License-Identifier: GPL-2.0

//! The module: why there is no driver.

use super::{Finding, Layer, Out, Severity, by_hand};
use crate::facts::Facts;

pub(super) fn check(facts: &Facts, found: &mut Vec<Finding>) {
    let module = &facts.module;
    // A host with interfaces of ib_ipoib may well need no other driver.
    if module.loaded || !facts.interfaces.is_empty() {
        return;
    }
    let release = &module.release;
    let mut out = Out {
        layer: Layer::Module,
        subject: "",
        found,
    };
    let has = |line: &str, first: &str, second: &str| {
        let mut words = line.split_whitespace();
        words.next() == Some(first) && words.next() == Some(second)
    };
    let line = |first, second| module.modprobe.iter().find(|line| has(line, first, second));
    let replace = line("options", "ipoib_rs").filter(|line| line.contains("replace=1"));
    let hidden = line("install", "ipoib_rs").or(line("blacklist", "ipoib_rs"));
    if !module.installed && !module.other_kernels.is_empty() {
        out.add(
            Severity::Broken,
            "wrong-kernel",
            format!(
                "The module ipoib_rs is installed, but not for the running kernel ({release})."
            ),
            format!(
                "modules.dep lists it for {} only",
                module.other_kernels.join(", ")
            ),
            "dkms autoinstall",
        );
    } else if !module.installed {
        out.add(
            Severity::Broken,
            "not-installed",
            "The module ipoib_rs is not installed.",
            "no modules.dep below /lib/modules lists it",
            by_hand("apt install ./ipoib-rs-dkms_VERSION_all.deb"),
        );
    } else if module.ib_ipoib_loaded && replace.is_some() {
        out.add(
            Severity::Broken,
            "ib-ipoib-in-the-way",
            "The module ipoib_rs does not load with replace=1 while ib_ipoib is loaded.",
            "modprobe.d sets replace=1, and there is a /sys/module/ib_ipoib",
            by_hand("modprobe -r ib_ipoib && modprobe ipoib_rs"),
        );
    } else if let Some(line) = hidden {
        out.add(
            Severity::Broken,
            "blacklisted",
            "The module ipoib_rs is not loaded, and modprobe.d keeps it from loading by itself.",
            format!("modprobe.d has the line: {line}"),
            by_hand("modprobe --ignore-install ipoib_rs"),
        );
    } else if module.signatures_enforced {
        out.add(
            Severity::Broken,
            "no-signature",
            "The module ipoib_rs is not loaded, and this kernel takes only modules signed with a key that it trusts.",
            "module.sig_enforce is set, or the kernel is locked down",
            by_hand("mokutil --import /var/lib/dkms/mok.pub"),
        );
    } else {
        out.add(
            Severity::Broken,
            "not-loaded",
            "The module ipoib_rs is installed but not loaded.",
            "there is no /sys/module/ipoib_rs",
            "modprobe ipoib_rs",
        );
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Case, names};
    use super::*;
    use crate::healthy::healthy;

    fn unloaded(facts: &mut Facts) {
        facts.module.loaded = false;
        facts.interfaces.clear();
        facts.links.pop();
    }

    #[test]
    fn why_it_is_not_loaded() {
        let cases: [Case; 7] = [
            ("not-loaded", |_| ()),
            ("not-installed", |f| f.module.installed = false),
            ("wrong-kernel", |f| {
                f.module.installed = false;
                f.module.other_kernels = vec!["7.3.3".into()];
            }),
            ("blacklisted", |f| {
                f.module.modprobe = vec!["blacklist ipoib_rs".into()]
            }),
            ("blacklisted", |f| {
                f.module.modprobe = vec!["install ipoib_rs /bin/false".into()]
            }),
            ("no-signature", |f| f.module.signatures_enforced = true),
            ("ib-ipoib-in-the-way", |f| {
                f.module.ib_ipoib_loaded = true;
                f.module.modprobe = vec!["options ipoib_rs replace=1".into()];
            }),
        ];
        for (cause, change) in cases {
            names(true, cause, |facts| {
                unloaded(facts);
                change(facts);
            });
        }
    }

    #[test]
    fn a_host_of_ib_ipoib_needs_no_other_module() {
        let mut facts = healthy(false);
        facts.module.loaded = false;
        facts.module.installed = false;
        facts.interfaces[0].ours = false;
        assert_eq!(super::super::judge(&facts), []);
    }
}
