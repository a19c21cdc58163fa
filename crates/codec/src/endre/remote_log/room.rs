//! How much of the log is in use, how much of it may be in flight, and how far back blocks refer: rules 2 and 3 of the
//! [cache](crate::log).

use super::{Content, RemoteLog};
use crate::endre::matcher::lasting;
use crate::log::LogOffset;
use crate::wire::{LogHeld, Range64};

/// The bound on log bytes that are not acknowledged, by the size of the log.
#[derive(Clone, Copy)]
pub(crate) struct Bound {
    capacity: u64,
    /// The bound of the whole log: as set, and no more than half of the log both ends agreed on, or a quarter of it.
    whole: u64,
}

impl Bound {
    /// Of a log of `limit` bytes it is a quarter, or the share it is of the whole log if that is more.
    pub(crate) fn of(self, limit: u64) -> u64 {
        let Self { capacity, whole } = self;
        // A division for a bound set above a quarter only: it is asked for with each copy.
        let share = match whole > capacity / 4 {
            true => u128::from(whole) * u128::from(limit) / u128::from(capacity.max(1)),
            false => 0,
        };
        whole.min((limit / 4).max(share as u64))
    }
}

impl RemoteLog {
    /// Sets how many bytes of log this end has memory for.
    pub(crate) fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
        self.apply_limits();
    }

    /// Takes the receiver's report of the log it holds; an older one is passed over.
    pub(crate) fn handle_held(&mut self, held: LogHeld) {
        if held.serial <= self.held.serial {
            return;
        }
        self.held = held;
        if held.epoch == self.epoch {
            self.base = self.base.max(held.oldest.min(self.head));
        }
        self.apply_limits();
    }

    /// A new instance of the receiver has said nothing yet, and nothing is under way to it.
    pub(crate) fn forget_held(&mut self) {
        self.held = LogHeld::default();
        self.headroom.forget_ends();
        self.apply_limits();
    }

    pub(crate) fn apply_limits(&mut self) {
        let limit = self.limit();
        if let Content::Bytes(log) = &mut self.content {
            log.set_limit(limit);
            if self.released.is_none() {
                // More memory later does not bring back what went.
                self.base = self.base.max(log.oldest().0.min(self.head));
            }
        }
    }

    /// The bytes of log in use: *W* of the [rules](crate::log).
    pub(crate) fn limit(&self) -> u64 {
        let told = if self.held.serial > 0 { self.held.limit } else { u64::MAX };
        self.limit.min(told).min(self.capacity)
    }

    /// The bound on log bytes that are not acknowledged.
    fn max_in_flight(&self) -> u64 {
        self.bound().of(self.limit())
    }

    pub(crate) fn bound(&self) -> Bound {
        let (capacity, set) = (self.capacity, self.settings.max_in_flight);
        Bound { capacity, whole: set.unwrap_or(capacity / 4).min(capacity / 2) }
    }

    /// Takes note of what will be in flight with the next block, before it is encoded.
    pub(crate) fn note_next(&mut self, in_flight: u64) {
        let most = self.max_in_flight();
        self.headroom.note(in_flight, self.head, most);
    }

    /// Takes note of a sent block's sources, while blocks from `oldest` on are under way.
    pub(crate) fn note_sent(&mut self, seq: u64, sources: &[Range64], oldest: u64) {
        if let Some(lowest) = sources.iter().map(|source| source.start).min() {
            self.headroom.set_end(seq, lowest.saturating_add(self.limit()), oldest);
        }
    }

    /// Rule 2: whether a block may be remembered with which so much will be in flight, of blocks from `oldest` on.
    pub(crate) fn has_room(&self, in_flight: u64, len: u64, oldest: u64) -> bool {
        in_flight <= self.max_in_flight() && self.head + len <= self.headroom.end(oldest)
    }

    /// Rule 3: the first offset a block encoded at `from` may refer to.
    pub(crate) fn floor(&self, from: u64) -> u64 {
        from.saturating_sub(self.reach()).max(self.base.max(self.released.unwrap_or(0)))
    }

    /// How far back blocks refer into a full log.
    pub(crate) fn reach(&self) -> u64 {
        self.headroom.reach(self.limit(), self.max_in_flight())
    }

    /// What lies before it had better be remembered anew when it is found.
    pub(crate) fn lasting(&self) -> LogOffset {
        lasting(LogOffset(self.head), self.reach())
    }

    /// Lets small logs leave as small a part free for what is in flight as larger ones do.
    #[cfg(test)]
    pub(crate) fn set_least_in_flight(&mut self, bytes: u64) {
        self.headroom.set_least(bytes);
    }
}
