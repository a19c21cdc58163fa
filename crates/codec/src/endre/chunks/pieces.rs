//! Where markers cut a block.

/// Cuts a block at markers into pieces of bounded length.
pub(super) struct Pieces {
    /// The beginning of the uncut piece.
    start: u32,
    min: u32,
    max: u32,
}

impl Pieces {
    /// Starts at the front of a block with a marker each `period` bytes or so, under windows of `window` bytes.
    ///
    /// Pieces are half a window and a quarter of the period long at least, so a copy of one pays and nobody can make a
    /// block fall to dust, and eight periods at most.
    pub(super) fn new(period: usize, window: usize) -> Self {
        let min = (window / 2).max(period / 4).clamp(1, MAX_LEN / 2);
        Self { start: 0, min: min as u32, max: period.saturating_mul(8).clamp(2 * min, MAX_LEN) as u32 }
    }

    /// Returns how long a piece can be.
    pub(super) const fn longest(&self) -> u32 {
        self.max
    }

    /// Returns the beginning of the uncut piece.
    #[inline]
    pub(super) const fn start(&self) -> u32 {
        self.start
    }

    /// Takes what lies before `start` as cut.
    #[inline]
    pub(super) const fn restart(&mut self, start: u32) {
        self.start = start;
    }

    /// Cuts at `marker`, lying behind all earlier ones, if this leaves no piece too short; gives `take` the piece, by
    /// position and length.
    #[inline]
    pub(super) fn cut(&mut self, marker: u32, take: &mut impl FnMut(u32, u32)) {
        self.cut_long(marker, take);
        let len = marker.saturating_sub(self.start);
        if len >= self.min {
            take(self.start, len);
            self.start = marker;
        }
    }

    /// Takes the rest of a block of `len` bytes; a short rest counts if there is a piece before it, since it ends that
    /// piece in every repeat.
    pub(super) fn finish(&mut self, len: u32, take: &mut impl FnMut(u32, u32)) {
        self.cut_long(len, take);
        let rest = len.saturating_sub(self.start);
        if rest >= self.min || (rest > 0 && self.start > 0) {
            take(self.start, rest);
            self.start = len;
        }
    }

    /// Cuts off whole pieces of the largest length in front of `end`.
    #[inline]
    fn cut_long(&mut self, end: u32, take: &mut impl FnMut(u32, u32)) {
        while end.saturating_sub(self.start) > self.max {
            take(self.start, self.max);
            self.start += self.max;
        }
    }
}

/// No piece is longer than a block.
const MAX_LEN: usize = crate::wire::MAX_BLOCK;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pieces(period: usize, window: usize, len: u32, markers: &[u32]) -> Vec<(u32, u32)> {
        let (mut pieces, mut out) = (Pieces::new(period, window), Vec::new());
        let mut take = |at, len| out.push((at, len));
        markers.iter().for_each(|&marker| pieces.cut(marker, &mut take));
        pieces.finish(len, &mut take);
        out
    }

    #[test]
    fn short_pieces_join_the_next_and_long_ones_are_cut() {
        assert_eq!(pieces(64, 32, 200, &[40, 50, 100]), [(0, 40), (40, 60), (100, 100)]);
        assert_eq!(pieces(64, 32, 1100, &[]), [(0, 512), (512, 512), (1024, 76)]);
        assert_eq!(pieces(64, 32, 60, &[50]), [(0, 50), (50, 10)]);
        assert_eq!(pieces(64, 32, 15, &[]), []);
        assert_eq!(pieces(64, 32, 0, &[]), []);
    }

    proptest! {
        #[test]
        fn pieces_cover_the_block_and_keep_their_bounds(
            period in 0usize..5000,
            window in 0usize..70,
            len in 0u32..65_537,
            markers in prop::collection::btree_set(0u32..65_536, 0..400),
        ) {
            let markers: Vec<u32> = markers.into_iter().filter(|&marker| marker < len).collect();
            let bounds = Pieces::new(period, window);
            let found = pieces(period, window, len, &markers);
            let mut end = 0;
            for (index, &(at, piece)) in found.iter().enumerate() {
                prop_assert_eq!(at, end);
                end += piece;
                prop_assert!(piece <= bounds.max);
                prop_assert!(piece >= bounds.min || index + 1 == found.len());
            }
            prop_assert!(end == len || (found.is_empty() && len < bounds.min));
        }
    }
}
