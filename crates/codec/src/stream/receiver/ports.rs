//! The log outliving the process, and the side of the chunk store.

use super::Receiver;
use crate::Now;
use crate::contract::{DecoderLog, LogWrite, SavedLog, StorePort, StoreReply, StoreRequest, StoreState};
use crate::wanax::path::{Demand, PathRate};
use crate::wire::LogClaim;

impl DecoderLog for Receiver {
    fn set_limit(&mut self, limit: u64) {
        self.log.set_limit(limit);
        self.drop_given_up();
    }

    fn clear_log(&mut self) {
        self.log.clear();
        self.drop_given_up();
    }

    fn release_log(&mut self) -> bool {
        let quiet = self.parked.is_empty() && self.transfer.refetches.is_empty() && self.fetching.is_empty();
        if quiet {
            self.log.release();
        }
        quiet
    }

    fn restore_log(&mut self, log: Option<SavedLog>, now: Now) {
        self.now = now;
        if self.log.take_back(log) {
            self.drop_given_up();
            self.parked.handle_written(&(0..u64::MAX));
            self.wake_parked(now);
        }
    }

    fn poll_log_write(&mut self) -> Option<LogWrite> {
        self.log.poll_write()
    }

    fn log_piece(&self, from: u64) -> Option<LogWrite> {
        self.log.piece(from)
    }

    fn claim(&self) -> Option<LogClaim> {
        self.log.claim()
    }
}

impl StorePort for Receiver {
    fn handle_store(&mut self, reply: StoreReply, now: Now) {
        self.now = now;
        if self.store.handle_reply(&reply) {
            return;
        }
        if let Some(fetch) = self.fetching.handle_store(reply, now) {
            self.place_fetched(fetch, now);
        }
        self.fetch_queued(now);
    }

    fn handle_store_wait(&mut self, ticket: u64, time: Now, now: Now) {
        self.fetching.handle_wait(ticket, now + time);
    }

    fn handle_store_state(&mut self, state: StoreState, now: Now) {
        self.now = now;
        self.fetching.handle_state(state, now);
        self.store.handle_state(state, now);
    }

    fn poll_chunk_store(&mut self) -> Option<StoreRequest> {
        let Self { store, fetching, .. } = self;
        // The peer asks for what is there without the blocks it sends behind its question.
        store.poll_peek().or_else(|| store.poll_put()).or_else(|| fetching.poll_request())
    }

    fn chunks_pending(&self) -> u64 {
        self.fetching.asked_bytes
    }

    fn chunks_due(&self, now: Now) -> Option<Now> {
        self.fetching.due_in(now)
    }

    fn demand(&self, now: Now) -> Demand {
        self.fetching.demand(now)
    }

    fn handle_path(&mut self, round_trip: Now, rate: PathRate) {
        self.fetching.set_path(round_trip, rate);
    }
}
