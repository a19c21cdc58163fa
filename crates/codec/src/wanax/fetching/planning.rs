//! Plans: chunks to be read, and chunks to be requested over the network.

use std::collections::BTreeSet;

use super::Fetching;
use super::blocks::Fetch;
use crate::Now;
use crate::contract::{ChunkPlace, Purpose, StoreRequest, StoreState};
use crate::wanax::backlog::Backlog;
use crate::wanax::gain::Gain;
use crate::wanax::path::{Demand, PathRate};
use crate::wanax::shed::{Disk, Entry, Path, Planner, Source};
use crate::wire::{ChunkReason, Sought};

/// The knowledge behind plans: disks, path, and the benefit of shedding.
pub(crate) struct Plans {
    planner: Planner,
    /// Chunks taking a read, and their entries of the block.
    planned: (Vec<Entry>, Vec<u32>),
    pub(crate) state: StoreState,
    /// The lowest rate of the path in plans of reads that may still wait here, not requested from the store.
    planned_rate: u64,
    /// The path without the queue at the far side, at the known rate.
    pub(crate) path: Path,
    /// The rate of plans.
    pub(crate) hoped_rate: u64,
    /// The neighbours' requests under way when the rate was learnt: they are in the rate.
    others_then: u64,
    pub(crate) backlog: Backlog,
    /// Whether it pays to shed the own disk.
    pub(crate) gain: Gain,
}

impl Default for Plans {
    fn default() -> Self {
        Self {
            planner: Planner::default(),
            planned: Default::default(),
            state: StoreState { taking: true, ..StoreState::default() },
            planned_rate: u64::MAX,
            path: Path { round_trip: Now::ZERO, bytes_per_s: 0, pending: 0, others: 0 },
            hoped_rate: 0,
            others_then: 0,
            backlog: Backlog::default(),
            gain: Gain::default(),
        }
    }
}

impl Fetching {
    /// Asks the store for the places of some chunks, the basis of the plan.
    pub(crate) fn peek(&mut self, fetch: &mut Fetch, indexes: Vec<u32>, now: Now) {
        let Some(key) = fetch.key.clone().filter(|_| !indexes.is_empty()) else { return };
        let entries = indexes.iter().filter_map(|index| fetch.entries.get(*index as usize));
        let chunks = entries.map(|entry| Sought { tag: entry.name.tag(), len: entry.len }).collect();
        let ticket = self.reads.open_peek(fetch.head.seq);
        fetch.peeks.insert(ticket, indexes);
        fetch.wait_for_reads(now + fetch.patience);
        self.requests.push_back(StoreRequest::Peek { ticket, chunks, key, purpose: Purpose::Plan });
    }

    /// Decides the way of each chunk with known places: read or requested [Wanax §3.4].
    pub(crate) fn plan(
        &mut self,
        fetch: &mut Fetch,
        asked: &[u32],
        places: &[ChunkPlace],
        neighbours: &[Disk],
        now: Now,
    ) {
        // Neighbours may have asked for more time for what is read already.
        let before = fetch.read_deadline.filter(|_| !fetch.reads.is_empty());
        let (mut entries, mut indexes) = std::mem::take(&mut self.plans.planned);
        entries.clear();
        indexes.clear();
        let mut near = Vec::new();
        for (at, &index) in asked.iter().enumerate() {
            let (Some(entry), Some(None)) =
                (fetch.entries.get(index as usize), fetch.chunks.get(index as usize))
            else {
                continue;
            };
            if fetch.asked.contains(&index) {
                continue;
            }
            let place = places.get(at).copied();
            let ChunkPlace::Disk { disk, read } = place.unwrap_or(ChunkPlace::Disk { disk: 0, read: None })
            else {
                near.push(index);
                continue;
            };
            let read = read.unwrap_or_else(|| self.reads.alone());
            entries.push(Entry { len: entry.len, source: Source::Disk(disk), read });
            indexes.push(index);
        }
        near.into_iter().for_each(|index| self.read(fetch, index, None));
        self.divide(fetch, &entries, &indexes, neighbours, now);
        fetch.read_deadline = fetch.read_deadline.max(before);
        self.plans.planned = (entries, indexes);
    }

