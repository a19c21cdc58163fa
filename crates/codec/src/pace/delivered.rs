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

/// Plain bytes, and the nanoseconds that they took; what is older counts less.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    plain: f64,
    time: f64,
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
    }

    /// Returns the plain bytes a nanosecond once enough was seen.
    pub(super) fn rate(&self) -> Option<f64> {
        self.early_rate().filter(|_| self.time >= ENOUGH_NS)
    }

    /// Returns the same as soon as anything was seen, when it may be far off.
    pub(super) fn early_rate(&self) -> Option<f64> {
        (self.time > 0.0).then_some(self.plain / self.time)
    }
}

const WINDOW_NS: f64 = 3e9;
/// Under other load a rate swings by a third from one half of a second to the next.
const ENOUGH_NS: f64 = 0.9e9;
