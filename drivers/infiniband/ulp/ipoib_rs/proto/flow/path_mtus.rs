// SPDX-License-Identifier: GPL-2.0

//! The InfiniBand MTUs of an interface's paths, and the least of them, in bytes.
//!
//! A path takes less than the link says where a switch or a cable on the way does. As a rule none does, so each frame is
//! compared with the least of all, and only a longer one with that of its own path.

/// All MTUs that there are.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// How many paths there are of each MTU.
#[derive(Debug, Default)]
pub struct PathMtus([u32; MTUS.len()]);

impl PathMtus {
    /// No path.
    pub const fn new() -> Self {
        PathMtus([0; MTUS.len()])
    }

    /// A path came. `None` and what is no MTU count for nothing.
    pub fn add(&mut self, mtu: Option<u32>) {
        if let Some(count) = self.count(mtu) {
            *count = count.saturating_add(1);
        }
    }

    /// A path that was added is gone.
    pub fn remove(&mut self, mtu: Option<u32>) {
        if let Some(count) = self.count(mtu) {
            *count = count.saturating_sub(1);
        }
    }

    /// Returns the least MTU of all paths; `None` without paths.
    pub fn least(&self) -> Option<u32> {
        let least = MTUS.iter().zip(&self.0).find(|(_, count)| **count > 0);
        least.map(|(mtu, _)| *mtu)
    }

    fn count(&mut self, mtu: Option<u32>) -> Option<&mut u32> {
        let at = MTUS.iter().position(|known| Some(*known) == mtu)?;
        self.0.get_mut(at)
    }
}

#[cfg_attr(CONFIG_KUNIT, kernel::prelude::kunit_tests(ipoib_rs_path_mtus))]
#[cfg_attr(not(CONFIG_KUNIT), cfg(test))]
mod tests {
    use super::*;

    #[test]
    fn the_least_of_those_that_are_there() {
        let mut mtus = PathMtus::new();
        assert_eq!(mtus.least(), None);
        for (mtu, least) in [(4096, 4096), (2048, 2048), (4096, 2048), (256, 256)] {
            mtus.add(Some(mtu));
            assert_eq!(mtus.least(), Some(least));
        }
        for (mtu, least) in [
            (256, Some(2048)),
            (4096, Some(2048)),
            (2048, Some(4096)),
            (4096, None),
        ] {
            mtus.remove(Some(mtu));
            assert_eq!(mtus.least(), least);
        }
    }

    /// Each of two equal paths counts.
    #[test]
    fn one_of_two_goes() {
        let mut mtus = PathMtus::new();
        mtus.add(Some(1024));
        mtus.add(Some(1024));
        mtus.remove(Some(1024));
        assert_eq!(mtus.least(), Some(1024));
        mtus.remove(Some(1024));
        assert_eq!(mtus.least(), None);
    }

    /// As a path that was answered late does, which is added and removed: the others stay as they are.
    #[test]
    fn what_comes_and_goes_changes_nothing() {
        for present in MTUS {
            for other in MTUS {
                let mut mtus = PathMtus::new();
                mtus.add(Some(present));
                mtus.add(Some(other));
                assert_eq!(mtus.least(), Some(present.min(other)));
                mtus.remove(Some(other));
                assert_eq!(mtus.least(), Some(present));
            }
        }
    }

    #[test]
    fn paths_without_an_mtu_of_their_own() {
        let mut mtus = PathMtus::new();
        for mtu in [None, Some(0), Some(1500), Some(u32::MAX)] {
            mtus.add(mtu);
            assert_eq!(mtus.least(), None);
        }
        mtus.add(Some(4096));
        mtus.remove(None);
        mtus.remove(Some(2048));
        assert_eq!(mtus.least(), Some(4096));
    }
}
