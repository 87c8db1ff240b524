// SPDX-License-Identifier: GPL-2.0

//! `make kernel`, `make deb`, and what other verbs need built.

use crate::deb;
use crate::kernel;
use crate::layout::Layout;
use crate::machine::{Kernel, Lane};
use crate::module;
use crate::stage::Stage;
use crate::step::say;
use crate::stock::{self, Modules};
use anyhow::Result;

/// All combinations of lanes and kernels, less what the user did not ask for.
pub(crate) fn choices(lane: Option<Lane>, kernel: Option<Kernel>) -> Vec<(Lane, Kernel)> {
    let mut all = Vec::new();
    for k in [
        Kernel::Base,
        Kernel::Debug,
        Kernel::Lockdep,
        Kernel::Kcsan,
        Kernel::SimDebug,
        Kernel::Stock,
    ] {
        for l in [Lane::Uml, Lane::Qemu] {
            // Debian builds no kernel for User Mode Linux, which does not know KCSAN either. QEMU's debug kernel has lockdep.
            let exists = match l {
                Lane::Uml => !matches!(k, Kernel::Kcsan | Kernel::Stock),
                Lane::Qemu => !matches!(k, Kernel::Lockdep | Kernel::SimDebug),
            };
            // For those who ask for them.
            let is_usual = !matches!(k, Kernel::Lockdep | Kernel::Kcsan | Kernel::SimDebug);
            let wanted = is_usual || kernel == Some(k);
            if exists && wanted && lane.is_none_or(|x| x == l) && kernel.is_none_or(|x| x == k) {
                all.push((l, k));
            }
        }
    }
    all
}

/// Builds a kernel and this checkout's module for it, ready for guests.
pub(crate) fn ready(layout: &Layout, lane: Lane, kernel: Kernel) -> Result<Stage> {
    if kernel == Kernel::Stock {
        return stock::ensure(layout, Modules::All);
    }
    module::ensure(layout, &kernel::ensure(layout, lane, kernel)?)
}

/// `make kernel`.
pub fn kernel(layout: &Layout, lane: Option<Lane>, kernel: Option<Kernel>) -> Result<()> {
    for (lane, kernel) in choices(lane, kernel) {
        if kernel == Kernel::Stock {
            let stage = stock::ensure(layout, Modules::All)?;
            say(&format!("{lane} {kernel}: {}", stage.image().display()));
            continue;
        }
        let built = kernel::ensure(layout, lane, kernel)?;
        say(&format!("{lane} {kernel}: {}", built.image().display()));
    }
    Ok(())
}

/// `make deb`.
pub fn deb(layout: &Layout) -> Result<()> {
    let packages = deb::make(layout, &layout.build().join("deb"), None)?;
    for path in [
        packages.dkms,
        packages.iproute2,
        packages.tools,
        packages.fabric,
    ] {
        println!("{}", path.display());
    }
    Ok(())
}
