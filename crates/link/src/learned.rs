//! The recently needed window of a link's flows. The next flow begins with it instead of finding out by itself, as
//! TCP caches a path's metrics.

use oncewire_codec::Now;

/// The largest window needed within the last ten to twenty minutes.
#[derive(Debug, Default)]
pub(crate) struct LearnedWindow {
    needed: u64,
    needed_before: u64,
    since: Now,
}

/// The largest initial window: many flows may begin at once, and growth beyond is quick.
const MOST: u64 = 4 << 20;

/// After this time a need is an old one, and after the same time again it is forgotten.
const LASTS: Now = Now::from_secs(600);

impl LearnedWindow {
    /// Notes a flow's use for a window of so many bytes.
    pub(crate) fn handle_needed(&mut self, bytes: u64, now: Now) {
        self.age(now);
        self.needed = self.needed.max(bytes);
    }

    /// Returns the bytes for a flow's first window; 0 if nothing is known.
    pub(crate) fn bytes(&mut self, now: Now) -> u64 {
        self.age(now);
        self.needed.max(self.needed_before).min(MOST)
    }

    fn age(&mut self, now: Now) {
        let age = now.saturating_sub(self.since);
        if age < LASTS {
            return;
        }
        let needed = std::mem::take(&mut self.needed);
        self.needed_before = if age < LASTS * 2 { needed } else { 0 };
        self.since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn largest_window_counts_for_a_while_up_to_its_limit() {
        let (mut window, start) = (LearnedWindow::default(), Now::from_secs(5000));
        assert_eq!(window.bytes(start), 0);
        window.handle_needed(1 << 20, start);
        window.handle_needed(1 << 19, start);
        assert_eq!(window.bytes(start), 1 << 20);
        assert_eq!(window.bytes(start + LASTS), 1 << 20);
        window.handle_needed(1 << 18, start + LASTS);
        assert_eq!(window.bytes(start + LASTS * 2), 1 << 18);
        assert_eq!(window.bytes(start + LASTS * 4), 0);
        window.handle_needed(1 << 30, start + LASTS * 4);
        assert_eq!(window.bytes(start + LASTS * 4), MOST);
    }
}
