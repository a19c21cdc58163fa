//! What the peer may send: windows begin, are used, and grow.

use oncewire_codec::Now;
use oncewire_codec::wire::FlowId;

use super::Link;
use crate::credit::{Window, WindowLimits};

impl Link {
    /// Our application took bytes: the peer may send more.
    pub fn handle_consumed(&mut self, id: FlowId, bytes: usize, now: Now) {
        let round_trip = self.round_trip.smoothed().unwrap_or(Now::from_millis(100));
        let spare = self.config.flow_memory.saturating_sub(self.window_growth);
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) else { return };
        let before = flow.window.growth();
        let limits = WindowLimits { max: self.config.max_credit, spare };
        let waits = !flow.inbound.has_ready();
        if flow.window.consume(bytes as u64, waits, &limits, round_trip, &mut self.learned_window, now) {
            self.window_growth += flow.window.growth() - before;
            self.grant(id);
        }
    }

    /// Makes the window of a new flow: as large as others lately needed, as long as many flows that begin so leave most of
    /// the memory to those that have to grow.
    pub(super) fn new_window(&mut self, now: Now) -> Window {
        let initial = self.config.initial_credit;
        let size = self.learned_window.bytes(now).min(self.config.max_credit);
        let fits = self.window_growth + size.saturating_sub(initial) <= self.config.flow_memory / 4;
        let window = Window::new(initial, if fits { size } else { initial }, now);
        self.window_growth += window.growth();
        window
    }

    /// Notes how far the peer has sent a flow.
    pub(super) fn handle_sent(&mut self, id: FlowId, end: u64) {
        let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none()) else { return };
        let waits = !flow.inbound.has_ready();
        flow.window.handle_sent(end, waits);
        if flow.window.is_worth_first_grant(end) && flow.window.take_first_grant().is_some() {
            self.grant(id);
        }
    }

    fn grant(&mut self, id: FlowId) {
        if let Some(flow) = self.flows.get_mut(&id) {
            flow.credit_due = true;
            self.credit_due.insert(id);
            self.wake_control();
        }
    }
}
