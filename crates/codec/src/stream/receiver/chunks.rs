//! Named chunks of blocks: fetched, received, put.

use super::Receiver;
use super::rebuild::Pieces;
use crate::Now;
use crate::contract::ChunkStats;
use crate::entropy::Mode;
use crate::wanax::fetching::Wanted;
use crate::wanax::fetching::blocks::Fetch;
use crate::wire::{Chunks, MAX_RANGES, Probe, RefetchReason};

impl Receiver {
    /// Fetches the chunks a block names; the whole block is asked for if too many wait.
    pub(super) fn fetch(&mut self, wanted: &Wanted<'_>, now: Now) {
        let wanted = Wanted { key: self.store.key(), ..*wanted };
        self.coming.note(&wanted.head);
        if !self.fetching.start(&wanted, &self.transfer.arrived, self.transfer.patience, now) {
            self.refetch(&wanted.head, RefetchReason::Missing, now);
        }
    }

    /// Fetches the chunks of blocks in the queue: others may have come, or been given up.
    pub(super) fn fetch_queued(&mut self, now: Now) {
        let Self { fetching, store, transfer, .. } = self;
        if let Some(head) = fetching.start_queued(store.key(), &transfer.arrived, transfer.patience, now) {
            self.refetch(&head, RefetchReason::Missing, now);
        }
    }

    /// Asks for blocks that should be there and bring chunks others name. They may still come as they were sent, so
    /// they are not among the missing ones.
    pub(super) fn request_awaited(&mut self, now: Now) {
        let Self { fetching, parked, transfer, .. } = self;
        let seqs = fetching.overdue_blocks(now, transfer.patience, MAX_RANGES, |seq| {
            parked.contains(seq) || transfer.refetches.contains(seq)
        });
        if !seqs.is_empty() {
            self.stats.refetched += seqs.len() as u64;
            transfer.refetch_unsure(seqs);
        }
    }

    /// Takes the peer's question for what is in the store.
    pub(super) fn take_probe(&mut self, probe: Probe) {
        self.store.ask(self.fetching.reads.number(), probe);
    }

    /// Takes requested chunks. Chunks of a complete block are dropped, and so are those unlike their header: they are
    /// requested again.
    pub(super) fn take_chunks(&mut self, chunks: &Chunks<'_>, now: Now) {
        self.now = now;
        let Some(len) = self.fetching.len_of(chunks.seq, &chunks.indexes) else { return };
        let mut plain = Vec::new();
        match chunks.entropy {
            None => plain.extend_from_slice(chunks.bytes),
            Some(kind) => {
                if !self.entropy.decompress(kind, Mode::Alone, chunks.bytes, len, &mut plain) {
                    return;
                }
            }
        }
        if plain.len() == len
            && let Some(fetch) = self.fetching.handle_chunks(chunks.seq, &chunks.indexes, plain.into(), now)
        {
            self.place_fetched(fetch, now);
        }
        self.fetch_queued(now);
    }

    /// Goes on with a block with all its chunks.
    pub(super) fn place_fetched(&mut self, fetch: Fetch, now: Now) {
        let Fetch { head, copies, literals, entries, chunks, .. } = fetch;
        let named =
            entries.iter().zip(chunks).filter_map(|(entry, chunk)| Some((entry.at, chunk?))).collect();
        self.place(head, &Pieces { copies: &copies, literals: &literals, named }, now);
    }

    /// What became of named chunks.
    pub(super) fn chunk_stats(&self) -> ChunkStats {
        let counts = &self.fetching.counts;
        let (path_bytes_per_s, path_wait) = self.fetching.path_now(self.now);
        ChunkStats {
            names: counts.names,
            hits: counts.hits,
            waited: counts.waited,
            absent: counts.absent,
            failed: counts.failed,
            busy: counts.busy,
            shed: counts.shed,
            late: counts.late,
            requested_bytes: counts.requested_bytes,
            pending_bytes: self.fetching.asked_bytes,
            path_bytes_per_s,
            path_wait,
            put: self.store.put_count(),
            not_put: self.store.not_put_count(),
        }
    }
}
