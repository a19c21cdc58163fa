//! Division of a gateway's memory among its peers.

use std::collections::BTreeMap;

use oncewire_codec::entropy::Entropy;
use oncewire_codec::log::{self as sizes, Demand};

use super::settings::{CodecSettings, MAX_HINTS, Matchings};
use super::{Config, Discovery, Peer, Policies, StoreSettings};

/// One peer's bytes of `[cache] memory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MemoryPlan {
    /// The outbound log; where logs compete for memory, its initial size. Chunk-Match alone keeps its bytes
    /// only at the peer.
    pub log_sent: u64,
    /// The inbound log, likewise.
    pub log_received: u64,
    /// Bytes of both kept here.
    pub held: u64,
    /// The fingerprint table of the sending direction.
    pub table: u64,
    /// Plain bytes of unacknowledged blocks, kept for repair.
    pub kept: u64,
    /// Knowledge of the peer's chunk store.
    pub hints: u64,
    /// Contexts of the entropy stage, both directions: streaming ones, and those for blocks alone.
    pub contexts: u64,
    /// Flow buffers: credit granted and not yet read by the application.
    pub flows: u64,
}

impl MemoryPlan {
    /// Returns the bytes of logs kept here.
    pub fn logs(&self) -> u64 {
        self.held
    }

    /// Returns the approximate reach of the hints: how many of the last bytes sent are known to be in the
    /// peer's chunk store by their largest chunks, with chunks of the default sizes. Half of the hints are
    /// for those, 8 bytes each; in a full table, newer ones displace a quarter.
    pub fn hints_reach(&self) -> u64 {
        self.hints / 16 * MEAN_ROOT / 4 * 3
    }

    /// Returns the sum.
    pub fn total(&self) -> u64 {
        self.logs() + self.table + self.kept + self.hints + self.contexts + self.flows
    }
}

/// The logs' part of `[cache] memory`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogBudget {
    /// Bytes for all logs together, and for the tables beside outbound ones.
    pub bytes: u64,
    /// Whether that is less than all logs could use: they compete for it.
    pub contested: bool,
}

/// Mean size of the largest chunks of the default sizes, as files are cut.
const MEAN_ROOT: u64 = 43_000;

/// Minimum size of a competing log.
const LEAST_LOG: u64 = 1 << 20;

/// Returns the initial demand of an outbound or inbound log, its worth still unknown.
pub fn log_demand(settings: &CodecSettings, matchings: Matchings, sent: bool) -> Demand {
    let maximum = settings.log_memory;
    // Up to half of a log may be in flight, and is then kept beside it.
    let kept = settings.in_flight().div_ceil((maximum / 4).max(1));
    let quarters = match sent {
        // The sending end keeps no bytes for Chunk-Match alone.
        true if !matchings.max => kept,
        true => 4 + kept,
        false => 4,
    };
    Demand { minimum: LEAST_LOG.min(maximum), maximum, quarters, ..Demand::default() }
}

/// One peer's demand.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) settings: &'a CodecSettings,
    pub(super) matchings: Matchings,
    /// Contexts of the entropy stage.
    pub(super) contexts: ContextMemory,
    /// Whether any of its flows may name chunks.
    pub(super) names: bool,
    /// Whether it is a neighbour, across a LAN: there the smallest windows are large.
    pub(super) is_near: bool,
    /// Whether its link has logs already, of fixed sizes.
    pub(super) keeps_logs: bool,
}

impl<'a> Wanted<'a> {
    /// Returns the demand of a peer's flows under these rules, for a gateway at `site`.
    pub(super) fn of(peer: &'a Peer, policies: &Policies, site: Option<&str>, keeps_logs: bool) -> Self {
        let settings = &peer.settings;
        let matchings = policies.matchings(&peer.name, settings.plan());
        let entropies = policies.plans(&peer.name, settings.plan()).map(|(_, plan)| plan.entropy);
        let contexts = ContextMemory::of(entropies);
        let is_near = peer.is_near(site);
        let names = policies.name_chunks(&peer.name, settings.usual());
        Self { settings, matchings, contexts, names, is_near, keeps_logs }
    }
}

/// Memory of entropy contexts, if all are of the largest kind asked for by any rule. The peer codes as it
/// likes, and its data must be decoded independent of what is sent.
#[derive(Clone, Copy, Debug)]
pub struct ContextMemory {
    /// Contexts for single blocks; there is always one.
    alone: u64,
    /// Each streaming one.
    each: u64,
}

