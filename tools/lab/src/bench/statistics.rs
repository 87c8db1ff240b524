// SPDX-License-Identifier: GPL-2.0

//! Statistics of pairs of measurements.

/// Measurements of one case, taken in turn: ours and the peer's, beside each other.
#[derive(Debug, Clone, Default)]
pub(super) struct Pairs {
    ours: Vec<f64>,
    peer: Vec<f64>,
    ratio: Vec<f64>,
    ceiling: Vec<f64>,
    share: Option<f64>,
}

impl Pairs {
    /// A pair; a `ratio` above 1 says that ours is better.
    pub(super) fn add(&mut self, ours: f64, peer: f64, ratio: f64) {
        self.ours.push(ours);
        self.peer.push(peer);
        self.ratio.push(ratio);
    }

    /// Throughput of the medium itself, at about the same time.
    pub(super) fn add_ceiling(&mut self, ceiling: f64) {
        self.ceiling.push(ceiling);
    }

    /// Our driver's share of all instructions of the case.
    pub(super) fn set_share(&mut self, share: f64) {
        self.share = Some(share);
    }

    /// The ratio that a driver of no instructions at all would reach in our place, if it had everything else done
    /// as ours has. None if our share is not known.
    pub(super) fn bound(&self) -> Option<f64> {
        Some(self.ratio()? / (1.0 - self.share?))
    }

    pub(super) fn ours(&self) -> Option<f64> {
        median(&self.ours)
    }

    pub(super) fn peer(&self) -> Option<f64> {
        median(&self.peer)
    }

    pub(super) fn ceiling(&self) -> Option<f64> {
        median(&self.ceiling)
    }

    /// The median of the pairs' ratios: what slows both of a pair leaves it alone.
    pub(super) fn ratio(&self) -> Option<f64> {
        median(&self.ratio)
    }

    pub(super) fn ratio_min(&self) -> Option<f64> {
        self.ratio.iter().copied().reduce(f64::min)
    }

    pub(super) fn ratio_max(&self) -> Option<f64> {
        self.ratio.iter().copied().reduce(f64::max)
    }

    pub(super) fn count(&self) -> usize {
        self.ratio.len()
    }
}

/// The middle value, or the mean of the two.
fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get((sorted.len() - 1) / 2)?;
    Some(f64::midpoint(lower, upper))
}

#[cfg(test)]
mod tests {
    use super::{Pairs, median};

    #[test]
    fn medians() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 9.0]), Some(3.0));
    }

    #[test]
    fn what_is_left_to_win() {
        let mut pairs = Pairs::default();
        pairs.add(100.0, 100.0, 1.0);
        assert_eq!(pairs.bound(), None);
        pairs.set_share(0.2);
        assert_eq!(pairs.bound(), Some(1.25));
    }

    #[test]
    fn the_ratio_is_of_neighbours() {
        let mut pairs = Pairs::default();
        // The machine slows down: each pair says 1.1 all the same.
        for peer in [100.0, 90.0, 50.0] {
            pairs.add(peer * 1.1, peer, 1.1);
        }
        assert_eq!(pairs.ratio(), Some(1.1));
        assert_eq!(
            (pairs.ratio_min(), pairs.ratio_max()),
            (Some(1.1), Some(1.1))
        );
        assert_eq!(
            (pairs.peer(), pairs.ceiling(), pairs.count()),
            (Some(90.0), None, 3)
        );
    }
}
