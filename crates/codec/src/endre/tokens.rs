//! Tokens: how a block's copies and literals are written, read and put together again.
//!
//! A block is its literals with copies from the log between them [EndRE §5.2.2]. Literals travel apart from
//! tokens, since the entropy stage does better on both that way. `tokens` is a sequence of
//!
//! ```text
//! token = literal_len  copy_len  source
//!   literal_len  varint: literals before the copy, 0 or more
//!   copy_len     varint: length of the copy, 1 or more
//!   source       first token of a block: varint, base − source of the copy
//!                later ones: zigzag varint, source of the copy − expected
//! ```
//!
//! where `base` is the log's head when the block was encoded and `expected` is the end of the previous copy's source
//! plus this token's `literal_len`: the byte standing as far behind that source as this copy stands behind that copy.
//! If an edit replaced some bytes by as many others, `source` is one zero byte, and a copy of less than 128 bytes takes
//! three. Literals after the last copy have no token. Arithmetic on sources is modulo 2^64.
//!
//! A reader refuses non-canonical varints, a copy of length 0, literals or copies beyond the block's plain length, more
//! or fewer literals than came with the block, and a copy not wholly before `base`. Tokens end with their field. The
//! age of sources is the cache's rule.

#[cfg(test)]
mod tests;

use thiserror::Error;

use crate::log::{Log, LogOffset};
use crate::wire::varint::{put_varint, take_varint, unzigzag, zigzag};

/// A part of a block the log holds already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Where in the block the copy stands.
    pub at: u32,
    /// How many bytes it has, 1 or more.
    pub len: u32,
    /// Where in the log its bytes are.
    pub source: LogOffset,
}

impl Copy {
    /// Returns the position in the block behind the copy.
    pub const fn end(&self) -> usize {
        self.at as usize + self.len as usize
    }

    /// Returns the range of the log the copy reads.
    pub const fn range(&self) -> std::ops::Range<u64> {
        self.source.0..self.source_end().0
    }

    /// Returns the offset in the log behind the copy's source.
    pub const fn source_end(&self) -> LogOffset {
        self.source.plus(self.len as u64)
    }
}

/// The fault in a block's tokens; the peer's, in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum TokenError {
    /// A number is cut, not in its shortest form, or above 64 bits.
    #[error("a token has a malformed number")]
    Varint,
    /// A copy has no bytes.
    #[error("a token copies nothing")]
    EmptyCopy,
    /// Copies and literals together are longer than the block.
    #[error("tokens go beyond the block's plain length of {plain_len}")]
    TooLong {
        /// The plain length the block's header states.
        plain_len: usize,
    },
    /// The literals do not fill the room left by tokens.
    #[error("tokens leave room for {expected} literals, {found} came")]
    Literals {
        /// How many bytes of the block are not copied.
        expected: usize,
        /// How many literals the block has.
        found: usize,
    },
    /// A copy is not wholly older than the block.
    #[error("a copy reaches to the block's own base or beyond")]
    Source,
}

/// Appends the tokens of `copies` from a log with its head at `base` to `out`.
///
/// Copies are as [`crate::endre::matcher::MaxMatch::find`] leaves them: in order, not empty, not overlapping, with
/// sources ending at `base` or before. What they leave of the block are its [`literals`].
pub fn encode(copies: &[Copy], base: LogOffset, out: &mut Vec<u8>) {
    let mut position = 0;
    let mut previous: Option<&Copy> = None;
    for copy in copies {
        let literal_len = (copy.at as usize).saturating_sub(position) as u64;
        put_varint(out, literal_len);
        put_varint(out, u64::from(copy.len));
        put_varint(
            out,
            match previous {
                None => base.0.wrapping_sub(copy.source.0),
                Some(previous) => zigzag(copy.source.0.wrapping_sub(expected(previous, literal_len)) as i64),
            },
        );
        position = copy.end();
        previous = Some(copy);
    }
}

/// Returns the pieces of `block` that `copies` leave, in order; some may be empty.
pub fn literals<'a>(copies: &'a [Copy], block: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let starts = std::iter::once(0).chain(copies.iter().map(Copy::end));
    let ends = copies.iter().map(|copy| copy.at as usize).chain([block.len()]);
    starts.zip(ends).map(|(start, end)| block.get(start..end).unwrap_or_default())
}

