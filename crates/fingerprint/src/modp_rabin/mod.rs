//! MODP as published: Rabin's fingerprint of every window [EndRE §5.1.1, Figure 2].
//!
//! The fingerprint of a window is the remainder of its bits, as a polynomial over GF(2), by one of degree 63. Two
//! tables of 256 entries keep it: one for the entering byte, one for the leaving byte. Every byte costs two dependent
//! look-ups, so this choice is a baseline and not for use.

#[cfg(test)]
mod naive;

#[cfg(test)]
pub(crate) use naive::select as naive;

use std::ops::Range;

use crate::Markers;
use crate::markers::positions;
use crate::product::HASHED;

/// Chooses the positions with a Rabin fingerprint of p − 1 modulo p.
///
/// The figure takes a residue of 0, the residue of every position in a run of zeros; p − 1 is as rare otherwise.
/// Nothing is passed over behind a marker, so periodic content can still have a marker at every position.
#[derive(Clone, Debug)]
pub struct ModpRabin {
    period: usize,
    window: usize,
    /// How many bytes of the window the fingerprint is of.
    hashed: usize,
    /// The share of a byte in the fingerprint once it has left the window's start.
    leaving: Box<[u64; 256]>,
}

impl ModpRabin {
    /// Creates the choice of one marker, the start of a window of `window` bytes, in `period` bytes on average.
    ///
    /// A period of 0 is taken as 1, a window below 4 bytes as 4. The table of leaving bytes takes 2 KiB and 256 × `window` steps. Of a
    /// window above 4 KiB, the first 4 KiB count.
    pub fn new(period: usize, window: usize) -> Self {
        let window = window.max(HASHED);
        let hashed = window.min(MAX_HASHED);
        let behind = |byte| (1..hashed).fold(byte, |fingerprint, _| append(fingerprint, 0));
        let leaving = Box::new(std::array::from_fn(|byte| behind(byte as u64)));
        Self { period: period.max(1), window, hashed, leaving }
    }
}

impl Markers for ModpRabin {
    fn select(&self, bytes: &[u8], range: Range<usize>, out: &mut Vec<u32>) -> usize {
        let positions = positions(bytes, self.window, &range);
        let Some(bytes) = bytes.get(positions.start..) else { return range.end };
        let (before, entering) = bytes.split_at_checked(self.hashed - 1).unwrap_or((bytes, &[]));
        let mut fingerprint = before.iter().fold(0, |fingerprint, &byte| append(fingerprint, byte));
        for (position, (&first, &last)) in positions.zip(bytes.iter().zip(entering)) {
            fingerprint = append(fingerprint, last);
            if residue(fingerprint, self.period) == self.period - 1 {
                out.push(position as u32);
            }
            fingerprint ^= look_up(&self.leaving, first.into());
        }
        range.end
    }
}

/// Returns the fingerprint of the bytes of `fingerprint` with `byte` behind them.
#[inline(always)]
fn append(fingerprint: u64, byte: u8) -> u64 {
    (fingerprint << 8 | u64::from(byte)) ^ look_up(&OVERFLOWS, fingerprint >> (DEGREE - 8))
}

/// Returns entry `index` of a table with one for each byte value.
#[inline(always)]
fn look_up(table: &[u64; 256], index: u64) -> u64 {
    table.get(usize::from(index as u8)).copied().unwrap_or(0)
}

/// The longest stretch to be hashed, so no window takes long to prepare for.
const MAX_HASHED: usize = 4096;

/// The irreducible polynomial, from LBFS, as the bits of its coefficients.
const POLYNOMIAL: u64 = 0xbfe6_b8a5_bf37_8d83;

/// The degree of [`POLYNOMIAL`]; a fingerprint has as many bits.
const DEGREE: u32 = 63;

/// The number to add when a shift by a byte moves one beyond the degree: its remainder, and itself to clear it.
static OVERFLOWS: [u64; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < table.len() {
        let beyond = (byte as u128) << DEGREE;
        let mut rest = beyond;
        let mut degree = DEGREE + 7;
        while degree >= DEGREE {
            if rest >> degree & 1 == 1 {
                rest ^= (POLYNOMIAL as u128) << (degree - DEGREE);
            }
            degree -= 1;
        }
        table[byte] = (beyond ^ rest) as u64;
        byte += 1;
    }
    table
};

/// Returns a fingerprint modulo `period`; 32 bits of it, since dividing 64 costs several times as much.
#[inline(always)]
fn residue(fingerprint: u64, period: usize) -> usize {
    match u32::try_from(period) {
        Ok(period) if period > 0 => (fingerprint as u32 % period) as usize,
        _ => fingerprint as u32 as usize,
    }
}
