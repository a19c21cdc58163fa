//! One transfer as both ends know it.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::excuses::Excuses;
use super::plan::Side;
use super::stream::End;

/// The state of a transfer during its run, and after.
pub(super) struct Transfer {
    pub(super) start: Instant,
    state: Mutex<State>,
}

struct State {
    /// When a byte was last taken or given at either end.
    moved: Instant,
    /// Whether it came to the origin, and if so whether by the link.
    arrived: Option<Path>,
    ends: [Option<End>; 2],
}

/// A transfer's way to the origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Path {
    /// From the hub.
    Link,
    /// From the client, or from the branch by itself.
    Direct,
}

/// The meaning of silence.
pub(super) enum Silence {
    /// Nothing yet.
    Patience,
    /// The other end may be gone without a word to us.
    Lost,
    /// Nothing explains it.
    Stuck(Duration),
}

impl Transfer {
    /// A new transfer.
    pub(super) fn new() -> Self {
        let start = Instant::now();
        let state = State { moved: start, arrived: None, ends: [None, None] };
        Self { start, state: Mutex::new(state) }
    }

    /// It has come to the origin.
    pub(super) fn arrive(&self, path: Path) {
        self.state.lock().unwrap().arrived = Some(path);
    }

    /// How it came to the origin, if it did.
    pub(super) fn arrived(&self) -> Option<Path> {
        self.state.lock().unwrap().arrived
    }

    /// A byte was taken or given.
    pub(super) fn moves(&self) {
        self.state.lock().unwrap().moved = Instant::now();
    }

    /// One end is done with it.
    pub(super) fn end(&self, side: Side, end: End) {
        self.state.lock().unwrap().ends[side as usize] = Some(end);
    }

    /// How one end saw it end.
    pub(super) fn ended(&self, side: Side) -> Option<End> {
        self.state.lock().unwrap().ends[side as usize].clone()
    }

    /// Returns the meaning of silence for `side`.
    ///
    /// TCP waits about as long again as an outage. The end of a direct connection may be lost on the line, without a
    /// repeat; on a link it never is.
    pub(super) fn silence(&self, side: Side, excuses: &Excuses) -> Silence {
        let (moved, direct, other_is_over) = {
            let state = self.state.lock().unwrap();
            let direct = state.arrived == Some(Path::Direct);
            (state.moved, direct, state.ends[side.other() as usize].is_some())
        };
        let held_up = excuses.hampered(moved) * 2;
        let silent = moved.elapsed().saturating_sub(held_up);
        if direct && silent > FORLORN && (other_is_over || excuses.ended(self.start, true)) {
            return Silence::Lost;
        }
        if silent > HANG { Silence::Stuck(moved.elapsed()) } else { Silence::Patience }
    }
}

/// Nothing may stand still longer at both ends, not counting faults.
pub(super) const HANG: Duration = Duration::from_secs(60);
/// After so long, a direct connection with a possibly vanished other end is given up.
const FORLORN: Duration = Duration::from_secs(10);
