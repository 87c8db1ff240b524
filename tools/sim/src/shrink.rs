// SPDX-License-Identifier: GPL-2.0

//! Fewer steps that still fail: delta debugging (Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing
//! Input", 2002) over the steps of a plan.

use crate::Plan;
use crate::plan::Step;

/// Returns a plan with fewer steps for which `fails` still returns true: none of its steps can be left out by itself.
/// `fails` is called with plans that are smaller than `plan`, which is known to fail.
pub fn shrink(plan: &Plan, mut fails: impl FnMut(&Plan) -> bool) -> Plan {
    let mut steps = plan.steps.clone();
    let mut chunk = steps.len().div_ceil(2);
    while chunk > 0 {
        let mut from = 0;
        let mut left_out = false;
        while from < steps.len() {
            let mut fewer: Vec<Step> = steps.clone();
            fewer.drain(from..(from + chunk).min(steps.len()));
            let candidate = Plan {
                setting: plan.setting.clone(),
                steps: fewer,
            };
            if fails(&candidate) {
                steps = candidate.steps;
                left_out = true;
            } else {
                from += chunk;
            }
        }
        // With single steps, what was needed before another one went may not be needed any more.
        if chunk > 1 || !left_out {
            chunk /= 2;
        }
    }
    Plan {
        setting: plan.setting.clone(),
        steps,
    }
}

#[cfg(test)]
mod tests {
    use super::shrink;
    use crate::Plan;
    use crate::draw::draw;
    use crate::plan::{Act, Step};

    fn plan(steps: u32) -> Plan {
        let step = |at| Step {
            at,
            hand: 0,
            act: Act::Forget(1),
        };
        Plan {
            steps: (0..steps).map(step).collect(),
            ..draw(1)
        }
    }

    #[test]
    fn what_fails_together_is_left() {
        for (a, b) in [(0, 1), (3, 17), (39, 20), (5, 5)] {
            let mut tried = 0;
            let left = shrink(&plan(40), |plan| {
                tried += 1;
                let has = |at| plan.steps.iter().any(|step| step.at == at);
                has(a) && has(b)
            });
            let mut at: Vec<u32> = left.steps.iter().map(|step| step.at).collect();
            at.sort_unstable();
            let mut wanted = vec![a, b];
            wanted.sort_unstable();
            wanted.dedup();
            assert_eq!(at, wanted);
            assert!(tried < 120, "{tried}");
        }
    }

    #[test]
    fn what_always_fails_needs_no_step() {
        assert!(shrink(&plan(7), |_| true).steps.is_empty());
        assert_eq!(shrink(&plan(7), |_| false).steps.len(), 7);
    }
}
