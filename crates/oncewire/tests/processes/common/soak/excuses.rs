//! The excuses from current faults.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A fault's effect on flows beside delays and refusals of new ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Harm {
    /// Nothing.
    None,
    /// It may end those without a link.
    EndsDirect,
    /// It may end all.
    EndsAll,
}

/// Times of faults.
#[derive(Default)]
pub(super) struct Excuses {
    windows: Mutex<Vec<Window>>,
}

struct Window {
    harm: Harm,
    from: Instant,
    to: Option<Instant>,
}

impl Excuses {
    /// A fault begins.
    pub(super) fn begin(&self, harm: Harm) {
        self.windows.lock().unwrap().push(Window { harm, from: Instant::now(), to: None });
    }

    /// It has ended, and flows cross the link again.
    pub(super) fn end(&self) {
        if let Some(window) = self.windows.lock().unwrap().last_mut() {
            window.to = Some(Instant::now() + SETTLING);
        }
    }

    /// Whether a fault since `from` may have ended a flow.
    pub(super) fn ended(&self, from: Instant, direct: bool) -> bool {
        let least = if direct { Harm::EndsDirect } else { Harm::EndsAll };
        self.any(from, |window| window.harm >= least)
    }

    /// Whether the link was away since `from`, so flows could be refused.
    pub(super) fn away(&self, from: Instant) -> bool {
        self.any(from, |_| true)
    }

    /// How long the link was away since `from`.
    pub(super) fn hampered(&self, from: Instant) -> Duration {
        let now = Instant::now();
        let within = |window: &Window| {
            window.to.map_or(now, |to| to.min(now)).saturating_duration_since(window.from.max(from))
        };
        self.windows.lock().unwrap().iter().map(within).sum()
    }

    fn any(&self, from: Instant, test: impl Fn(&Window) -> bool) -> bool {
        let since = |window: &Window| window.to.is_none_or(|to| to >= from);
        self.windows.lock().unwrap().iter().any(|window| since(window) && test(window))
    }
}

/// Flows under way at the link's return may still be told of the outage.
const SETTLING: Duration = Duration::from_secs(2);
