//! The shell's chunk store: requests to it, and its answers.

use oncewire_codec::Now;
use oncewire_codec::contract::{StoreReply, StoreRequest, StoreState};
use oncewire_codec::wanax::hints::{SavePosition, SavedPiece};

use super::Link;

impl Link {
    /// Takes the next request for the chunk store; there is none unless
    /// [`LinkConfig::store`](crate::LinkConfig::store) is set. To be drained after every other call and before
    /// [`Self::poll_transmit`]: blocks acknowledged there count as put.
    pub fn poll_chunk_store(&mut self) -> Option<StoreRequest> {
        self.receiver.store_mut().and_then(|store| store.poll_chunk_store())
    }

    /// Takes the outcome of a read.
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

    /// Takes the store's state, with every change: queue and service time decide on requests over the network
    /// instead, and the peer is told of the content.
    pub fn handle_store_state(&mut self, state: StoreState, now: Now) {
        if let Some(store) = self.receiver.store_mut() {
            store.handle_store_state(state, now);
        }
        if self.receiver.has_urgent_frame() {
            self.wake_control();
        }
    }

    /// Returns the bytes of outstanding chunk requests over the network; 0 while the link is down, since nothing
    /// comes, in spite of a possible resumption.
    pub fn chunks_pending(&self) -> u64 {
        self.receiver.store().filter(|_| self.is_up()).map_or(0, |store| store.chunks_pending())
    }

    /// Takes note of received bytes: the path's rate is the cost of requested chunks.
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

    /// Returns a piece of the knowledge of the peer's store; [`save_by`](oncewire_codec::wanax::hints::save_by) asks
    /// for all of them and makes the next process's [`NamesConfig::saved`](oncewire_codec::wanax::NamesConfig::saved)
    /// of them.
    pub fn save_hints(&self, at: SavePosition) -> Option<SavedPiece> {
        self.sender.names()?.save_hints(at)
    }
}