/// Reads the tokens of a block of `plain_len` bytes with `literals_len` literals, and replaces `copies` by what
/// they say: in order, not empty, not overlapping, within the block, with sources wholly before `base`.
///
/// Work and memory are bounded by the length of `tokens`.
///
/// # Errors
///
/// Returns what is wrong with the first wrong token; `copies` is then of no use.
pub fn decode(
    mut tokens: &[u8],
    plain_len: usize,
    base: LogOffset,
    literals_len: usize,
    copies: &mut Vec<Copy>,
) -> Result<(), TokenError> {
    copies.clear();
    let too_long = TokenError::TooLong { plain_len };
    let mut position = 0u64;
    let mut literals = 0u64;
    while !tokens.is_empty() {
        let literal_len = take_varint(&mut tokens).ok_or(TokenError::Varint)?;
        let len = take_varint(&mut tokens).ok_or(TokenError::Varint)?;
        let source = take_varint(&mut tokens).ok_or(TokenError::Varint)?;
        if len == 0 {
            return Err(TokenError::EmptyCopy);
        }
        let at = position.checked_add(literal_len).ok_or(too_long)?;
        position = at.checked_add(len).filter(|end| *end <= plain_len as u64).ok_or(too_long)?;
        // Not above `position`, checked.
        literals += literal_len;
        let source = match copies.last() {
            None => base.0.wrapping_sub(source),
            Some(previous) => expected(previous, literal_len).wrapping_add_signed(unzigzag(source)),
        };
        if source.checked_add(len).is_none_or(|end| end > base.0) {
            return Err(TokenError::Source);
        }
        let (Ok(at), Ok(len)) = (u32::try_from(at), u32::try_from(len)) else { return Err(too_long) };
        copies.push(Copy { at, len, source: LogOffset(source) });
    }
    literals += (plain_len as u64).saturating_sub(position);
    if literals != literals_len as u64 {
        return Err(TokenError::Literals { expected: literals as usize, found: literals_len });
    }
    Ok(())
}

/// Appends the block of `plain_len` bytes that `copies` from `log` and `literals` make up to `out`.
///
/// The log may hold other bytes than the sender meant: the result must pass the verify gate. Copies never returned by
/// [`decode`] for these lengths leave the block short.
pub fn rebuild(copies: &[Copy], literals: &[u8], plain_len: usize, log: &Log, out: &mut Vec<u8>) {
    let mut filled = 0;
    let mut rest = literals;
    copies.iter().take(AHEAD).for_each(|copy| log.prefetch(copy.source));
    let mut ahead = copies.iter().skip(AHEAD);
    for copy in copies {
        if let Some(later) = ahead.next() {
            log.prefetch(later.source);
        }
        let literal_len = (copy.at as usize).saturating_sub(filled);
        let Some(behind) = rest.get(literal_len..) else { return };
        append(rest, literal_len, out);
        filled += literal_len;
        let len = (copy.len as usize).min(plain_len.saturating_sub(filled));
        if !append(log.behind(copy.source), len, out) {
            log.copy_to(copy.source, len, out);
        }
        filled += len;
        rest = behind;
    }
    let room = plain_len.saturating_sub(filled);
    out.extend_from_slice(rest.get(..room).unwrap_or(rest));
}

/// Appends the first `len` bytes of `from` to `out`; returns false if there are fewer.
///
/// A short piece is copied with some bytes behind it, cut off again: a copy of constant length is a few moves, and one
/// of variable length is a call in search of the way to make it.
#[inline]
fn append(from: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
    let (end, room) = (out.len() + len, out.capacity() - out.len());
    match (from.first_chunk::<SHORT>(), from.first_chunk::<MEDIUM>()) {
        (Some(short), _) if len <= SHORT && room >= SHORT => out.extend_from_slice(short),
        (_, Some(medium)) if len <= MEDIUM && room >= MEDIUM => out.extend_from_slice(medium),
        _ => {
            let Some(exact) = from.get(..len) else { return false };
            out.extend_from_slice(exact);
        }
    }
    out.truncate(end);
    true
}

/// Copies whose sources are asked for ahead: they lie all over the log.
const AHEAD: usize = 8;

/// Pieces of up to so many bytes are copied as if they had as many.
const SHORT: usize = 32;
const MEDIUM: usize = 128;

/// Returns where a copy would come from if the block went on `literal_len` bytes behind `previous` as its
/// source does.
fn expected(previous: &Copy, literal_len: u64) -> u64 {
    previous.source.0.wrapping_add(u64::from(previous.len)).wrapping_add(literal_len)
}
