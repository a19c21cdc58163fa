//! Options of kind, length and data, as in IPv4 and TCP.

use crate::{Error, Layer};

/// An option as it stands in the header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawOption<'a> {
    /// Kind, in IPv4 with the bit for copying and the class.
    pub kind: u8,
    /// The bytes behind kind and length.
    pub data: &'a [u8],
}

/// The options of a header, up to the end of their list; an error ends them, too.
#[derive(Clone, Debug)]
pub struct Options<'a> {
    rest: &'a [u8],
    layer: Layer,
}

impl<'a> Options<'a> {
    pub(crate) fn new(bytes: &'a [u8], layer: Layer) -> Self {
        Self { rest: bytes, layer }
    }
}

impl<'a> Iterator for Options<'a> {
    type Item = Result<RawOption<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.rest);
        let (&kind, behind) = all.split_first()?;
        match kind {
            END => return None,
            NOP => {
                self.rest = behind;
                return Some(Ok(RawOption { kind, data: &[] }));
            }
            _ => {}
        }
        let layer = self.layer;
        let Some(&len) = behind.first() else {
            return Some(Err(Error::Short { layer, need: 2, have: all.len() }));
        };
        if len < 2 {
            return Some(Err(Error::Invalid { layer, field: "length", value: len.into() }));
        }
        let Some((option, rest)) = all.split_at_checked(len.into()) else {
            return Some(Err(Error::Short { layer, need: len.into(), have: all.len() }));
        };
        self.rest = rest;
        Some(Ok(RawOption { kind, data: option.get(2..).unwrap_or_default() }))
    }
}

/// End of the list of options.
pub(crate) const END: u8 = 0;
/// One byte of padding between options.
pub(crate) const NOP: u8 = 1;
