// SPDX-License-Identifier: GPL-2.0

//! Lanes and kernels of a scenario, and the words that choose them.

use crate::machine::{Kernel, Lane};
use std::fmt;

/// When a scenario runs in a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// Not at all.
    Never,
    /// If its lane, its kernel or its name is asked for.
    Asked,
    /// Also without.
    Always,
}

use When::{Always, Asked, Never};

/// A lane and a kernel, and whether hosts have ports of InfiniBand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) lane: Lane,
    pub(super) kernel: Kernel,
    pub(super) infiniband: bool,
}

/// The last part of a test's name, or two.
impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let infiniband = if self.infiniband { "infiniband::" } else { "" };
        write!(f, "{infiniband}{}_{}", self.lane, self.kernel)
    }
}

/// The kernels of the lanes. Simulated InfiniBand is there on the uml lane's.
const ALL: [(Lane, Kernel); 7] = [
    (Lane::Uml, Kernel::Base),
    (Lane::Uml, Kernel::Debug),
    (Lane::Uml, Kernel::Lockdep),
    (Lane::Qemu, Kernel::Base),
    (Lane::Qemu, Kernel::Debug),
    (Lane::Qemu, Kernel::Kcsan),
    (Lane::Qemu, Kernel::Stock),
];

/// When a scenario runs on each kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Places {
    uml_base: When,
    uml_debug: When,
    uml_lockdep: When,
    qemu_base: When,
    qemu_debug: When,
    qemu_kcsan: When,
    qemu_stock: When,
    /// On the uml lane's base, debug and lockdep kernels with ports of InfiniBand.
    infiniband: [When; 3],
}

impl Places {
    /// Without a word.
    const DEFAULT: Places = Places {
        uml_base: Asked,
        uml_debug: Always,
        uml_lockdep: Always,
        qemu_base: Always,
        qemu_debug: Asked,
        qemu_kcsan: Asked,
        qemu_stock: Always,
        infiniband: [Never; 3],
    };

    /// Those of a scenario with these words.
    pub(super) fn of(words: &[fn(&mut Places)]) -> Places {
        let mut places = Places::DEFAULT;
        for word in words {
            word(&mut places);
        }
        places
    }

    /// The places where it runs, and when.
    pub(super) fn chosen(self) -> impl Iterator<Item = (Place, When)> {
        let own = [
            self.uml_base,
            self.uml_debug,
            self.uml_lockdep,
            self.qemu_base,
            self.qemu_debug,
            self.qemu_kcsan,
            self.qemu_stock,
        ];
        let place = |infiniband| {
            move |((lane, kernel), when)| {
                let place = Place {
                    lane,
                    kernel,
                    infiniband,
                };
                (place, when)
            }
        };
        let own = ALL.into_iter().zip(own).map(place(false));
        let infiniband = ALL.into_iter().zip(self.infiniband).map(place(true));
        own.chain(infiniband).filter(|(_, when)| *when != Never)
    }

    fn no_uml(&mut self) {
        (self.uml_base, self.uml_debug, self.uml_lockdep) = (Never, Never, Never);
    }

    fn no_qemu(&mut self) {
        (self.qemu_base, self.qemu_debug) = (Never, Never);
        (self.qemu_kcsan, self.qemu_stock) = (Never, Never);
    }
}

/// Words of `#[on(…)]`.
pub mod words {
    use super::{Always, Asked, Never, Places};

    /// Only in this lane.
    pub fn uml(places: &mut Places) {
        places.no_qemu();
    }

    /// Only in this lane.
    pub fn qemu(places: &mut Places) {
        places.no_uml();
    }

    /// Only on this kernel.
    pub fn base(places: &mut Places) {
        places.uml_base = Always;
        (places.uml_debug, places.uml_lockdep) = (Never, Never);
        (places.qemu_debug, places.qemu_kcsan) = (Never, Never);
        places.qemu_stock = Never;
    }