impl ContextMemory {
    /// Returns their memory.
    pub fn of(entropies: impl Iterator<Item = Entropy>) -> Self {
        let decoding = Self { alone: Entropy::DECODING_ALONE, each: Entropy::DECODING_STREAM };
        entropies.fold(decoding, |most, entropy| Self {
            alone: most.alone.max(entropy.alone_memory()),
            each: most.each.max(entropy.stream_memory()),
        })
    }

    /// Returns how many streaming contexts, one to encode and one to decode each, so many bytes hold.
    pub fn streams_in(self, bytes: u64) -> u64 {
        bytes.saturating_sub(self.alone) / self.each
    }

    /// Whether memory planned for other contexts suffices for as many of these.
    pub fn fits_in(self, other: Self) -> bool {
        self.alone <= other.alone && self.each <= other.each
    }

    /// Returns a peer's usual minimum.
    pub(super) fn least(self) -> u64 {
        self.least_in(&TIERS[0])
    }

    fn least_in(self, tier: &Tier) -> u64 {
        let one_each = self.alone + self.each;
        let alone = tier.alone && one_each <= MIN_CONTEXTS;
        tier.contexts.max(if alone { self.alone } else { one_each })
    }
}

/// Fixed settings for each peer; the rest is shared out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetMemory {
    /// `[link] flow_memory`.
    pub flow_memory: Option<u64>,
    /// `[cache] hint_memory`.
    pub hint_memory: Option<u64>,
    /// Whether the size of any log, or of a part of one, is set. Else logs are smaller for many peers sharing
    /// little.
    pub logs: bool,
}

/// Minimum per peer. With many peers and little memory it is less, and unused parts are lent to others while
/// the gateway runs.
#[derive(Clone, Copy, Debug)]
struct Tier {
    /// For flows.
    flows: u64,
    /// For contexts of the entropy stage, without the levels of rules.
    contexts: u64,
    /// Whether blocks are compressed alone, without a streaming context, at levels with small contexts.
    alone: bool,
    /// For knowledge of the peer's chunk store.
    hints: u64,
    /// The largest log without a set size; tables are sized by it.
    log: u64,
}

/// From the usual size down to the bare minimum.
const TIERS: [Tier; 5] = [
    Tier { flows: 16 << 20, contexts: MIN_CONTEXTS, alone: false, hints: MIN_HINTS, log: u64::MAX },
    Tier { flows: 4 << 20, contexts: 0, alone: false, hints: MIN_HINTS / 4, log: u64::MAX },
    Tier { flows: 1 << 20, contexts: 0, alone: false, hints: MIN_HINTS / 8, log: 16 << 20 },
    Tier { flows: 1 << 20, contexts: 0, alone: true, hints: MIN_HINTS / 16, log: 16 << 20 },
    Tier { flows: 1 << 20, contexts: 0, alone: true, hints: MIN_HINTS / 16, log: 4 << 20 },
];

/// Log size to aim for: with this much in either direction, a repeat of 10 MB is found if the other direction
/// is idle and lends its rest. Larger logs do not justify less of the rest.
const LOG_WORTH_HAVING: u64 = 8 << 20;

/// Joint minimum of all peers, by purpose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Least {
    pub(super) flows: u64,
    pub(super) contexts: u64,
    pub(super) hints: u64,
    /// Logs of minimum size, and tables of their full size.
    pub(super) logs: u64,
}

impl Least {
    /// Returns the sum.
    pub(super) fn total(self) -> u64 {
        let Self { flows, contexts, hints, logs } = self;
        flows.saturating_add(contexts).saturating_add(hints).saturating_add(logs)
    }
}

/// Returns the index memory for a store of so many bytes: enough for every chunk of the default sizes, but no
/// more than an eighth of all memory.
pub fn index_memory(disk: u64, memory: u64) -> u64 {
    whole_index(disk).min(memory / 8)
}

/// Returns the size of an index of every chunk of the default sizes, for a store of so many bytes.
pub(super) fn whole_index(disk: u64) -> u64 {
    (disk / 65_536 + 1).saturating_mul(INDEX_OF_A_ROOT)
}

