//! Work of the sending end of a link.

use crate::Now;

/// What the sending end of a link did in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// How long it was.
    pub span: Now,
    /// Of that: some lane had bytes to send.
    pub active: Now,
    /// Of that: every lane with bytes to send waited for its socket.
    pub blocked: Now,
    /// Idle share of all processors, in thousandths; 0 if unknown.
    pub idle_permille: u32,
    /// Plain bytes encoded.
    pub plain: u64,
    /// Of that, on coded flows: bytes neither copied nor named.
    pub new: u64,
}

impl Load {
    /// Whether next to nothing was sent.
    pub(crate) fn is_quiet(&self) -> bool {
        self.plain < LEAST_BYTES
    }

    /// Whether traffic waits for this end and for nothing else.
    pub(crate) fn is_held_up(&self) -> bool {
        self.active * 5 >= self.span * 4 && self.blocked * 8 <= self.active
    }

    /// Whether this end has time left: lanes wait for the path, or have nothing to send.
    pub(crate) fn has_time(&self) -> bool {
        self.blocked * 4 >= self.active || self.active * 2 <= self.span
    }

    /// Whether all processors are in use.
    pub(crate) fn is_starved(&self) -> bool {
        self.idle_permille <= STARVED_PERMILLE
    }
}

/// A load with fewer plain bytes shows nothing.
const LEAST_BYTES: u64 = 16 << 10;
/// Processors of which less is idle are all in use.
const STARVED_PERMILLE: u32 = 50;