    /// Takes how the store stands. Where the path turned out to carry much more than was planned with, as after a
    /// start, those reads are planned again the store was not asked for yet.
    pub(crate) fn handle_state(&mut self, state: StoreState, now: Now) {
        self.plans.state = state;
        self.note_disk(now);
        if self.reads.held_back() == 0 {
            self.plans.planned_rate = u64::MAX;
        } else if self.plans.hoped_rate / 2 > self.plans.planned_rate {
            self.plan_again(now);
        }
    }

    fn plan_again(&mut self, now: Now) {
        self.plans.planned_rate = u64::MAX;
        let Self { blocks, reads, .. } = self;
        let mut withdrawn = Vec::new();
        for seq in blocks.reading() {
            let mut chunks = Vec::new();
            blocks.change(seq, |fetch| {
                fetch.reads.retain(|&ticket, &mut index| {
                    let read = reads.withdraw_from(0, ticket);
                    chunks.extend(read.map(|read| (index, read)));
                    read.is_none()
                });
            });
            withdrawn.push((seq, chunks));
        }
        for (seq, chunks) in withdrawn {
            let Some(mut fetch) = self.blocks.remove(seq) else { continue };
            let entry = |&(index, read): &(u32, u64)| {
                let len = fetch.entries.get(index as usize)?.len;
                Some((Entry { len, source: Source::Disk(0), read }, index))
            };
            let (entries, indexes): (Vec<Entry>, Vec<u32>) = chunks.iter().filter_map(entry).unzip();
            if !entries.is_empty() {
                let before = fetch.read_deadline;
                self.divide(&mut fetch, &entries, &indexes, &[], now);
                // Neighbours may have asked for more time, and the disk may be slow for a moment only.
                let most = now + fetch.patience + LONGEST_WAIT;
                let deadline = fetch.read_deadline.map(|deadline| deadline.min(most));
                fetch.read_deadline = deadline.max(before.filter(|_| !fetch.reads.is_empty()));
            }
            self.blocks.insert(seq, fetch);
        }
    }

    /// Has some of the entries read, and asks for the others.
    fn divide(
        &mut self,
        fetch: &mut Fetch,
        entries: &[Entry],
        indexes: &[u32],
        neighbours: &[Disk],
        now: Now,
    ) {
        let others = self.of_others();
        let disks = self.disks(others, neighbours);
        let sheds = self.plans.gain.sheds(self.plans.state.service_time, now);
        let bytes_per_s = if sheds { self.plans.hoped_rate } else { 0 };
        let path = Path { bytes_per_s, ..self.path(now) };
        let sources = self.plans.planner.plan(entries, &disks, &path).to_vec();
        if sources.contains(&Source::Disk(0)) {
            self.plans.planned_rate = self.plans.planned_rate.min(self.plans.hoped_rate);
        }
        let mut shed = BTreeSet::new();
        for ((&index, entry), source) in indexes.iter().zip(entries).zip(sources) {
            match source {
                Source::Disk(disk) => self.read(fetch, index, Some((disk, entry.read))),
                Source::Far => {
                    if entry.source == Source::Disk(0) {
                        shed.insert(entry.read);
                    }
                    self.counts.shed += 1;
                    self.ask(fetch, index, ChunkReason::Shed);
                }
            }
        }
        self.note_disk(now);
        if !shed.is_empty() {
            let reads = u32::try_from(shed.len()).unwrap_or(u32::MAX);
            let trial = self.plans.gain.begin(reads, self.plans.state.service_time, now);
            fetch.trial = Some(fetch.trial.map_or(trial, |before| before.and(trial)));
        }
        // In the worst case each takes a read: what is late costs bytes.
        let reads = others.saturating_add(self.reads.len());
        let deadline =
            now + fetch.patience + self.plans.state.service_time.saturating_mul(reads).saturating_mul(2);
        fetch.read_deadline = fetch.read_deadline.filter(|_| !fetch.peeks.is_empty());
        if !fetch.reads.is_empty() {
            fetch.wait_for_reads(deadline);
            fetch.progress = Some(self.reads.progress(now));
        }
    }

