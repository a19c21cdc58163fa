//! What came of a rung, whatever was expected of it.

use super::{Load, nanos};

/// What was delivered at the rung in use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Delivered {
    all: Sum,
    /// Of that: while there was always more to be delivered, so that the rung is what limits it.
    full: Sum,
    /// All since others want the processors.
    starved: Sum,
    /// Whether a load was passed over: the first behind a change is in part of the rung before.
    begun: bool,
}

/// Plain bytes, the nanoseconds that they took, and those of which lanes had bytes to send or waited for their sockets;
/// what is older counts less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    plain: f64,
    time: f64,
    active: f64,
    blocked: f64,
}

impl Delivered {
    /// Takes what a tick showed.
    pub(super) fn take(&mut self, load: &Load) {
        if std::mem::replace(&mut self.begun, true) {
            self.all.take(load);
            if load.is_full() {
                self.full.take(load);
            }
            if !load.is_starved() {
                self.starved = Sum::default();
            } else {
                self.starved.take(load);
            }
        }
    }

    /// All of it: the rung delivers so much at least.
    pub(super) fn all(&self) -> Sum {
        self.all
    }

    /// What the rung delivers at most.
    pub(super) fn full(&self) -> Sum {
        self.full
    }

    /// What it delivers since others want the processors.
    pub(super) fn starved(&self) -> Sum {
        self.starved
    }
}

impl Sum {
    fn take(&mut self, load: &Load) {
        let span = nanos(load.span);
        let kept = (1.0 - span / WINDOW_NS).max(0.0);
        self.plain = kept * self.plain + load.plain as f64;
        self.time = kept * self.time + span;
        self.active = kept * self.active + nanos(load.active);
        self.blocked = kept * self.blocked + nanos(load.blocked);
    }

    /// Returns the plain bytes a nanosecond once enough was seen.
    pub(super) fn rate(&self) -> Option<f64> {
        self.early_rate().filter(|_| self.time >= ENOUGH_NS)
    }

    /// Returns the same sooner, when it may be far off.
    pub(super) fn early_rate(&self) -> Option<f64> {
        (self.time >= EARLY_NS).then_some(self.plain / self.time)
    }

    /// Returns for which part of the time lanes waited for their sockets, of that for which they had bytes to send.
    pub(super) fn waited(&self) -> f64 {
        self.blocked / self.active.max(1.0)
    }
}

const WINDOW_NS: f64 = 3e9;
/// Under other load a rate swings by a third from one half of a second to the next.
const ENOUGH_NS: f64 = 0.9e9;
/// Two loads: one alone may be a tick in which the scheduler gave nothing.
const EARLY_NS: f64 = 0.35e9;
