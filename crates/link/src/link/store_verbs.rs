//! The chunk store, which the shell keeps: what it is asked for, and what it answers.

use oncewire_codec::Now;
use oncewire_codec::contract::{StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::hints::{SavePosition, SavedPiece};

use super::Link;

impl Link {
    /// Takes the next request for the chunk store; there is none unless [`LinkConfig::store`](crate::LinkConfig::store)
    /// is set. To be drained after every other call and before [`Self::poll_transmit`]: what is acknowledged there
    /// counts as put.
    pub fn poll_chunk_store(&mut self) -> Option<StoreRequest> {
        self.receiver.store_mut().and_then(|store| store.poll_chunk_store())
    }

    /// Takes what became of a read.
    pub fn handle_store(&mut self, reply: StoreReply, now: Now) {
        if let Some(store) = self.receiver.store_mut() {
            store.handle_store(reply, now);
        }
        self.take_deliveries(now);
        if self.receiver.has_urgent_frame() {
            self.wake_control();
        }
    }

    /// Takes note that a read may take so long from now on, and is answered in any case.
    pub fn handle_store_wait(&mut self, ticket: u64, time: Now, now: Now) {
        if let Some(store) = self.receiver.store_mut() {
            store.handle_store_wait(ticket, time, now);
        }
    }

    /// Takes how the store stands, with every change: by queue and service time it is decided what is asked for over
    /// the network instead, and the peer is told what is held.
    pub fn handle_store_state(&mut self, state: StoreState, now: Now) {
        if let Some(store) = self.receiver.store_mut() {
            store.handle_store_state(state, now);
        }
        if self.receiver.has_urgent_frame() {
            self.wake_control();
        }
    }

    /// Returns the bytes of chunks that were asked for over the network and have not come; 0 while the link is down, when
    /// nothing comes, however long it may yet resume.
    pub fn chunks_pending(&self) -> u64 {
        self.receiver.store().filter(|_| self.is_up()).map_or(0, |store| store.chunks_pending())
    }

    /// Takes note of bytes that arrived: what the path carries is what chunks cost that are asked for.
    pub(super) fn note_arrived(&mut self, bytes: u64, now: Now) {
        if self.config.store.is_none() || !self.config.shed || bytes == 0 {
            return;
        }
        self.arrivals.handle(bytes, now);
        let round_trip = self.round_trip.smoothed().unwrap_or_default();
        if let Some(store) = self.receiver.store_mut() {
            self.path.handle_arrived(bytes, round_trip, store.demand(now), now);
            store.handle_path(round_trip, self.path.rate());
        }
    }

    /// Returns a piece of what is known of the peer's store; [`save_by`](oncewire_codec::wanax::hints::save_by) asks for
    /// all of them and makes of them what the next process is given in
    /// [`NamesConfig::saved`](oncewire_codec::wanax::NamesConfig::saved).
    pub fn save_hints(&self, at: SavePosition) -> Option<SavedPiece> {
        self.sender.names()?.save_hints(at)
    }
}
