//! Extension headers of IPv6 [RFC 8200 §4].

use crate::{Error, Fragment, Layer, protocol, room};

/// An extension header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'a> {
    /// Its number, see [`crate::protocol`].
    pub kind: u8,
    /// The next header.
    pub next_header: u8,
    /// The bytes behind next header and length.
    pub data: &'a [u8],
}

/// The extension headers of a packet, in their order. They end with a protocol, an error, or a fragment other
/// than the first: no header is behind one.
#[derive(Clone, Debug)]
pub struct Extensions<'a> {
    next_header: u8,
    rest: &'a [u8],
    ended: bool,
}

impl Extension<'_> {
    /// Returns the place of a fragment if this is its header.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment> {
        let [a, b, c, d, e, f] = *self.data.first_chunk().filter(|_| self.kind == protocol::FRAGMENT)?;
        let field = u16::from_be_bytes([a, b]);
        Some(Fragment {
            offset: field & !7,
            more: field & 1 != 0,
            identification: u32::from_be_bytes([c, d, e, f]),
        })
    }
}

impl<'a> Extensions<'a> {
    pub(crate) fn new(next_header: u8, rest: &'a [u8]) -> Self {
        Self { next_header, rest, ended: false }
    }

    /// Returns the next header; at the end this is the protocol.
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.next_header
    }

    /// Returns the bytes from there on.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    fn read(&self) -> Result<(Extension<'a>, &'a [u8]), Error> {
        let (have, layer) = (self.rest.len(), LAYER);
        let short = |need| Error::Short { layer, need, have };
        let [next_header, len] = *self.rest.first_chunk().ok_or(short(UNIT))?;
        let need = match self.next_header {
            protocol::FRAGMENT => UNIT,
            // In units of four bytes, and two less [RFC 4302 §2.2].
            protocol::AUTHENTICATION => (usize::from(len) + 2) * 4,
            _ => (usize::from(len) + 1) * UNIT,
        };
        let (header, rest) = self.rest.split_at_checked(need).ok_or(short(need))?;
        let data = header.get(2..).unwrap_or_default();
        Ok((Extension { kind: self.next_header, next_header, data }, rest))
    }
}

impl<'a> Iterator for Extensions<'a> {
    type Item = Result<Extension<'a>, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || !is_extension(self.next_header) {
            return None;
        }
        let read = self.read();
        match read {
            Ok((extension, rest)) => {
                (self.next_header, self.rest) = (extension.next_header, rest);
                self.ended = extension.fragment().is_some_and(|fragment| fragment.offset != 0);
            }
            Err(_) => self.ended = true,
        }
        Some(read.map(|(extension, _)| extension))
    }
}

/// Writes an extension header other than those of fragments and authentication, and returns the rest of the buffer.
/// `data` follows the two bytes of next header and length.
///
/// # Errors
/// A length other than a multiple of 8 bytes, or more than 2,048, with these two; or too small a buffer.
pub fn write_extension<'b>(next_header: u8, data: &[u8], into: &'b mut [u8]) -> Result<&'b mut [u8], Error> {
    let len = room::at_most(data.len(), MAX_DATA, "data", LAYER)? + 2;
    if !len.is_multiple_of(UNIT) {
        return Err(Error::Invalid { layer: LAYER, field: "length", value: len as u32 });
    }
    let (header, rest) = room::split(into, len, LAYER)?;
    let data_place = room::put(header, &[next_header, (len / UNIT - 1) as u8], LAYER)?;
    room::put(data_place, data, LAYER)?;
    Ok(rest)
}

/// Writes the header of a fragment, and returns the rest of the buffer.
///
/// # Errors
/// An offset other than a multiple of 8, or too small a buffer.
pub fn write_fragment(next_header: u8, fragment: Fragment, into: &mut [u8]) -> Result<&mut [u8], Error> {
    let [a, b] = (fragment.offset_field(LAYER)? | u16::from(fragment.more)).to_be_bytes();
    let [c, d, e, f] = fragment.identification.to_be_bytes();
    room::put(into, &[next_header, 0, a, b, c, d, e, f], LAYER)
}

/// The bytes behind ESP are encrypted, so it counts as a protocol.
fn is_extension(number: u8) -> bool {
    use protocol::*;
    matches!(
        number,
        HOP_BY_HOP
            | ROUTING
            | FRAGMENT
            | AUTHENTICATION
            | DESTINATION_OPTIONS
            | MOBILITY
            | HOST_IDENTITY
            | SHIM6
    )
}

const LAYER: Layer = Layer::Ipv6Extension;
const UNIT: usize = 8;
const MAX_DATA: usize = 256 * UNIT - 2;
