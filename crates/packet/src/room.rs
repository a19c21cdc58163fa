//! Output buffers of packets.

use crate::{Error, Layer};

/// Splits `len` bytes for a layer off the front of a buffer.
pub(crate) fn split(into: &mut [u8], len: usize, layer: Layer) -> Result<(&mut [u8], &mut [u8]), Error> {
    let room = into.len();
    into.split_at_mut_checked(len).ok_or(Error::NoRoom { layer, need: len, room })
}

/// Splits a header of fixed length off the front of a buffer.
pub(crate) fn header<const LEN: usize>(
    into: &mut [u8],
    layer: Layer,
) -> Result<(&mut [u8; LEN], &mut [u8]), Error> {
    let room = into.len();
    into.split_first_chunk_mut().ok_or(Error::NoRoom { layer, need: LEN, room })
}

/// Writes `bytes` to the front of a buffer and returns the rest.
pub(crate) fn put<'b>(into: &'b mut [u8], bytes: &[u8], layer: Layer) -> Result<&'b mut [u8], Error> {
    let (place, rest) = split(into, bytes.len(), layer)?;
    place.copy_from_slice(bytes);
    Ok(rest)
}

/// Checks a length against the limit of the format.
pub(crate) fn at_most(len: usize, most: usize, field: &'static str, layer: Layer) -> Result<usize, Error> {
    if len <= most { Ok(len) } else { Err(Error::TooLong { layer, field, most, len }) }
}
