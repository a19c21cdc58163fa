//! How halves begin: anew, or with what an earlier process left on disk.

use super::{CAPACITY, SEED};
use crate::contract::{LogWrite, PeerSender, SavedLog};
use crate::endre::matcher::MatchParams;
use crate::entropy::Entropy;
use crate::log::{Log, LogOffset, RangeSet};
use crate::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use crate::wanax::{NameKey, NamesConfig, Shape};
use crate::wire::NamesHello;
use crate::{Plan, StrongKind};

/// How one sending half begins.
#[derive(Default)]
pub(crate) struct Begin {
    pub(crate) planted: bool,
    pub(crate) saved: Option<SavedLog>,
    /// What was saved of the hints.
    pub(crate) hints: Option<Vec<u8>>,
}

pub(crate) fn sender(entropy: Entropy, keeps_bytes: bool, begin: Begin) -> Sender {
    let Begin { planted, saved, hints } = begin;
    let names = NamesConfig {
        key: NameKey::new([5; 32]),
        group: None,
        shape: Shape::default(),
        hint_memory: 1 << 16,
        saved: hints,
        clock_secs: 1000,
    };
    let config = SenderConfig { names: Some(names), ..sender_config(entropy, keeps_bytes) };
    let mut sender = match saved {
        None => Sender::new(config),
        Some(saved) => Sender::with_log(config, saved, &Plan { period: 16, ..Plan::default() }),
    };
    sender.plant_error(planted);
    sender.set_least_in_flight(CAPACITY / 24);
    sender
}

pub(crate) fn sender_config(entropy: Entropy, keeps_bytes: bool) -> SenderConfig {
    SenderConfig {
        capacity: CAPACITY,
        max_in_flight: Some(CAPACITY / 3),
        entropy,
        contexts: 3,
        params: MatchParams { period: 16, window: 16, ..MatchParams::default() },
        keeps_bytes,
        digest_seed: SEED,
        persist: true,
        names: None,
    }
}

pub(crate) fn receiver(store: bool, saved: Option<SavedLog>) -> Receiver {
    let config = ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 3,
        contexts: 3,
        digest_seed: SEED,
        persist: true,
        store,
    };
    match saved {
        None => Receiver::new(config),
        Some(saved) => Receiver::with_log(config, saved),
    }
}

pub(crate) fn peer_sender(capacity: u64, strong: StrongKind) -> PeerSender {
    let names = NamesHello { key: NameKey::new([5; 32]), shape: Shape::default() };
    PeerSender {
        capacity,
        max_in_flight: CAPACITY / 3,
        digest_seed: SEED,
        names: Some(names),
        strong,
        continues: false,
        probe: None,
    }
}

/// What a file would hold of a log, and the writes left of it: some of the last writes may be missing, and some in the
/// middle.
pub(crate) fn saved(
    writes: &[LogWrite],
    mut pick: impl FnMut(u64) -> u64,
) -> Option<(SavedLog, Vec<LogWrite>)> {
    let kept = writes.len() - pick(3).min(writes.len() as u64) as usize;
    let epoch = writes[..kept].last()?.epoch;
    let mut saved = SavedLog { epoch, log: Log::new(CAPACITY as usize), ranges: RangeSet::default() };
    let mut left = Vec::new();
    for write in writes[..kept].iter().filter(|write| write.epoch == epoch) {
        let end = write.start + write.plain.len() as u64;
        if pick(40) == 0 {
            continue;
        }
        saved.log.write(LogOffset(write.start), &write.plain);
        saved.ranges.insert(write.start..end);
        left.push(write.clone());
    }
    let highest = saved.ranges.iter().next_back()?.end;
    saved.ranges.remove_below(highest.saturating_sub(CAPACITY));
    Some((saved, left))
}
