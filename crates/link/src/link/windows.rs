//! What the peer may send: windows begin, are used, and grow.

use oncewire_codec::Now;
use oncewire_codec::wire::FlowId;

use super::Link;
use crate::credit::{Window, WindowLimits};

/// The window of a flow of which an eighth of the first one was taken: each window would else be used up before the next
/// is granted, as long as a lane doubles what it sends in each round trip.
const EARLY_WINDOW: u64 = 2 << 20;

impl Link {
    /// Our application took bytes: the peer may send more.
    pub fn handle_consumed(&mut self, id: FlowId, bytes: usize, now: Now) {
        let round_trip = self.round_trip.smoothed().unwrap_or(Now::from_millis(100));
        let spare = self.config.flow_memory.saturating_sub(self.window_growth);
        let line_ends = self.line_ends(now);
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) else { return };
        let before = flow.window.growth();
        let limits = WindowLimits { max: self.config.max_credit, spare, line_ends };
        let waits = flow.waits(bytes as u64);
        let mut grants =
            flow.window.consume(bytes as u64, waits, &limits, round_trip, &mut self.learned_window, now);
        let begins = flow.window.begins();
        self.window_growth += flow.window.growth() - before;
        if begins {
            grants |= self.widen_early(id, waits);
        }
        if grants && let Some(flow) = self.flows.get_mut(&id) {
            flow.credit_due = true;
            self.credit_due.insert(id);
            self.wake_control();
        }
    }

    /// Whether blocks wait for chunks, and the line has brought what of these was asked for by the time at which names that
    /// are granted now could have come and been asked for, or little later.
    fn line_ends(&mut self, now: Now) -> bool {
        let Some(due) = self.receiver.chunks_due(now) else { return false };
        // A queue is the line's, or one on the way to the peer.
        let is_elsewhere = self.arrivals.have_room(self.path.rate().known, now);
        self.round_trip.fits_two_more(due, is_elsewhere)
    }

    /// Widens the window of a flow that begins, if its reader waits; returns whether the peer is to be told. It is also if
    /// that was done with the open: only now is it certain that the peer knows of the flow.
    fn widen_early(&mut self, id: FlowId, waits: bool) -> bool {
        let Some(flow) = self.flows.get(&id) else { return false };
        let present = self.config.initial_credit + flow.window.growth();
        let size = if waits { self.fitting(EARLY_WINDOW, present) } else { present };
        let Some(flow) = self.flows.get_mut(&id) else { return false };
        flow.window.widen(size);
        self.window_growth += size - present;
        flow.window.is_extended()
    }

    /// Makes the window of a new flow: as large as others lately needed.
    pub(super) fn new_window(&mut self, now: Now) -> Window {
        let initial = self.config.initial_credit;
        let learned = self.learned_window.bytes(now);
        let window = Window::new(initial, self.fitting(learned, initial), now);
        self.window_growth += window.growth();
        window
    }

    /// Returns `size`, or what a flow that begins has at present, if that is more, or `size` would not leave most of the
    /// memory to flows that have to grow.
    fn fitting(&self, size: u64, present: u64) -> u64 {
        let size = size.min(self.config.max_credit).max(present);
        let fits = self.window_growth + size - present <= self.config.flow_memory / 4;
        if fits { size } else { present }
    }

    /// Notes how far the peer has sent a flow.
    pub(super) fn handle_sent(&mut self, id: FlowId, end: u64) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) {
            let waits = flow.waits(0);
            flow.window.handle_sent(end, waits);
        }
    }
}
