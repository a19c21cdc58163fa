//! The data file of a log.

use std::io;
use std::ops::Range;

use super::disk::DiskFile;

/// The bytes of a log: offset `o` lies at `o` modulo the capacity.
pub(super) struct Ring<F> {
    pub(super) file: F,
    pub(super) capacity: u64,
}

impl<F: DiskFile> Ring<F> {
    pub(super) fn write(&mut self, start: u64, bytes: &[u8]) -> io::Result<()> {
        let at = start % self.capacity;
        let (first, second) = bytes.split_at(self.before_the_end(at, bytes.len()));
        self.file.write_at(first, at)?;
        if second.is_empty() { Ok(()) } else { self.file.write_at(second, 0) }
    }

    /// Replaces the buffer's content by the bytes of a range.
    pub(super) fn read(&self, range: &Range<u64>, buffer: &mut Vec<u8>) -> io::Result<()> {
        let (at, len) = (range.start % self.capacity, (range.end - range.start) as usize);
        buffer.clear();
        buffer.resize(len, 0);
        let (first, second) = buffer.split_at_mut(self.before_the_end(at, len));
        self.file.read_at(first, at)?;
        if second.is_empty() { Ok(()) } else { self.file.read_at(second, 0) }
    }

    /// Replaces every byte by zero on the disk, as far as it is in the system's power.
    pub(super) fn overwrite(&mut self) -> io::Result<()> {
        let (zeros, len) = (vec![0; OVERWRITTEN_AT_ONCE], self.file.len()?);
        for at in (0..len).step_by(OVERWRITTEN_AT_ONCE) {
            let piece = usize::try_from(len - at).unwrap_or(usize::MAX).min(OVERWRITTEN_AT_ONCE);
            self.file.write_at(zeros.get(..piece).unwrap_or(&zeros), at)?;
        }
        self.file.sync()
    }

    fn before_the_end(&self, at: u64, len: usize) -> usize {
        usize::try_from(self.capacity - at).unwrap_or(usize::MAX).min(len)
    }
}

const OVERWRITTEN_AT_ONCE: usize = 1 << 20;
