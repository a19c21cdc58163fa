//! Work that a peer makes, against what it sent and what came of that.
//!
//! A frame of fifty bytes may be half a megabyte of tokens and a block that is wrong in the end. That is no breach of the
//! protocol, but beyond what an honest peer makes it is waited for, in proportion, before more is read of its lanes.

/// What is left after [`Link::handle_some_input`](crate::Link::handle_some_input).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether frames may be left: it was enough for one turn.
    pub more: bool,
    /// Steps of work, each of some tens of nanoseconds, that were out of proportion; the lane is to wait for several times as
    /// long as they took.
    pub excess: u64,
}

/// The account of a peer.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    /// What had been done when it was last looked at.
    work: u64,
    delivered: u64,
    owed: u64,
}

impl Toll {
    /// A turn ends after so many steps: some milliseconds.
    pub(crate) const WORK_OF_A_TURN: u64 = 128 << 10;

    /// Notes plain bytes that were rebuilt and are right.
    pub(crate) fn note_delivered(&mut self, bytes: usize) {
        self.delivered += bytes as u64;
    }

    /// Takes the steps that are out of proportion, once they are worth waiting for: `work` was done in all, and so many bytes
    /// were taken since the last time.
    pub(crate) fn take_excess(&mut self, work: u64, bytes: usize) -> u64 {
        let free = bytes as u64 * STEPS_OF_A_BYTE + std::mem::take(&mut self.delivered) / BYTES_OF_A_STEP;
        let done = work.saturating_sub(std::mem::replace(&mut self.work, work));
        self.owed = (self.owed + done).saturating_sub(free);
        if self.owed < LEAST_EXCESS { 0 } else { std::mem::take(&mut self.owed) }
    }
}

/// Steps that each byte on the link may take: a copy takes three bytes without the entropy stage, and a look or two.
const STEPS_OF_A_BYTE: u64 = 16;
/// Plain bytes of blocks that are right are another free step for each so many: to decompress and rebuild them takes as much.
const BYTES_OF_A_STEP: u64 = 16;
/// Less is not waited for by itself.
const LEAST_EXCESS: u64 = 16 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_in_proportion_is_free_and_the_rest_adds_up() {
        let mut toll = Toll::default();
        let mut work = 0;
        let mut turn = |steps, bytes, delivered| {
            work += steps;
            toll.note_delivered(delivered);
            toll.take_excess(work, bytes)
        };
        assert_eq!(turn(16 * 65_536, 65_536, 0), 0);
        assert_eq!(turn(4096, 0, 65_536), 0, "a repeat of a block");
        assert_eq!(turn(0, 65_536, 1 << 20), 0);
        assert_eq!(turn(40_000, 0, 0), 40_000, "what was free before is not kept");
        assert_eq!([turn(10_000, 10, 0), turn(10_000, 10, 0), turn(10, 0, 0)], [0, 19_680, 0]);
    }
}
