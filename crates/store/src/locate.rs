//! Forecasts of the reads for chunks, without any read.

use crate::Store;
use crate::index::Class;

/// Whether a request brings other chunks into memory, too.
pub(crate) const fn brings_more(request: u64) -> bool {
    request & 1 == 1
}

impl Store {
    /// Returns the read for the chunk; none if it takes no read: it is in memory, or not there.
    ///
    /// Chunks with the same number come with one read, as long as they are read soon after each other; large ones
    /// with the same start have the same number, too. It takes memory and short locks only, and gives a forecast:
    /// like [`Store::peek`] it errs for less than 1 in 200 chunks, recently stored chunks may be in memory in spite
    /// of a predicted read, and concurrent writes change it.
    pub fn locate(&self, tag: u64, len: u32) -> Option<u64> {
        let class = Class::of(len);
        let place = *self.index.places(tag, class).first()?;
        // The lowest bit tells addresses from containers.
        match class {
            Class::Coarse => {
                let (segment, at) = (place >> self.span_bits, (place & ((1 << self.span_bits) - 1)) as u32);
                let is_unwritten = self.tail.read().holds(segment, at, len as usize);
                (!is_unwritten).then_some(place << 1)
            }
            Class::Medium | Class::Fine => {
                let is_open = self.tail.read().is_open(place);
                let is_at_hand = is_open || self.recent.lock().iter().any(|(number, _)| *number == place);
                (!is_at_hand).then_some(place << 1 | 1)
            }
        }
    }
}
