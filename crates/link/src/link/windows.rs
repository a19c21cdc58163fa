//! The peer's windows: their beginning, use and growth.

use oncewire_codec::Now;
use oncewire_codec::wire::FlowId;

use super::Link;
use crate::budget::divided;
use crate::credit::{Window, WindowLimits};

/// The window of a flow after an eighth of the first one was taken: otherwise each window would be used up before the
/// next grant, as long as a lane doubles its rate in each round trip.
const EARLY_WINDOW: u64 = 2 << 20;

impl Link {
    /// Sets the most bytes of all flows together, in place of
    /// [`LinkConfig::flow_memory`](crate::LinkConfig::flow_memory).
    pub fn set_flow_memory(&mut self, bytes: u64) {
        self.budget.set_memory(bytes);
    }

    /// Our application took bytes: the peer may send more.
    pub fn handle_consumed(&mut self, id: FlowId, bytes: usize, now: Now) {
        let round_trip = self.round_trip.smoothed().unwrap_or(Now::from_millis(100));
        let spare = self.budget.spare(self.sender.load().kept_bytes);
        let line_ends = self.line_ends(now);
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) else { return };
        let before = flow.window.growth();
        let limits = WindowLimits { max: self.config.max_credit, spare, line_ends };
        let waits = flow.waits(bytes as u64);
        let mut grants =
            flow.window.consume(bytes as u64, waits, &limits, round_trip, &mut self.learned_window, now);
        let begins = flow.window.begins();
        flow.count_received();
        self.budget.grow(flow.window.growth() - before);
        if begins {
            grants |= self.widen_early(id, waits);
        }
        if grants && let Some(flow) = self.flows.get_mut(&id) {
            flow.credit_due = true;
            self.credit_due.insert(id);
            self.wake_control();
        }
    }

    /// Whether blocks wait for chunks, and the line has brought the requested ones by the time, or little later, at
    /// which names granted now could have come and led to requests.
    fn line_ends(&mut self, now: Now) -> bool {
        let due = self.receiver.store().and_then(|store| store.chunks_due(now));
        let Some(due) = due else { return false };
        // A queue is the line's, or one on the way to the peer.
        let is_elsewhere = self.arrivals.have_room(self.path.rate().known, now);
        self.round_trip.fits_two_more(due, is_elsewhere)
    }

    /// Widens the window of a new flow, if its reader waits; returns whether the peer is to be told. It is also if it
    /// was done with the open: only now is the peer certain to know of the flow.
    fn widen_early(&mut self, id: FlowId, waits: bool) -> bool {
        let Some(flow) = self.flows.get(&id) else { return false };
        let present = flow.window.size();
        let size = if waits { self.fitting(EARLY_WINDOW, present) } else { present };
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        flow.window.widen(size);
        self.budget.grow(size - present);
        flow.window.is_extended()
    }

    /// Makes the window of a new flow with a divided first credit: as large as others lately needed, and at least the
    /// undivided one, while there is memory for it.
    pub(super) fn new_window(&mut self, shift: u8, now: Now) -> Window {
        let whole = self.config.initial_credit;
        let initial = divided(whole, shift);
        let learned = self.learned_window.bytes(now);
        let size = self.fitting(learned, self.fitting(whole, initial));
        let window = Window::new(initial, size, now);
        self.budget.grow(window.growth());
        window
    }

    /// Tells the peer the window of a flow it has opened with a divided first credit.
    pub(super) fn extend_divided(&mut self, id: FlowId, shift: u8) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| shift > 0 && flow.window.is_extended()) {
            flow.credit_due = true;
            self.credit_due.insert(id);
            self.wake_control();
        }
    }

    /// Returns `size`, or a new flow's present window, if that is more, or `size` would not leave most of the memory
    /// to flows in need of growth.
    fn fitting(&self, size: u64, present: u64) -> u64 {
        let size = size.min(self.config.max_credit).max(present);
        let fits = self.budget.fits_beginners(size - present, self.sender.load().kept_bytes);
        if fits { size } else { present }
    }
}