/// Returns the memory needed to leave so many bytes beside the index of a store of so many bytes.
pub(super) fn with_index(rest: u64, disk: u64) -> u64 {
    rest.saturating_add(whole_index(disk)).min(rest.saturating_mul(8).div_ceil(7))
}

/// Returns the memory outside the file's peers: the store's index, and discovered gateways.
pub(super) fn beside_peers(store: Option<&StoreSettings>, discovery: Option<&Discovery>) -> u64 {
    let for_found = discovery.map_or(0, |discovery| discovery.found.memory.total() * MAX_FOUND as u64);
    store.map_or(0, |store| store.index_memory) + for_found
}

/// Fixed log sizes of running links, by the name of the peer.
pub type KeptLogs = BTreeMap<String, u64>;

/// Shares `memory` out among peers ([`share_out`]), for a gateway at `site`.
///
/// # Errors
/// If there is too little; all stay as they are then, except for logs that are `kept`.
pub(super) fn share_among(
    peers: &mut [Peer],
    memory: u64,
    policies: &Policies,
    site: Option<&str>,
    set: SetMemory,
    kept: &KeptLogs,
) -> Result<LogBudget, Least> {
    for peer in peers.iter_mut() {
        peer.settings.log_memory = kept.get(&peer.name).copied().unwrap_or(peer.settings.log_memory);
    }
    let want = |peer| Wanted::of(peer, policies, site, kept.contains_key(&peer.name));
    let wanted: Vec<_> = peers.iter().map(want).collect();
    let Shared { plans, budget, log_memory } = share_out(memory, &wanted, set)?;
    for (peer, plan) in peers.iter_mut().zip(plans) {
        peer.memory = plan;
        if !kept.contains_key(&peer.name) {
            peer.settings.log_memory = peer.settings.log_memory.min(log_memory);
        }
    }
    Ok(budget)
}

/// Result of [`share_out`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Shared {
    /// Each peer's part.
    pub(super) plans: Vec<MemoryPlan>,
    /// The logs' joint part.
    pub(super) budget: LogBudget,
    /// Maximum size of logs not kept.
    pub(super) log_memory: u64,
}

impl Config {
    /// Returns it with this store, these discovered gateways and these logs in place of its own, and memory
    /// shared out accordingly. With too little memory, logs shrink to their minimum.
    pub fn keeping(
        self,
        store: Option<StoreSettings>,
        discovery: Option<Discovery>,
        logs: &KeptLogs,
    ) -> Self {
        let mut kept = Self { store, discovery, ..self };
        let beside = beside_peers(kept.store.as_ref(), kept.discovery.as_ref());
        let site = kept.gateway.site.as_deref();
        let memory = kept.memory.saturating_sub(beside);
        let shared = share_among(&mut kept.peers, memory, &kept.policies, site, kept.set_memory, logs);
        kept.log_budget = shared.unwrap_or(LogBudget { bytes: 0, contested: true });
        kept
    }
}

/// Shares `memory` out.
///
/// If it suffices, each peer gets the memory for its settings, then all get equal parts of the rest: an
/// eighth for hints, a quarter of the remainder for contexts and the last part for flows, each up to the
/// bound of its use. Otherwise these get their minimum, and logs compete for the rest. Neighbours get the
/// minimum in any case, unless all peers are neighbours: a full window for the LAN would be taken from the
/// line's.
///
/// # Errors
/// If there is too little even then: the smallest sufficient `memory`, by parts.
///
/// The minimum depends on the memory left to logs: of [`TIERS`], the first with the largest logs, up to
/// [`LOG_WORTH_HAVING`].
pub(super) fn share_out(memory: u64, peers: &[Wanted<'_>], set: SetMemory) -> Result<Shared, Least> {
    let mut best: Option<(u64, Shared)> = None;
    let mut least = Least::default();
    for tier in &TIERS {
        let log_memory = if set.logs { u64::MAX } else { tier.log };
        let fit = |peer: &Wanted<'_>| {
            let most = if peer.keeps_logs { u64::MAX } else { log_memory };
            let log_memory = peer.settings.log_memory.min(most);
            CodecSettings { log_memory, ..peer.settings.clone() }
        };
        let settings: Vec<_> = peers.iter().map(fit).collect();
        let fitted: Vec<_> =
            peers.iter().zip(&settings).map(|(peer, settings)| Wanted { settings, ..*peer }).collect();
        match share_out_by(tier, memory, &fitted, set) {
            Err(needed) => least = needed,
            Ok((plans, budget)) => {
                let logs = plans.iter().map(|plan| (plan.log_sent + plan.log_received) / 2);
                let smallest = logs.min().unwrap_or(u64::MAX).min(LOG_WORTH_HAVING);
                // A log small by its setting grows with no tier.
                if best.as_ref().is_none_or(|(before, _)| smallest > *before) {
                    best = Some((smallest, Shared { plans, budget, log_memory }));
                }
            }
        }
    }
    best.map(|(_, shared)| shared).ok_or(least)
}