    /// Only on kernels on which scenarios make allocations fail.
    pub fn debug(places: &mut Places) {
        places.uml_base = Never;
        (places.qemu_base, places.qemu_kcsan) = (Never, Never);
        places.qemu_stock = Never;
    }

    /// Only on this kernel.
    pub fn stock(places: &mut Places) {
        let stock = places.qemu_stock;
        places.no_uml();
        places.no_qemu();
        places.qemu_stock = stock;
    }

    /// Not on Debian's kernel, which lacks `patches/linux-7.3`.
    pub fn patched(places: &mut Places) {
        places.qemu_stock = Never;
    }

    /// Needs two CPUs, which the base kernel of the uml lane does not have.
    pub fn parallel(places: &mut Places) {
        places.uml_base = Never;
    }

    /// `make test` runs it on the base kernel, too: a sample on what is nearer to what users run.
    pub fn both(places: &mut Places) {
        places.uml_base = Always;
    }

    /// `make test` runs it on the base kernel instead: time is the point, or the debug kernel takes too much.
    pub fn timed(places: &mut Places) {
        (places.uml_base, places.uml_debug) = (Always, Asked);
    }

    /// Takes many locks: not only when asked for on the debug kernel of the qemu lane, which has lockdep; behind `qemu`,
    /// on that kernel of the uml lane, too.
    pub fn lockdep(places: &mut Places) {
        (places.uml_lockdep, places.qemu_debug) = (Always, Always);
    }

    /// Has much traffic: not only when asked for on the KCSAN kernel, which finds data races.
    pub fn races(places: &mut Places) {
        places.qemu_kcsan = Always;
    }

    /// Also in the uml lane with a port of InfiniBand for each host, and not of RoCE: on the base kernel and the lockdep
    /// one, and behind `debug` on the debug kernel in place of the base kernel.
    pub fn infiniband(places: &mut Places) {
        places.infiniband = match places.uml_base {
            Never => [Never, Always, Always],
            _ => [Always, Asked, Always],
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(words: &[fn(&mut Places)], when: When) -> Vec<String> {
        let places = Places::of(words).chosen();
        places
            .filter(|(_, w)| *w == when)
            .map(|(place, _)| place.to_string())
            .collect()
    }

    #[test]
    fn without_a_word_the_base_kernel_is_asked_for() {
        assert_eq!(
            names(&[], Always),
            ["uml_debug", "uml_lockdep", "qemu_base", "qemu_stock"]
        );
        assert_eq!(names(&[], Asked), ["uml_base", "qemu_debug", "qemu_kcsan"]);
    }

    #[test]
    fn words_are_applied_from_left_to_right() {
        use words::*;
        assert_eq!(
            names(&[uml, timed, infiniband], Always),
            [
                "uml_base",
                "uml_lockdep",
                "infiniband::uml_base",
                "infiniband::uml_lockdep"
            ]
        );
        assert_eq!(
            names(&[debug, infiniband], Always),
            [
                "uml_debug",
                "uml_lockdep",
                "infiniband::uml_debug",
                "infiniband::uml_lockdep"
            ]
        );
        assert_eq!(
            names(&[qemu, lockdep, races], Always),
            [
                "uml_lockdep",
                "qemu_base",
                "qemu_debug",
                "qemu_kcsan",
                "qemu_stock"
            ]
        );
        assert_eq!(names(&[uml, base], Always), ["uml_base"]);
        assert_eq!(
            names(&[uml, parallel, infiniband], Always),
            [
                "uml_debug",
                "uml_lockdep",
                "infiniband::uml_debug",
                "infiniband::uml_lockdep"
            ]
        );
        assert_eq!(names(&[base], Always), ["uml_base", "qemu_base"]);
        assert_eq!(names(&[stock], Always), ["qemu_stock"]);
        assert!(names(&[stock], Asked).is_empty());
        assert_eq!(
            names(&[both, patched], Always),
            ["uml_base", "uml_debug", "uml_lockdep", "qemu_base"]
        );
    }
}
