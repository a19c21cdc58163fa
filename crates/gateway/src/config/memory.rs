//! How the memory of a gateway is shared out among its peers.

use super::settings::{CodecSettings, Matchings};

/// The bytes that one peer may take of `[cache] memory`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The logs of both directions; with Chunk-Match, of one.
    pub logs: u64,
    /// The tables of the sending direction.
    pub table: u64,
    /// Plain bytes of unacknowledged blocks, kept for repair.
    pub kept: u64,
    /// Streaming contexts of the entropy stage, both directions.
    pub contexts: u64,
    /// Buffers of the flows: what was granted as credit and is not yet read by the application.
    pub flows: u64,
}

impl MemoryPlan {
    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.fixed() + self.contexts + self.flows
    }

    /// Returns what the settings alone decide.
    fn fixed(&self) -> u64 {
        self.logs + self.table + self.kept
    }
}

/// Shares `memory` out: each peer first gets what its settings ask for, then all get equal parts of the rest, a
/// quarter of it for contexts and the remainder for flows, both within bounds beyond which more is of no use.
///
/// # Errors
/// If the settings ask for more than there is: the smallest `memory` that would do.
pub(super) fn share_out(
    memory: u64,
    peers: &[(&CodecSettings, Matchings)],
    flow_memory: Option<u64>,
) -> Result<Vec<MemoryPlan>, u64> {
    let fixed = |(settings, matchings): &(&CodecSettings, Matchings)| MemoryPlan {
        logs: settings.logs_memory(*matchings),
        table: settings.table_memory(*matchings),
        kept: settings.in_flight(),
        contexts: 0,
        flows: 0,
    };
    let mut plans: Vec<MemoryPlan> = peers.iter().map(fixed).collect();
    let count = plans.len() as u64;
    let least = flow_memory.unwrap_or(MIN_FLOWS).saturating_add(MIN_CONTEXTS);
    let needed = plans.iter().map(MemoryPlan::fixed).sum::<u64>().saturating_add(least.saturating_mul(count));
    if needed > memory {
        return Err(needed);
    }
    let rest = (memory - plans.iter().map(MemoryPlan::fixed).sum::<u64>()).checked_div(count).unwrap_or(0);
    for plan in &mut plans {
        let for_contexts = flow_memory.map_or(rest / 4, |flows| rest - flows);
        plan.contexts = for_contexts.clamp(MIN_CONTEXTS, MAX_CONTEXTS);
        plan.flows = flow_memory.unwrap_or_else(|| (rest - plan.contexts).min(MAX_FLOWS));
    }
    Ok(plans)
}

/// Contexts for a few flows in either direction, at about a megabyte each.
const MIN_CONTEXTS: u64 = 8 << 20;
/// Contexts for more flows than compress at a time on any machine.
const MAX_CONTEXTS: u64 = 128 << 20;
/// A first grant for some sixty flows.
const MIN_FLOWS: u64 = 16 << 20;
/// A thousand flows at their first grant, or thirty at their largest.
const MAX_FLOWS: u64 = 512 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Matchings = Matchings { max: true, chunk: false };

    #[test]
    fn the_plan_never_exceeds_the_memory() {
        let settings = CodecSettings::for_gateway();
        for peers in [1, 2, 7] {
            let peers = vec![(&settings, MAX); peers];
            for mib in [1, 100, 200, 300, 1000, 2000, 50_000] {
                match share_out(mib << 20, &peers, None) {
                    Ok(plans) => {
                        assert_eq!(plans.len(), peers.len());
                        assert!(plans.iter().map(MemoryPlan::total).sum::<u64>() <= mib << 20, "{mib} MiB");
                        assert!(plans.iter().all(|plan| plan.flows >= MIN_FLOWS));
                    }
                    Err(needed) => {
                        assert!(needed > mib << 20);
                        assert!(share_out(needed, &peers, None).is_ok(), "what it asks for must do");
                        assert!(share_out(needed - 1, &peers, None).is_err(), "and nothing less");
                    }
                }
            }
        }
    }

    #[test]
    fn flow_memory_is_given_as_it_is_set() {
        let settings = CodecSettings::for_gateway();
        let plans = share_out(1 << 30, &[(&settings, MAX)], Some(100 << 20)).unwrap();
        assert_eq!(plans[0].flows, 100 << 20);
        assert!(share_out(1 << 30, &[(&settings, MAX)], Some(1 << 30)).is_err());
        assert!(share_out(1 << 30, &[(&settings, MAX)], Some(u64::MAX)).is_err());
    }

    #[test]
    fn no_peers_need_no_memory() {
        assert_eq!(share_out(0, &[], None), Ok(vec![]));
    }
}
