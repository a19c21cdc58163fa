//! How memory is shared out among logs: to each what saves most per byte.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use super::Curve;

/// What one log has use for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Demand {
    /// What the log saves, by its size.
    pub curve: Curve,
    /// The least it gets.
    pub minimum: u64,
    /// The most it can use, not below the minimum.
    pub maximum: u64,
    /// What it has now.
    pub present: u64,
    /// Quarters of its size a log takes: 4 for its bytes, if kept, and 1 beside them for kept blocks in flight, a
    /// quarter of the log unless set otherwise.
    pub quarters: u64,
}

impl Demand {
    /// Returns the memory a log of this size takes, with what is kept beside it.
    pub fn cost(&self, size: u64) -> u64 {
        u64::try_from((u128::from(size) * u128::from(self.quarters)).div_ceil(4)).unwrap_or(u64::MAX)
    }

    /// Returns the largest size taking no more than this.
    fn size_for(&self, cost: u64) -> u64 {
        u64::try_from(u128::from(cost) * 4 / u128::from(self.quarters.max(1))).unwrap_or(u64::MAX)
    }

    /// The gain from one size to another; a log's present size counts for a quarter more, so memory does not wander
    /// between logs of about the same savings.
    fn gain(&self, from: u64, to: u64) -> u128 {
        let gain = u128::from(self.curve.saved_by(to) - self.curve.saved_by(from));
        if to <= self.present { gain * 5 } else { gain * 4 }
    }
}

/// Returns the size of each log, so they cost no more than `budget` together and save as much as they can.
///
/// Each gets its minimum, even beyond the total. The rest goes to the highest savings per byte: the step from a log's
/// size to any larger one competes with those of all others, so a log without savings below 64 MiB and with much above
/// gets them at once. Once nothing more can be saved, the remainder leaves logs as they are, and then goes to all
/// alike.
pub fn share_out(budget: u64, demands: &[Demand]) -> Vec<u64> {
    let mut sizes: Vec<u64> = demands.iter().map(|demand| demand.minimum.min(demand.maximum)).collect();
    let spent =
        demands.iter().zip(&sizes).map(|(demand, size)| demand.cost(*size)).fold(0, u64::saturating_add);
    let mut left = budget.saturating_sub(spent);
    let best = |(log, (demand, size))| Step::best(log, demand, size, left);
    let mut steps: BinaryHeap<Step> =
        demands.iter().zip(sizes.iter().copied()).enumerate().filter_map(best).collect();
    while let Some(step) = steps.pop() {
        let (Some(demand), Some(present)) = (demands.get(step.log), sizes.get_mut(step.log)) else {
            continue;
        };
        // Others have taken what it would cost: there may be a shorter one.
        if step.cost <= u128::from(left) {
            left -= demand.cost(step.size) - demand.cost(*present);
            *present = step.size;
        }
        steps.extend(Step::best(step.log, demand, *present, left));
    }
    fill_evenly(&mut left, demands, &mut sizes, |demand| demand.present.min(demand.maximum));
    fill_evenly(&mut left, demands, &mut sizes, |demand| demand.maximum);
    sizes
}

/// A log's best step to a larger size within the memory left: most savings for its cost.
#[derive(Clone, Copy)]
struct Step {
    gain: u128,
    cost: u128,
    log: usize,
    size: u64,
}

impl Step {
    fn best(log: usize, demand: &Demand, present: u64, left: u64) -> Option<Self> {
        let mut best: Option<Self> = None;
        let sizes = Curve::sizes().chain([demand.maximum]);
        for size in sizes.filter(|size| *size > present && *size <= demand.maximum) {
            let cost = u128::from(demand.cost(size) - demand.cost(present));
            let step = Self { gain: demand.gain(present, size), cost, log, size };
            if step.gain > 0 && cost <= u128::from(left) && best.is_none_or(|best| step > best) {
                best = Some(step);
            }
        }
        best
    }
}

