//! A peer's toll: the work it causes, against its bytes and their result.
//!
//! A frame of fifty bytes may be half a megabyte of tokens and a wrong block in the end. It is no breach of the
//! protocol, but work beyond an honest peer's is waited for, in proportion, before more is read of its lanes.

/// The rest after [`Link::handle_some_input`](crate::Link::handle_some_input).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turn {
    /// Whether frames may be left: it was enough for one turn.
    pub more: bool,
    /// Steps of work out of proportion, each of some tens of nanoseconds; the lane is to wait for several times as
    /// long as they took.
    pub excess: u64,
}

/// The account of a peer.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    /// The work at the last look.
    work: u64,
    delivered: u64,
    owed: u64,
}

impl Toll {
    /// A turn ends after so many steps: some milliseconds.
    pub(crate) const WORK_OF_A_TURN: u64 = 128 << 10;

    /// Notes plain bytes of correctly rebuilt blocks.
    pub(crate) fn note_delivered(&mut self, bytes: usize) {
        self.delivered += bytes as u64;
    }

    /// Takes the steps out of proportion, once they are worth a wait: `work` was done in all, and so many bytes were
    /// taken since the last time.
    pub(crate) fn take_excess(&mut self, work: u64, bytes: usize) -> u64 {
        let free = bytes as u64 * STEPS_OF_A_BYTE + std::mem::take(&mut self.delivered) / BYTES_OF_A_STEP;
        let done = work.saturating_sub(std::mem::replace(&mut self.work, work));
        self.owed = (self.owed + done).saturating_sub(free);
        if self.owed < LEAST_EXCESS { 0 } else { std::mem::take(&mut self.owed) }
    }
}

/// Steps free for each byte on the link: a copy takes three bytes without the entropy stage, and a look or two.
const STEPS_OF_A_BYTE: u64 = 16;
/// Plain bytes of correct blocks for another free step: decompressing and rebuilding them takes as much.
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
