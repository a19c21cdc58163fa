//! Chunks of unacknowledged blocks: on their way to the peer's store.
//!
//! A chunk is noted with its block's sequence number when the block is sent. After a look-up the retransmit buffer
//! tells whether the block is still unacknowledged: if not, the hints know of the chunk, so nothing has to be removed.
//! Each chunk has one place, and displaces the one there: a displaced chunk is named a round trip later.

use super::hints::PackedTag;

/// The chunks sent last, and in which blocks.
#[derive(Clone, Debug)]
pub struct UnderWay {
    places: Vec<Place>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    chunk: PackedTag,
    /// [`NOBODY`] if the place is empty.
    seq: u64,
}

impl UnderWay {
    /// Starts without chunks, in about `memory` bytes; with room for one at least.
    pub fn new(memory: u64) -> Self {
        let places = (memory / size_of::<Place>() as u64).clamp(1, u64::from(u32::MAX)) as usize;
        Self { places: vec![EMPTY; places] }
    }

    /// Notes the chunks a block brings; those below 256 bytes are passed over, since a name saves little of them.
    pub fn insert_all(&mut self, chunks: &[PackedTag], seq: u64) {
        let places = self.places.len();
        for &chunk in chunks.iter().filter(|chunk| !chunk.is_smallest()) {
            if let Some(place) = self.places.get_mut(chunk.place(places)) {
                *place = Place { chunk, seq };
            }
        }
    }

    /// Returns the block bringing a chunk, as far as is known; it may be acknowledged by now.
    pub fn find(&self, chunk: PackedTag) -> Option<u64> {
        let place = self.places.get(chunk.place(self.places.len()))?;
        (place.chunk == chunk && place.seq != NOBODY).then_some(place.seq)
    }

    /// Forgets a chunk.
    pub fn forget(&mut self, chunk: PackedTag) {
        let places = self.places.len();
        if let Some(place) = self.places.get_mut(chunk.place(places)).filter(|place| place.chunk == chunk) {
            *place = EMPTY;
        }
    }

    /// Forgets everything: sequence numbers begin anew.
    pub fn clear(&mut self) {
        self.places.fill(EMPTY);
    }

    /// Returns the bytes of memory it takes.
    pub fn memory(&self) -> u64 {
        size_of_val(&self.places[..]) as u64
    }
}

/// A sequence number that no block has.
const NOBODY: u64 = u64::MAX;
const EMPTY: Place = Place { chunk: PackedTag::new(0, 0), seq: NOBODY };

#[cfg(test)]
mod tests {
    use super::*;

    fn chunks(count: u64) -> Vec<PackedTag> {
        (1..=count).map(|i| PackedTag::new(i.wrapping_mul(0x9e37_79b9_7f4a_7c15), 1000)).collect()
    }

    #[test]
    fn last_sent_chunk_is_found_with_its_block() {
        let mut under_way = UnderWay::new(1 << 16);
        let (old, new) = (chunks(40), chunks(20));
        under_way.insert_all(&old, 3);
        under_way.insert_all(&new, 7);
        let found = |chunks: &[PackedTag], seq| {
            chunks.iter().filter(|&&chunk| under_way.find(chunk) == Some(seq)).count()
        };
        assert_eq!(found(&new, 7), 20);
        assert!(found(&old[20..], 3) > 17, "a few may be displaced");
        assert_eq!(under_way.memory(), 1 << 16);
        under_way.forget(new[0]);
        assert_eq!(under_way.find(new[0]), None);
        under_way.clear();
        assert!(old.iter().all(|&chunk| under_way.find(chunk).is_none()));
    }

    #[test]
    fn full_table_forgets_earlier_chunks() {
        let mut under_way = UnderWay::new(0);
        under_way.insert_all(&chunks(1000), 5);
        let last = chunks(1000)[999];
        assert_eq!(chunks(1000).into_iter().filter_map(|chunk| under_way.find(chunk)).count(), 1);
        assert_eq!(under_way.find(last), Some(5));
    }

    #[test]
    fn small_chunks_and_absurd_tags_do_no_harm() {
        let mut under_way = UnderWay::new(100);
        let small = PackedTag::new(u64::MAX, 255);
        under_way.insert_all(&[small, PackedTag::new(0, 0)], 1);
        assert_eq!((under_way.find(small), under_way.find(PackedTag::new(0, 0))), (None, None));
        under_way.insert_all(&[PackedTag::new(u64::MAX, 70_000), PackedTag::new(0, 70_000)], 2);
        assert_eq!(under_way.find(PackedTag::new(u64::MAX, 70_000)), Some(2));
    }
}
