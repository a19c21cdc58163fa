//! Lending of unused flow memory to logs, and the reverse.
//!
//! The decisions stand in `docs/internals/log-sizes.md`.

/// A peer's flow memory, as part of the memory shared with logs.
#[derive(Clone, Copy, Debug)]
pub(super) struct FlowMemory {
    /// Its configured size.
    pub(super) planned: u64,
    /// Whether that is set.
    pub(super) is_set: bool,
    /// Its present size.
    pub(super) limit: u64,
}

impl FlowMemory {
    /// Begins with the planned size.
    pub(super) fn of(planned: u64, is_set: bool) -> Self {
        Self { planned, is_set, limit: planned }
    }

    /// Whether flows with so much taken need more.
    pub(super) fn presses(self, taken: u64) -> bool {
        self.is_short(taken) && self.want(taken) > self.limit
    }

    fn is_short(self, taken: u64) -> bool {
        taken > self.limit / 4 * 3
    }

    /// Returns the demand of flows with so much taken: twice that, within bounds, and not little more while
    /// they grow.
    fn want(self, taken: u64) -> u64 {
        if self.is_set {
            return self.planned;
        }
        let more = if self.is_short(taken) { taken.max(STEP_OF_FLOWS) } else { taken };
        taken.saturating_add(more).clamp(self.planned.min(NEVER_LENT), self.planned.max(FLOWS_UNLENT))
    }

    /// Returns their part ahead of logs. Taken memory cannot be lent: credit is not revoked.
    fn own(self, taken: u64) -> u64 {
        self.want(taken).min(self.planned).max(taken.min(self.limit))
    }
}

/// Divides the memory planned for these flows, and `bytes` for logs with a need of `least`. Returns each
/// flow's part, and the logs'. Input are the flows' present sizes with their taken memory.
///
/// Flows borrow of `bytes` only: memory planned for flows comes back to them regardless of others' loans.
pub(super) fn divide(bytes: u64, least: u64, flows: &[(FlowMemory, u64)]) -> (Vec<u64>, u64) {
    let sum = |part: fn(&(FlowMemory, u64)) -> u64| flows.iter().map(part).fold(0, u64::saturating_add);
    let lent = sum(|(flows, taken)| flows.planned.saturating_sub(flows.own(*taken)));
    let borrowed = sum(|(flows, taken)| flows.own(*taken).saturating_sub(flows.planned));
    let more = |(flows, taken): &(FlowMemory, u64)| flows.want(*taken).saturating_sub(flows.own(*taken));
    let all_more: u64 = flows.iter().map(more).fold(0, u64::saturating_add);
    let there = bytes.saturating_sub(borrowed);
    // Half of the logs' surplus: the other half goes on caching.
    let given = (there.saturating_sub(least) / 2).min(all_more);
    let limits = flows.iter().map(|of| {
        let part = u128::from(more(of)) * u128::from(given) / u128::from(all_more.max(1));
        of.0.own(of.1).saturating_add(u64::try_from(part).unwrap_or(0))
    });
    (limits.collect(), (there - given).saturating_add(lent))
}

/// Returns the next size of a log between `own` and `size`, from `least` to `most`. A size is reported to the
/// peer, so it changes by steps: an idle link is not to hear of another log's growth each second.
pub(super) fn in_steps(own: u64, size: u64, least: u64, most: u64) -> u64 {
    if size >= most {
        return size;
    }
    let step = (size / STEPS).checked_ilog2().map_or(1, |log| 1 << log);
    let stepped = (size / step * step).max(least.min(size));
    if size >= own && stepped < own.saturating_add(own / WORTH_TELLING) { own } else { stepped }
}

