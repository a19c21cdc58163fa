//! Bitmaps: a bit for each answer, the lowest bit of the first byte first.

use super::reader::{Reader, WireError};

pub(super) fn put_bits(out: &mut Vec<u8>, bits: &[bool]) {
    let byte = |bits: &[bool]| bits.iter().zip(0..).fold(0, |byte, (&bit, at)| byte | u8::from(bit) << at);
    out.extend(bits.chunks(8).map(byte));
}

pub(super) fn take_bits(reader: &mut Reader<'_>, count: usize) -> Result<Vec<bool>, WireError> {
    let bytes = reader.bytes(count.div_ceil(8), "bitmap")?;
    // One bitmap has one form.
    if !count.is_multiple_of(8) && bytes.last().is_some_and(|last| last >> (count % 8) != 0) {
        return Err(WireError::Invalid("bitmap"));
    }
    Ok(bytes.iter().flat_map(|byte| (0..8).map(move |bit| byte >> bit & 1 == 1)).take(count).collect())
}
