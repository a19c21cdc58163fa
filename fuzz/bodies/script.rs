//! Reads a fuzzer's input as a script of decisions.

/// The rest of the input.
pub(crate) struct Script<'a>(&'a [u8]);

impl<'a> Script<'a> {
    /// Starts at the front of `data`.
    pub(crate) fn new(data: &'a [u8]) -> Self {
        Self(data)
    }

    /// The next byte; `None` at the end.
    pub(crate) fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// The next byte as a number below `bound`; 0 at the end.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.next().unwrap_or(0)) % bound.max(1)
    }

    /// The next two bytes as a number; 0 at the end.
    pub(crate) fn wide(&mut self) -> usize {
        self.below(256) << 8 | self.below(256)
    }

    /// The next `len` bytes, or as many as there are.
    pub(crate) fn bytes(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(len.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// All remaining bytes.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

/// Makes `len` bytes from `seed`, nearly without repeats.
pub(crate) fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut out = Vec::with_capacity(len);
    for _ in 0..len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.push((state >> 32) as u8);
    }
    out
}
