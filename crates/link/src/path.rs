//! The path from the peer: its rate, by which chunks are asked for over the network.

use oncewire_codec::Now;
use oncewire_codec::contract::StorePort;
use oncewire_codec::wanax::path::PathEstimate;

use crate::arrivals::Arrivals;
use crate::config::LinkConfig;

/// What arrives, and the estimate of the path's rate.
#[derive(Debug)]
pub(crate) struct PathMeter {
    /// Whether anything is asked for by it: there is a store, and its load is shed.
    is_used: bool,
    estimate: PathEstimate,
    arrivals: Arrivals,
}

impl PathMeter {
    /// Starts without an estimate.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let is_used = config.store.is_some() && config.shed;
        Self { is_used, estimate: PathEstimate::default(), arrivals: Arrivals::default() }
    }

    /// Counts bytes that arrived, and tells the store's side of the decoder.
    pub(crate) fn handle_arrived(
        &mut self,
        bytes: u64,
        round_trip: Now,
        store: Option<&mut dyn StorePort>,
        now: Now,
    ) {
        if !self.is_used || bytes == 0 {
            return;
        }
        self.arrivals.handle(bytes, now);
        if let Some(store) = store {
            self.estimate.handle_arrived(bytes, round_trip, store.demand(now), now);
            store.handle_path(round_trip, self.estimate.rate());
        }
    }

    /// Whether less than half of the known rate came of late: then a queue is elsewhere than on the line.
    pub(crate) fn has_room(&mut self, now: Now) -> bool {
        self.arrivals.have_room(self.estimate.rate().known, now)
    }
}
