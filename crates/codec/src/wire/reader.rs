//! Bounded reading of untrusted bytes.

use super::varint::take_varint;

/// What was wrong with received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// The field named ends after the frame does.
    #[error("frame ends inside {0}")]
    Short(&'static str),
    /// The field named holds a value the format does not allow.
    #[error("invalid {0}")]
    Invalid(&'static str),
    /// The frame goes on after its last field.
    #[error("{0} bytes after the last field of a frame")]
    Trailing(usize),
    /// The frame is longer than [`super::MAX_FRAME`].
    #[error("frame of {0} bytes is over the limit of {limit}", limit = super::MAX_FRAME)]
    TooLong(u64),
    /// The frame's type is not one of this version.
    #[error("unknown frame type {0:#04x}")]
    UnknownType(u8),
}

/// A cursor over a frame's body.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Takes one byte.
    pub fn byte(&mut self, what: &'static str) -> Result<u8, WireError> {
        let (&first, rest) = self.rest.split_first().ok_or(WireError::Short(what))?;
        self.rest = rest;
        Ok(first)
    }

    /// Takes a varint of any size.
    pub fn varint(&mut self, what: &'static str) -> Result<u64, WireError> {
        take_varint(&mut self.rest).ok_or(WireError::Short(what))
    }

    /// Takes a varint that must not exceed `max`.
    pub fn varint_up_to(&mut self, max: u64, what: &'static str) -> Result<u64, WireError> {
        match self.varint(what)? {
            value if value <= max => Ok(value),
            _ => Err(WireError::Invalid(what)),
        }
    }

    /// Takes a varint that must fit 32 bits.
    pub fn varint_u32(&mut self, what: &'static str) -> Result<u32, WireError> {
        u32::try_from(self.varint(what)?).map_err(|_| WireError::Invalid(what))
    }

    /// Takes `len` bytes.
    pub fn bytes(&mut self, len: usize, what: &'static str) -> Result<&'a [u8], WireError> {
        let (taken, rest) = self.rest.split_at_checked(len).ok_or(WireError::Short(what))?;
        self.rest = rest;
        Ok(taken)
    }

    /// Takes `N` bytes.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], WireError> {
        let (taken, rest) = self.rest.split_first_chunk().ok_or(WireError::Short(what))?;
        self.rest = rest;
        Ok(*taken)
    }

    /// Takes eight bytes, little-endian.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, WireError> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Takes two bytes, little-endian.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, WireError> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Returns how many of `count` items of at least `least` bytes the rest can hold: what may be reserved for them.
    pub(super) fn room_for(&self, count: usize, least: usize) -> usize {
        count.min(self.rest.len() / least.max(1))
    }

    /// Says whether nothing is left.
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Takes everything left.
    pub fn rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Ends the reading.
    ///
    /// # Errors
    /// [`WireError::Trailing`] if bytes are left.
    pub fn finish(self) -> Result<(), WireError> {
        if self.rest.is_empty() { Ok(()) } else { Err(WireError::Trailing(self.rest.len())) }
    }
}