/// Idle flows' reserve of their planned memory: enough to begin with until a look.
const NEVER_LENT: u64 = 4 << 20;
/// A peer's flow memory in use, if logs have that much to spare.
const FLOWS_UNLENT: u64 = 16 << 20;
/// Minimum growth of pressed flows, if logs have that.
const STEP_OF_FLOWS: u64 = 4 << 20;
/// Sizes have at least so many steps below them.
const STEPS: u64 = 32;
/// A log with less than this part to grow stays.
const WORTH_TELLING: u64 = 8;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn flows(planned: u64, limit: u64, taken: u64) -> (FlowMemory, u64) {
        (FlowMemory { limit: limit * MIB, ..FlowMemory::of(planned * MIB, false) }, taken * MIB)
    }

    /// Parts of flows and logs in MiB, of 20 MiB for logs with a need of 2.
    fn divided(of: &[(FlowMemory, u64)]) -> (Vec<u64>, u64) {
        let (limits, logs) = divide(20 * MIB, 2 * MIB, of);
        (limits.iter().map(|limit| limit / MIB).collect(), logs / MIB)
    }

    #[test]
    fn idle_flows_lend_to_logs_and_busy_ones_reclaim() {
        assert_eq!(divided(&[flows(16, 16, 0), flows(16, 16, 0)]), (vec![4, 4], 44));
        assert_eq!(divided(&[flows(16, 4, 4), flows(16, 4, 0)]), (vec![8, 4], 40));
        assert_eq!(divided(&[flows(16, 8, 8), flows(16, 4, 0)]), (vec![16, 4], 32));
        assert_eq!(divided(&[flows(16, 16, 16), flows(16, 16, 16)]), (vec![16, 16], 20));
    }

    #[test]
    fn busy_flows_borrow_half_of_the_logs_surplus() {
        assert_eq!(divided(&[flows(2, 2, 0), flows(2, 2, 0)]), (vec![2, 2], 20));
        assert_eq!(divided(&[flows(2, 2, 2), flows(2, 2, 0)]), (vec![6, 2], 16));
        assert_eq!(divided(&[flows(2, 6, 2), flows(2, 2, 0)]), (vec![4, 2], 18), "less than that is used");
        assert_eq!(divided(&[flows(2, 4, 4), flows(2, 2, 0)]), (vec![8, 2], 14));
        // Memory lent to others comes back once it is free.
        assert_eq!(divided(&[flows(2, 10, 10), flows(2, 8, 6)]), (vec![11, 7], 5));
        assert_eq!(divided(&[flows(2, 16, 1), flows(2, 16, 0)]), (vec![2, 2], 20));
        assert_eq!(divided(&[flows(1, 1, 1); 30]).1, 20 - 9);
    }

    #[test]
    fn fixed_flow_memory_is_neither_lent_nor_exceeded() {
        let set = FlowMemory::of(8 * MIB, true);
        for taken in [0, 8 * MIB, 60 * MIB] {
            assert_eq!(divided(&[(set, taken)]), (vec![8], 20));
            assert!(!set.presses(taken));
        }
        assert!(FlowMemory::of(4 * MIB, false).presses(4 * MIB));
        assert!(!FlowMemory::of(4 * MIB, false).presses(2 * MIB));
        assert!(!FlowMemory::of(64 * MIB, false).presses(64 * MIB), "there is no more");
    }

    #[test]
    fn sizes_change_by_steps_and_shrink_on_demand() {
        let of = |own, size| in_steps(own, size, MIB, 64 * MIB);
        assert_eq!(of(10 * MIB, 10 * MIB + 7), 10 * MIB, "not worth telling");
        assert_eq!(of(10 * MIB, 12 * MIB + 7), 12 * MIB);
        assert_eq!(of(10 * MIB, 10 * MIB - 7), 10 * MIB - (256 << 10));
        assert_eq!(of(10 * MIB - (256 << 10), 10 * MIB - 9), 10 * MIB - (256 << 10), "and once only");
        assert_eq!(of(60 * MIB, 64 * MIB), 64 * MIB, "all that is of use");
        assert_eq!((of(2 * MIB, MIB), in_steps(5, 3, 1, 9)), (MIB, 3));
    }

    proptest! {
        #[test]
        fn flows_and_logs_stay_within_the_plan(
            logs in 2 * MIB..200 * MIB,
            looks in prop::collection::vec(prop::collection::vec(0u64..40 * MIB, 5), 1..20),
            planned in prop::collection::vec(0u64..40 * MIB, 5),
            set in prop::collection::vec(any::<bool>(), 5),
        ) {
            let all: u64 = logs + planned.iter().sum::<u64>();
            let mut flows: Vec<_> =
                planned.iter().zip(set).map(|(planned, set)| FlowMemory::of(*planned, set)).collect();
            for wished in looks {
                // Flows take no more than they have.
                let taken: Vec<_> = flows.iter().zip(wished).map(|(flows, wished)| wished.min(flows.limit)).collect();
                let (limits, logs) =
                    divide(logs, 2 * MIB, &flows.iter().copied().zip(taken.iter().copied()).collect::<Vec<_>>());
                prop_assert!(logs + limits.iter().sum::<u64>() <= all, "{logs} {limits:?} of {all}");
                for ((flows, limit), taken) in flows.iter_mut().zip(limits).zip(taken) {
                    prop_assert!(logs >= 2 * MIB && limit >= taken && limit >= flows.planned.min(NEVER_LENT), "{limit} {taken}");
                    flows.limit = limit;
                }
            }
        }

        #[test]
        fn no_step_exceeds_the_available_memory(
            own in 0u64..100 * MIB, size in 0u64..100 * MIB, least in 0u64..MIB, most in 0u64..64 * MIB,
        ) {
            let next = in_steps(own, size, least, most);
            prop_assert!(next <= size && next >= least.min(size), "{next}");
            prop_assert!(next >= size - size / 8 || size <= own + own / 4, "{next}");
            prop_assert_eq!(in_steps(next, size, least, most), next, "it settles");
        }
    }
}
