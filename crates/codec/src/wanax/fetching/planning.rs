//! Which chunks of a block are read, and which are asked for over the network.

use std::collections::BTreeSet;

use super::Fetching;
use super::blocks::Fetch;
use crate::Now;
use crate::contract::{ChunkPlace, Purpose, StoreRequest, StoreState};
use crate::wanax::path::{Demand, PathRate};
use crate::wanax::shed::{Disk, Entry, Path, Source};
use crate::wire::{ChunkReason, Sought};

impl Fetching {
    /// Asks the store where some chunks are, on which the plan depends.
    pub(crate) fn peek(&mut self, fetch: &mut Fetch, indexes: Vec<u32>, now: Now) {
        let Some(key) = fetch.key.clone().filter(|_| !indexes.is_empty()) else { return };
        let entries = indexes.iter().filter_map(|index| fetch.entries.get(*index as usize));
        let chunks = entries.map(|entry| Sought { tag: entry.name.tag(), len: entry.len }).collect();
        let ticket = self.reads.open_peek(fetch.head.seq);
        fetch.peeks.insert(ticket, indexes);
        fetch.wait_for_reads(now + fetch.patience);
        self.requests.push_back(StoreRequest::Peek { ticket, chunks, key, purpose: Purpose::Plan });
    }

    /// Decides which of the chunks whose places were asked for are read and which are asked for [Wanax §3.4].
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
        let (mut entries, mut indexes) = std::mem::take(&mut self.planned);
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
        self.planned = (entries, indexes);
    }

    /// Takes how the store stands. Where the path turned out to carry much more than was planned with, as after a start,
    /// those reads are planned again that the store was not asked for yet.
    pub(crate) fn handle_state(&mut self, state: StoreState, now: Now) {
        self.state = state;
        self.note_disk(now);
        if self.reads.held_back() == 0 {
            self.planned_rate = u64::MAX;
        } else if self.hoped_rate / 2 > self.planned_rate {
            self.plan_again(now);
        }
    }

    fn plan_again(&mut self, now: Now) {
        self.planned_rate = u64::MAX;
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
        let sheds = self.gain.sheds(self.state.service_time, now);
        let bytes_per_s = if sheds { self.hoped_rate } else { 0 };
        let path = Path { bytes_per_s, ..self.path(now) };
        let sources = self.planner.plan(entries, &disks, &path).to_vec();
        if sources.contains(&Source::Disk(0)) {
            self.planned_rate = self.planned_rate.min(self.hoped_rate);
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
            let trial = self.gain.begin(reads, self.state.service_time, now);
            fetch.trial = Some(fetch.trial.map_or(trial, |before| before.and(trial)));
        }
        // In the worst case each takes a read: what is late costs bytes.
        let reads = others.saturating_add(self.reads.len());
        let deadline = now + fetch.patience + self.state.service_time.saturating_mul(reads).saturating_mul(2);
        fetch.read_deadline = fetch.read_deadline.filter(|_| !fetch.peeks.is_empty());
        if !fetch.reads.is_empty() {
            fetch.wait_for_reads(deadline);
            fetch.progress = Some(self.reads.progress(now));
        }
    }

    /// Gives late reads more time if the store has brought something since they were last looked at, and brings the
    /// rest, at that pace, before the network could, or if nothing is to be shed of its disk. Of a store that was opened anew no time of a read is known, so that
    /// the plan cannot allow for it.
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

    /// Says whether the network is to bring nothing that the own disk brings: that is fast, or it was in vain.
    fn is_kept(&mut self, now: Now) -> bool {
        let service_time = self.state.service_time;
        let is_fast = service_time > Now::ZERO && !Disk { queued: 0, service_time }.is_slow();
        is_fast || !self.gain.sheds(service_time, now)
    }

    /// Notes whether the own disk has something to do.
    pub(crate) fn note_disk(&mut self, now: Now) {
        let is_idle = self.reads.queued(0) == 0 && self.of_others() == 0;
        self.gain.handle_disk(is_idle, now);
    }

    /// The own disk, from which others wait for so many chunks, and those of neighbours, as they are for the planner.
    fn disks(&self, others: u32, neighbours: &[Disk]) -> Vec<Disk> {
        let queued = self.reads.queued(0).saturating_add(self.reads.for_chunks(others));
        let own = Disk { queued, service_time: self.state.service_time };
        // What was asked since a neighbour last told its queue may not be in it.
        let theirs = (1..)
            .zip(neighbours)
            .map(|(disk, told)| Disk { queued: told.queued.max(self.reads.queued(disk)), ..*told });
        [own].into_iter().chain(theirs).collect()
    }

    /// The path as it is for what is asked for now, at the rate that is known.
    fn path(&self, now: Now) -> Path {
        let round_trip = self.path.round_trip.saturating_add(self.backlog.wait(now));
        Path { round_trip, pending: self.asked_bytes, others: self.others(), ..self.path }
    }

    /// What neighbours ask of the line beyond what they did when its rate was learnt.
    pub(crate) fn others(&self) -> u64 {
        self.state.neighbours_pending.saturating_sub(self.others_then)
    }

    /// Takes what the path is like while nothing waits.
    pub(crate) fn set_path(&mut self, round_trip: Now, rate: PathRate) {
        let PathRate { known: bytes_per_s, hoped } = rate;
        if bytes_per_s != self.path.bytes_per_s {
            self.others_then = self.state.neighbours_pending;
        }
        if !rate.is_hope() && self.hoped_rate > self.path.bytes_per_s {
            self.backlog.end_hope();
        }
        self.hoped_rate = hoped;
        self.path = Path { round_trip, bytes_per_s, ..self.path };
    }

    /// Returns what is known of what the far side has to send.
    pub(crate) fn demand(&self, now: Now) -> Demand {
        if self.backlog.is_overdue(now) {
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
        (self.path.bytes_per_s, self.backlog.wait(now))
    }
}

/// After so long reads that were planned again are looked at, however many wait.
const LONGEST_WAIT: Now = Now::from_secs(10);
/// A disk that takes longer than this for a read is not waited for.
const LONGEST_LOOK: Now = Now::from_secs(1);