/// Shares `memory` out with a tier's minimum for each peer.
fn share_out_by(
    tier: &Tier,
    memory: u64,
    peers: &[Wanted<'_>],
    set: SetMemory,
) -> Result<(Vec<MemoryPlan>, LogBudget), Least> {
    let count = peers.len() as u64;
    let demands: Vec<Demand> = peers
        .iter()
        .flat_map(|peer| [true, false].map(|sent| log_demand(peer.settings, peer.matchings, sent)))
        .collect();
    let cost = |size: fn(&Demand) -> u64| demands.iter().map(|demand| demand.cost(size(demand))).sum::<u64>();
    let (most, least) = (cost(|demand| demand.maximum), cost(|demand| demand.minimum));
    let SetMemory { flow_memory, hint_memory, .. } = set;
    let least_flows = flow_memory.unwrap_or(tier.flows);
    let least_contexts = |peer: &Wanted<'_>| peer.contexts.least_in(tier);
    let naming = peers.iter().filter(|peer| peer.names).count() as u64;
    let tables = peers.iter().map(|peer| peer.settings.table_memory(peer.matchings)).sum::<u64>();
    let needed = Least {
        flows: least_flows.saturating_mul(count),
        contexts: peers.iter().map(least_contexts).sum(),
        hints: hint_memory.unwrap_or(tier.hints).saturating_mul(naming),
        logs: tables + least,
    };
    if needed.total() > memory {
        return Err(needed);
    }
    let bytes = most.min(memory - (needed.total() - least));
    let budget = LogBudget { bytes, contested: bytes < most };
    let sizes = sizes::share_out(bytes, &demands);
    let hints_of = |peer: &Wanted<'_>| if peer.names { hint_memory.unwrap_or(tier.hints) } else { 0 };
    let least_of = |peer: &Wanted<'_>| least_flows + least_contexts(peer) + hints_of(peer);
    let is_least = |peer: &Wanted<'_>| peer.is_near && peers.iter().any(|peer| !peer.is_near);
    let (near, far): (Vec<_>, Vec<_>) = peers.iter().partition(|peer| is_least(peer));
    let for_near: u64 = near.into_iter().map(least_of).sum();
    let for_far = (memory - tables - bytes).saturating_sub(for_near);
    let for_far = for_far.checked_div(far.len() as u64).unwrap_or(0);
    let plans = peers.iter().zip(sizes.chunks(2)).zip(demands.chunks(2)).map(|((peer, sizes), demands)| {
        let (log_sent, log_received) =
            (sizes.first().copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
        let held = demands
            .iter()
            .zip(sizes)
            .map(|(demand, size)| if demand.quarters >= 4 { *size } else { 0 })
            .sum::<u64>();
        let cost = sizes.iter().zip(demands).map(|(size, demand)| demand.cost(*size)).sum::<u64>();
        let rest = if is_least(peer) { least_of(peer) } else { for_far };
        let contexts_least = least_contexts(peer);
        let least = least_flows + contexts_least + tier.hints;
        let more = rest.saturating_sub(least) / 8;
        let for_hints = hint_memory.unwrap_or_else(|| (tier.hints + more).min(MAX_HINTS));
        let hints = if peer.names { for_hints } else { 0 };
        let rest = rest.saturating_sub(hints);
        let for_contexts = flow_memory.map_or(rest / 4, |flows| rest.saturating_sub(flows));
        let contexts = for_contexts.clamp(contexts_least, MAX_CONTEXTS.max(contexts_least));
        let flows = flow_memory.unwrap_or_else(|| rest.saturating_sub(contexts).min(MAX_FLOWS));
        let (table, kept) = (peer.settings.table_memory(peer.matchings), cost.saturating_sub(held));
        MemoryPlan { log_sent, log_received, held, table, kept, hints, contexts, flows }
    });
    Ok((plans.collect(), budget))
}

/// Hints for a gigabyte of chunks of 16 KiB, beside some small ones.
const MIN_HINTS: u64 = 1 << 20;
/// Bytes of index for 64 KiB: nine large chunks at 9 bytes, 64 of 1 KiB and 512 of 128 bytes at 4 bytes and an eighth.
const INDEX_OF_A_ROOT: u64 = 81 + 288 + 2304;
/// Contexts for a few flows in either direction, at some megabytes each, and more at levels with larger
/// contexts.
pub(super) const MIN_CONTEXTS: u64 = 10 << 20;
/// Contexts for more flows than compress at a time on any machine.
const MAX_CONTEXTS: u64 = 128 << 20;
/// A thousand flows at their first grant, or thirty at their largest.
const MAX_FLOWS: u64 = 512 << 20;

/// The most gateways that are found, beside those that are configured; a larger site configures its gateways.
pub const MAX_FOUND: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: Matchings = Matchings { max: true, chunk: false };

    fn wanted(settings: &CodecSettings) -> Wanted<'_> {
        let contexts = ContextMemory::of([Entropy::Zstd(3)].into_iter());
        Wanted { settings, matchings: MAX, contexts, names: true, is_near: false, keeps_logs: false }
    }

    #[test]
    fn plan_never_exceeds_the_memory() {
        let settings = CodecSettings::for_gateway();
        for peers in [1, 2, 7] {
            let peers = vec![wanted(&settings); peers];
            for mib in [1, 100, 200, 300, 1000, 2000, 50_000] {
                match share_out(mib << 20, &peers, SetMemory::default()) {
                    Ok(Shared { plans, budget, log_memory }) => {
                        assert_eq!(plans.len(), peers.len());
                        let whole = 2 * log_memory.min(64 << 20);
                        assert_eq!(
                            budget.contested,
                            plans.iter().any(|plan| plan.log_sent + plan.log_received < whole)
                        );
                        assert!(plans.iter().map(MemoryPlan::total).sum::<u64>() <= mib << 20, "{mib} MiB");
                        let least = TIERS[TIERS.len() - 1];
                        assert!(
                            plans.iter().all(|plan| plan.flows >= least.flows && plan.hints >= least.hints)
                        );
                    }
                    Err(least) => {
                        let needed = least.total();
                        assert!(needed > mib << 20);
                        assert!(
                            share_out(needed, &peers, SetMemory::default()).is_ok(),
                            "what it asks for must do"
                        );
                        assert!(
                            share_out(needed - 1, &peers, SetMemory::default()).is_err(),
                            "and nothing less"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn contexts_of_high_levels_are_reckoned_with() {
        let settings = CodecSettings::for_gateway();
        for level in [1, 3, 9, 19] {
            let memory = ContextMemory::of([Entropy::Zstd(level), Entropy::Zstd(1)].into_iter());
            let wanted = Wanted { contexts: memory, ..wanted(&settings) };
            let least = share_out(0, &[wanted; 3], SetMemory::default()).unwrap_err().total();
            for bytes in [least, 2 * least, 20 * least] {
                let plans = share_out(bytes, &[wanted; 3], SetMemory::default()).unwrap().plans;
                assert!(plans.iter().map(MemoryPlan::total).sum::<u64>() <= bytes, "{level}");
                // Next to no memory: do without small contexts.
                let streams = u64::from(bytes > 4 * least || level > 4);
                let holds = |plan: &MemoryPlan| memory.streams_in(plan.contexts) >= streams;
                assert!(plans.iter().all(holds), "{level}: {plans:?}");
            }
        }
        assert_eq!(ContextMemory::of(std::iter::empty()).least(), MIN_CONTEXTS);
    }

    #[test]
    fn decoding_memory_is_independent_of_our_own_coding() {
        for entropy in [Entropy::None, Entropy::Lz4, Entropy::Zstd(1)] {
            let streams = ContextMemory::of([entropy].into_iter()).streams_in(MIN_CONTEXTS);
            assert!(
                streams >= 1 && streams * Entropy::DECODING_STREAM <= MIN_CONTEXTS,
                "{entropy}: {streams}"
            );
        }
    }

    #[test]
    fn fixed_sizes_are_granted_exactly() {
        let settings = CodecSettings::for_gateway();
        let peers = [wanted(&settings)];
        let flows = |bytes| SetMemory { flow_memory: Some(bytes), ..SetMemory::default() };
        let plans = share_out(1 << 30, &peers, flows(100 << 20)).unwrap().plans;
        assert_eq!(plans[0].flows, 100 << 20);
        assert!(share_out(1 << 30, &peers, flows(1 << 30)).is_err());
        assert!(share_out(1 << 30, &peers, flows(u64::MAX)).is_err());
        let hints = |bytes| SetMemory { hint_memory: Some(bytes), ..SetMemory::default() };
        let plans = share_out(1 << 30, &peers, hints(7 << 20)).unwrap().plans;
        assert_eq!(plans[0].hints, 7 << 20);
        assert!(share_out(1 << 30, &peers, hints(u64::MAX)).is_err());
    }

    #[test]
    fn neighbours_take_little_from_flows_over_the_line() {
        let settings = CodecSettings { log_memory: 1 << 20, ..CodecSettings::for_gateway() };
        let hub = wanted(&settings);
        let neighbour = Wanted { is_near: true, ..hub };
        let flows = |peers: &[Wanted<'_>], set| {
            let plans = share_out(512 << 20, peers, set).unwrap().plans;
            assert!(plans.iter().map(MemoryPlan::total).sum::<u64>() <= 512 << 20);
            plans.iter().map(|plan| plan.flows).collect::<Vec<_>>()
        };
        let alone = flows(&[hub], SetMemory::default())[0];
        for neighbours in 1..=3 {
            let peers: Vec<_> = [hub].into_iter().chain([neighbour].repeat(neighbours)).collect();
            let shared = flows(&peers, SetMemory::default());
            assert!(shared[0] >= alone - neighbours as u64 * (48 << 20), "{neighbours}: {shared:?}");
            assert!(shared[1..].iter().all(|flows| *flows == TIERS[0].flows), "{shared:?}");
            let set = SetMemory { flow_memory: Some(40 << 20), ..SetMemory::default() };
            assert!(flows(&peers, set).iter().all(|flows| *flows == 40 << 20));
        }
        let equal = flows(&[neighbour, neighbour], SetMemory::default());
        assert!(equal[0] > TIERS[0].flows && equal[0] == equal[1], "{equal:?}");
    }

    #[test]
    fn peers_without_chunk_names_need_no_hints() {
        let settings = CodecSettings::for_gateway();
        let peers = [Wanted { names: false, ..wanted(&settings) }];
        let plans = share_out(1 << 30, &peers, SetMemory::default()).unwrap().plans;
        assert_eq!(plans[0].hints, 0);
    }

    #[test]
    fn memory_beside_an_index_is_invertible() {
        for disk in [64 << 20, 1 << 30, 1 << 40] {
            for rest in [0, 1, 38 << 20, 1 << 40] {
                let memory = with_index(rest, disk);
                assert!(memory - index_memory(disk, memory) >= rest, "{disk} {rest}");
                let less = memory.saturating_sub(9);
                assert!(less - index_memory(disk, less) < rest || rest == 0, "{disk} {rest}");
            }
        }
    }

    #[test]
    fn no_peers_need_no_memory() {
        let shared = share_out(0, &[], SetMemory::default()).unwrap();
        assert_eq!((shared.plans, shared.budget), (vec![], LogBudget::default()));
    }

    #[test]
    fn many_idle_peers_fit_and_few_keep_larger_logs() {
        let settings = CodecSettings::for_gateway();
        let log = |mib: u64, peers: usize| {
            let peers = vec![wanted(&settings); peers];
            let shared = share_out(mib << 20, &peers, SetMemory::default()).unwrap();
            assert!(shared.plans.iter().map(MemoryPlan::total).sum::<u64>() <= mib << 20);
            (shared.plans[0].log_sent + shared.plans[0].log_received) / 2
        };
        assert!(log(256, 40) >= LEAST_LOG);
        for (mib, peers) in [(256, 7), (953, 40), (6 << 10, 100)] {
            assert!(log(mib, peers) >= LOG_WORTH_HAVING, "{peers} in {mib} MiB: {}", log(mib, peers));
        }
        assert_eq!(log(1 << 10, 2), 64 << 20);
        let peers = vec![wanted(&settings); 40];
        let set = SetMemory { logs: true, ..SetMemory::default() };
        assert!(share_out(256 << 20, &peers, set).is_err(), "tables of logs whose size is set");
    }
}
