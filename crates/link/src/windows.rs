//! Windows of all flows for the peer's bytes: their start, use and growth.

use oncewire_codec::Now;

use crate::budget::{Budget, divided};
use crate::config::LinkConfig;
use crate::credit::{Window, WindowLimits};
use crate::flow::Inbound;
use crate::learned::LearnedWindow;

/// The memory of all flows, and the rules for their windows.
#[derive(Debug)]
pub(crate) struct Windows {
    pub(crate) budget: Budget,
    learned: LearnedWindow,
    /// The first credit of our hello.
    initial: u64,
    /// The largest window.
    max: u64,
}

/// The state of the link for one use of a window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// Memory of unacknowledged items.
    pub(crate) kept: u64,
    /// Whether blocks wait for chunks, and the line is about to stand still.
    pub(crate) line_ends: bool,
    pub(crate) round_trip: Now,
    pub(crate) now: Now,
}

/// The window of a flow after an eighth of the first one: each window would else be used up before the next grant, as
/// long as a lane doubles its bytes in each round trip.
const EARLY_WINDOW: u64 = 2 << 20;

impl Windows {
    /// Starts without a flow; `beside` is the memory for unacknowledged bytes beside the budget.
    pub(crate) fn new(config: &LinkConfig, beside: u64) -> Self {
        let mut budget = Budget::new(config.flow_memory);
        budget.set_beside(beside);
        let (initial, max) = (config.initial_credit, config.max_credit);
        Self { budget, learned: LearnedWindow::default(), initial, max }
    }

    /// Whether the peer has sent more than there is memory for.
    pub(crate) fn is_overrun(&self) -> bool {
        self.budget.is_overrun(self.initial)
    }

    /// Makes the window of a new flow with a divided first credit: as large as others lately needed, and at least the
    /// whole first credit, while there is memory.
    pub(crate) fn open(&mut self, shift: u8, kept: u64, now: Now) -> Window {
        let initial = divided(self.initial, shift);
        let learned = self.learned.bytes(now);
        let whole = self.fitting(self.initial, initial, kept);
        let window = Window::new(initial, self.fitting(learned, whole, kept), now);
        self.budget.grow(window.growth());
        window
    }

    /// Takes back the memory of a flow's window.
    pub(crate) fn close(&mut self, window: &Window) {
        self.budget.give_back(window.growth());
    }

    /// Notes that our application took bytes of a flow; returns whether the peer is to be granted more.
    pub(crate) fn consume(&mut self, flow: &mut Inbound, bytes: u64, moment: Moment) -> bool {
        let Moment { kept, line_ends, round_trip, now } = moment;
        let before = flow.window.growth();
        let limits = WindowLimits { max: self.max, spare: self.budget.spare(kept), line_ends };
        let waits = flow.waits(bytes);
        let grants = flow.window.consume(bytes, waits, &limits, round_trip, &mut self.learned, now);
        let begins = flow.window.begins();
        flow.count();
        self.budget.grow(flow.window.growth() - before);
        grants | (begins && self.widen_early(&mut flow.window, waits, kept))
    }

    /// Widens the window of a flow that begins, if its reader waits; returns whether the peer is to be told. It is told
    /// of a window extended at the open too: only now it certainly knows the flow.
    fn widen_early(&mut self, window: &mut Window, waits: bool, kept: u64) -> bool {
        let present = window.size();
        let size = if waits { self.fitting(EARLY_WINDOW, present, kept) } else { present };
        window.widen(size);
        self.budget.grow(size - present);
        window.is_extended()
    }

    /// Returns `size`, or the present size of a flow that begins if that is more, or if `size` would not leave most of the
    /// memory to growing flows.
    fn fitting(&self, size: u64, present: u64, kept: u64) -> u64 {
        let size = size.min(self.max).max(present);
        if self.budget.fits_beginners(size - present, kept) { size } else { present }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use oncewire_codec::wire::FlowId;

    use super::*;

    const FIRST: u64 = 64 << 10;

    fn windows(flow_memory: u64) -> Windows {
        let config = LinkConfig { initial_credit: FIRST, flow_memory, ..LinkConfig::default() };
        Windows::new(&config, 0)
    }

    fn take(windows: &mut Windows, flow: &mut Inbound, bytes: u64) -> bool {
        let offset = flow.next();
        flow.insert(FlowId(1), offset, Bytes::from(vec![7; bytes as usize]), false).unwrap();
        while flow.pop().is_some() {}
        let (round_trip, now) = (Now::from_millis(50), Now::from_secs(1));
        windows.consume(flow, bytes, Moment { kept: 0, line_ends: false, round_trip, now })
    }

    #[test]
    fn window_widens_early_for_a_waiting_reader() {
        let mut windows = windows(256 << 20);
        let window = windows.open(0, 0, Now::ZERO);
        let mut flow = Inbound::new(window, &windows.budget);
        assert!(!take(&mut windows, &mut flow, FIRST / 8 - 1));
        assert!(take(&mut windows, &mut flow, 1));
        assert_eq!(flow.window.size(), EARLY_WINDOW);
    }

    #[test]
    fn full_memory_leaves_windows_as_they_are() {
        let mut windows = windows(1 << 20);
        let window = windows.open(0, 0, Now::ZERO);
        let mut flow = Inbound::new(window, &windows.budget);
        assert!(!take(&mut windows, &mut flow, FIRST / 8));
        assert_eq!(flow.window.size(), FIRST);
    }

    #[test]
    fn closed_windows_give_their_memory_back() {
        let mut windows = windows(256 << 20);
        let spare = windows.budget.spare(0);
        let window = windows.open(3, 0, Now::ZERO);
        assert_eq!((window.size(), window.growth()), (FIRST, FIRST - FIRST / 8));
        assert!(windows.budget.spare(0) < spare);
        windows.close(&window);
        assert_eq!(windows.budget.spare(0), spare);
    }
}