    /// Gives late reads more time if the store has brought something since they were last looked at, and brings the
    /// rest, at that pace, before the network could, or if nothing is to be shed of its disk. Of a store opened anew no
    /// time of a read is known, so the plan cannot allow for it.
    pub(crate) fn wait_longer(&mut self, fetch: &mut Fetch, now: Now) -> bool {
        let planned = fetch.progress.as_mut().filter(|_| fetch.peeks.is_empty());
        let Some((took, left)) = planned.and_then(|progress| self.reads.look(progress, now)) else {
            return false;
        };
        let waiting = fetch.reads.values().filter(|index| !fetch.asked.contains(index));
        let entries = waiting.filter_map(|&index| fetch.entries.get(index as usize));
        let by_network = self.path(now).time(entries.map(|entry| u64::from(entry.len)).sum());
        if left >= by_network && !self.is_kept(now) {
            return false;
        }
        fetch.wait_for_reads(now + fetch.patience + left.saturating_mul(2).min(took).min(LONGEST_LOOK));
        true
    }

    /// Says whether the network is to bring nothing the own disk brings: that is fast, or it was in vain.
    fn is_kept(&mut self, now: Now) -> bool {
        let service_time = self.plans.state.service_time;
        let is_fast = service_time > Now::ZERO && !Disk { queued: 0, service_time }.is_slow();
        is_fast || !self.plans.gain.sheds(service_time, now)
    }

    /// Notes whether the own disk has something to do.
    pub(crate) fn note_disk(&mut self, now: Now) {
        let is_idle = self.reads.queued(0) == 0 && self.of_others() == 0;
        self.plans.gain.handle_disk(is_idle, now);
    }

    /// The own disk, from which others wait for so many chunks, and those of neighbours, as they are for the planner.
    fn disks(&self, others: u32, neighbours: &[Disk]) -> Vec<Disk> {
        let queued = self.reads.queued(0).saturating_add(self.reads.for_chunks(others));
        let own = Disk { queued, service_time: self.plans.state.service_time };
        // What was asked since a neighbour last told its queue may not be in it.
        let theirs = (1..)
            .zip(neighbours)
            .map(|(disk, told)| Disk { queued: told.queued.max(self.reads.queued(disk)), ..*told });
        [own].into_iter().chain(theirs).collect()
    }

    /// The path as it is for what is asked for now, at the rate known.
    fn path(&self, now: Now) -> Path {
        let round_trip = self.plans.path.round_trip.saturating_add(self.plans.backlog.wait(now));
        Path { round_trip, pending: self.asked_bytes, others: self.others(), ..self.plans.path }
    }

    /// The neighbours' requests on the line beyond those at the time of its rate.
    pub(crate) fn others(&self) -> u64 {
        self.plans.state.neighbours_pending.saturating_sub(self.plans.others_then)
    }

    /// Takes what the path is like while nothing waits.
    pub(crate) fn set_path(&mut self, round_trip: Now, rate: PathRate) {
        let PathRate { known: bytes_per_s, hoped } = rate;
        if bytes_per_s != self.plans.path.bytes_per_s {
            self.plans.others_then = self.plans.state.neighbours_pending;
        }
        if !rate.is_hope() && self.plans.hoped_rate > self.plans.path.bytes_per_s {
            self.plans.backlog.end_hope();
        }
        self.plans.hoped_rate = hoped;
        self.plans.path = Path { round_trip, bytes_per_s, ..self.plans.path };
    }

    /// Returns the known demand on the far side.
    pub(crate) fn demand(&self, now: Now) -> Demand {
        if self.plans.backlog.is_overdue(now) {
            Demand::Overdue
        } else if self.reads.len() > 0 || !self.queue.is_empty() {
            Demand::Held
        } else {
            Demand::Unknown
        }
    }

    /// Returns when the line has brought what was asked for, if any block waits for chunks.
    pub(crate) fn due_in(&self, now: Now) -> Option<Now> {
        (!self.is_empty()).then(|| self.path(now).time(0))
    }

    /// Returns what the path is known to carry, and how long answers wait.
    pub(crate) fn path_now(&self, now: Now) -> (u64, Now) {
        (self.plans.path.bytes_per_s, self.plans.backlog.wait(now))
    }
}

/// After so long reads planned again are looked at, however many wait.
const LONGEST_WAIT: Now = Now::from_secs(10);
/// A disk taking longer than this for a read is not waited for.
const LONGEST_LOOK: Now = Now::from_secs(1);
