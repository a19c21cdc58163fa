//! Delivered bytes at the level in use.

use super::Load;
use crate::Now;

/// Deliveries at the level in use; older ones count less.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Delivered {
    plain: f64,
    new: f64,
    seconds: f64,
    /// Whether a load was passed over: the first behind a change is in part of the level before.
    has_begun: bool,
}

/// A rate, and the content it was seen with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rate {
    /// Plain bytes a second.
    plain: f64,
    /// The part of them that was new.
    new: f64,
}

impl Delivered {
    pub(crate) fn take(&mut self, load: &Load) {
        if !std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let seconds = load.span.as_secs_f64();
        let kept = (1.0 - seconds / WINDOW.as_secs_f64()).max(0.0);
        self.plain = kept * self.plain + load.plain as f64;
        self.new = kept * self.new + load.new as f64;
        self.seconds = kept * self.seconds + seconds;
    }

    /// Returns the rate once enough was seen.
    pub(crate) fn rate(&self) -> Option<Rate> {
        self.rate_after(ENOUGH)
    }

    /// Returns the same sooner, when it may be far off.
    pub(crate) fn early_rate(&self) -> Option<Rate> {
        self.rate_after(EARLY)
    }

    fn rate_after(&self, time: Now) -> Option<Rate> {
        let enough = self.seconds >= time.as_secs_f64();
        enough.then(|| Rate { plain: self.plain / self.seconds, new: self.new / self.plain.max(1.0) })
    }

    /// Returns the part of the bytes that is new; all of them before anything was seen.
    pub(crate) fn new_share(&self) -> f64 {
        if self.plain > 0.0 { self.new / self.plain } else { 1.0 }
    }
}

impl Rate {
    /// Returns how many times the rate of `other` this is; `None` if the content is another.
    pub(crate) fn times(&self, other: &Self) -> Option<f64> {
        ((self.new - other.new).abs() <= SAME_CONTENT).then(|| self.plain / other.plain.max(1.0))
    }
}

const WINDOW: Now = Now::from_secs(3);
/// Where others want the processors a rate swings by a third from one half of a second to the next.
const ENOUGH: Now = Now::from_millis(750);
/// Two loads: one alone may be a tick in which the scheduler gave nothing.
const EARLY: Now = Now::from_millis(350);
/// Content is the same while the new part of it differs by less.
const SAME_CONTENT: f64 = 0.25;