impl Ord for Step {
    /// By what is saved for the cost, and then the first log before the others.
    fn cmp(&self, other: &Self) -> Ordering {
        (self.gain * other.cost).cmp(&(other.gain * self.cost)).then(other.log.cmp(&self.log))
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

/// Raises the logs below their goals by equal amounts of memory.
fn fill_evenly(left: &mut u64, demands: &[Demand], sizes: &mut [u64], goal: impl Fn(&Demand) -> u64) {
    loop {
        let open = demands.iter().zip(&*sizes).filter(|(demand, size)| **size < goal(demand)).count() as u64;
        // The last few bytes go to whoever is first.
        let each = left.checked_div(open).filter(|each| *each >= CRUMBS).unwrap_or(*left);
        let mut raised = false;
        for (demand, size) in demands.iter().zip(&mut *sizes).filter(|(demand, size)| **size < goal(demand)) {
            let cost = |more| demand.cost(*size + more) - demand.cost(*size);
            // A log's cost is rounded up, so its growth may cost a byte less than it alone would.
            let mut more = demand.size_for(each).saturating_add(2).min(goal(demand) - *size);
            while cost(more) > each {
                more -= 1;
            }
            let cost = cost(more);
            if more > 0 && cost <= *left {
                *left -= cost;
                *size += more;
                raised = true;
            }
        }
        if !raised {
            return;
        }
    }
}

/// Fewer bytes than this are not worth dividing.
const CRUMBS: u64 = 64;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn reach(size: u64) -> u64 {
        size / 4 * 3
    }

    fn demand(repeats: &[(u64, u64)]) -> Demand {
        let mut curve = Curve::default();
        repeats.iter().for_each(|(distance, bytes)| curve.add(*distance, *bytes, reach));
        Demand { curve, minimum: MIB, maximum: 64 * MIB, present: MIB, quarters: 4 }
    }

    /// The same as [`share_out`], by a walk over all logs for each step.
    fn shared_by_walks(budget: u64, demands: &[Demand]) -> Vec<u64> {
        let mut sizes: Vec<u64> = demands.iter().map(|demand| demand.minimum.min(demand.maximum)).collect();
        let spent: u64 = demands.iter().zip(&sizes).map(|(demand, size)| demand.cost(*size)).sum();
        let mut left = budget.saturating_sub(spent);
        loop {
            let logs = demands.iter().zip(&sizes).enumerate();
            let steps = logs.filter_map(|(log, (demand, size))| Step::best(log, demand, *size, left));
            let Some(step) = steps.max() else { break };
            left -= step.cost as u64;
            sizes[step.log] = step.size;
        }
        fill_evenly(&mut left, demands, &mut sizes, |demand| demand.present.min(demand.maximum));
        fill_evenly(&mut left, demands, &mut sizes, |demand| demand.maximum);
        sizes
    }

    #[test]
    fn without_redundancy_all_get_the_same() {
        assert_eq!(share_out(40 * MIB, &[demand(&[]); 4]), [10 * MIB; 4]);
        assert_eq!(share_out(1000 * MIB, &[demand(&[]); 4]), [64 * MIB; 4]);
        assert_eq!(share_out(0, &[demand(&[]); 4]), [MIB; 4], "the minimum is always there");
    }

    #[test]
    fn memory_follows_savings_and_the_rest_is_shared() {
        let (busy, idle) = (demand(&[(20 * MIB, 1000)]), demand(&[]));
        let sizes = share_out(40 * MIB, &[busy, idle, idle]);
        assert_eq!(sizes, [34 * MIB, 3 * MIB, 3 * MIB]);
    }

    #[test]
    fn a_cliff_far_out_wins_over_small_steps_near_by() {
        let cliff = demand(&[(40 * MIB, 64_000)]);
        let slope = demand(&[(MIB, 100), (3 * MIB, 200), (10 * MIB, 300)]);
        let sizes = share_out(66 * MIB, &[slope, cliff]);
        assert_eq!(sizes, [2 * MIB, 64 * MIB]);
    }

    #[test]
    fn memory_stays_between_logs_of_about_equal_savings() {
        let (mut a, mut b) = (demand(&[(20 * MIB, 1000)]), demand(&[(20 * MIB, 1150)]));
        a.present = 32 * MIB;
        let sizes = share_out(34 * MIB, &[a, b]);
        assert!(sizes[0] >= 32 * MIB, "{sizes:?}");
        b.curve.add(20 * MIB, 200, reach);
        let sizes = share_out(34 * MIB, &[a, b]);
        assert!(sizes[1] >= 32 * MIB, "{sizes:?}");
    }

    #[test]
    fn memory_beside_a_log_counts() {
        let out = Demand { quarters: 5, ..demand(&[]) };
        let [size] = share_out(50 * MIB, &[out])[..] else { panic!() };
        assert!(size.abs_diff(40 * MIB) <= 4, "{size}");
    }

    proptest! {
        #[test]
        fn the_budget_and_every_bound_hold(
            budget in 0u64..(300 * MIB),
            logs in prop::collection::vec(
                (prop::collection::vec((0u64..(80 * MIB), 0u64..1_000_000), 0..6), 1u64..(64 * MIB), 0u64..(64 * MIB), 1u64..7),
                0..8,
            ),
        ) {
            let demands: Vec<Demand> = logs
                .iter()
                .map(|(repeats, maximum, present, quarters)| {
                    Demand { maximum: *maximum, present: *present, quarters: *quarters, ..demand(repeats) }
                })
                .collect();
            let sizes = share_out(budget, &demands);
            prop_assert_eq!(&sizes, &shared_by_walks(budget, &demands));
            let cost = |sizes: &[u64]| demands.iter().zip(sizes).map(|(d, size)| d.cost(*size)).sum::<u64>();
            let least: Vec<u64> = demands.iter().map(|d| d.minimum.min(d.maximum)).collect();
            prop_assert!(cost(&sizes) <= budget.max(cost(&least)));
            for ((size, demand), least) in sizes.iter().zip(&demands).zip(&least) {
                prop_assert!((*least..=demand.maximum).contains(size));
            }
            let wanted: Vec<u64> = demands.iter().map(|d| d.maximum).collect();
            prop_assert_eq!(&share_out(cost(&wanted).max(cost(&least)), &demands), &wanted);
            prop_assert!(budget < cost(&wanted).max(cost(&least)) || sizes == wanted, "{budget} is enough");
            // Nothing is left over that any log could use.
            let idle = budget.saturating_sub(cost(&sizes));
            prop_assert!(idle < 64 || sizes == wanted, "{idle} bytes are given to nobody");
        }
    }
}
