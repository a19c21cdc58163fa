//! What the sending end of a link did in a moment.

use crate::Now;

/// What the sending end of a link did in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long it was.
    pub span: Now,
    /// Of that: some lane had bytes to send.
    pub active: Now,
    /// Of that: every lane that had bytes to send waited for its socket.
    pub blocked: Now,
    /// The CPU time of encoding.
    pub encoding: Now,
    /// The CPU time of writing what was encoded: enciphering, system calls.
    pub writing: Now,
    /// How much of all processors nobody used, in thousandths; 0 where that is unknown.
    pub idle_permille: u32,
    /// Plain bytes encoded.
    pub plain: u64,
    /// Wire bytes that came of them.
    pub wire: u64,
}

impl Load {
    /// The time for which this end was what held the bytes up.
    pub(super) fn working(&self) -> Now {
        self.active.saturating_sub(self.blocked)
    }

    pub(super) fn is_quiet(&self) -> bool {
        self.plain < LEAST_BYTES
    }

    /// Whether traffic waits for this end and for nothing else.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_full() && self.blocked * 8 <= self.active
    }

    /// Whether others use the processors: this end's work takes much longer than the CPU time that it needs.
    pub(super) fn is_starved(&self) -> bool {
        self.working() * 5 >= (self.encoding + self.writing) * 9
    }

    /// Whether traffic waits at all.
    pub(super) fn is_full(&self) -> bool {
        self.active * 5 >= self.span * 4
    }
}

/// A load with fewer plain bytes shows nothing.
const LEAST_BYTES: u64 = 16 << 10;
