//! IP of either version.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::checksum::Sum;
use crate::{Error, Ipv4, Ipv6, Layer};

/// An IP packet of either version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ip<'a> {
    /// A packet of IPv4.
    V4(Ipv4<'a>),
    /// A packet of IPv6.
    V6(Ipv6<'a>),
}

/// The payload of an IP packet, behind all headers of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'a> {
    /// Number of the protocol, see [`crate::protocol`].
    pub protocol: u8,
    /// Header and payload of this protocol, or a piece of it in a fragment.
    pub payload: &'a [u8],
    /// The piece's place, if the packet is a fragment.
    pub fragment: Option<Fragment>,
}

/// The place of a fragment in its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset in bytes, a multiple of 8.
    pub offset: u16,
    /// Whether another fragment follows.
    pub more: bool,
    /// The number common to all fragments of one packet; 16 bits in IPv4.
    pub identification: u32,
}

/// The addresses in the pseudo-header of TCP, UDP and ICMPv6 checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pseudo {
    /// Source and destination of an IPv4 packet.
    V4(Ipv4Addr, Ipv4Addr),
    /// Source and final destination of an IPv6 packet.
    V6(Ipv6Addr, Ipv6Addr),
}

impl<'a> Ip<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// Another version, or lengths in contradiction or beyond the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        match version(bytes)? {
            4 => Ipv4::read(bytes).map(Self::V4),
            _ => Ipv6::read(bytes).map(Self::V6),
        }
    }

    /// Reads a packet, with or without its end.
    ///
    /// # Errors
    /// Another version, lengths in contradiction, or an incomplete header.
    pub fn read_cut(bytes: &'a [u8]) -> Result<Self, Error> {
        match version(bytes)? {
            4 => Ipv4::read_cut(bytes).map(Self::V4),
            _ => Ipv6::read_cut(bytes).map(Self::V6),
        }
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> IpAddr {
        match self {
            Self::V4(packet) => packet.source().into(),
            Self::V6(packet) => packet.source().into(),
        }
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> IpAddr {
        match self {
            Self::V4(packet) => packet.destination().into(),
            Self::V6(packet) => packet.destination().into(),
        }
    }

    /// Returns the remaining hops of the packet.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        match self {
            Self::V4(packet) => packet.ttl(),
            Self::V6(packet) => packet.hop_limit(),
        }
    }

    /// Returns the bytes behind the header, in IPv6 with its extension headers.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        match self {
            Self::V4(packet) => packet.payload(),
            Self::V6(packet) => packet.payload(),
        }
    }

    /// Returns the payload behind all headers of IP.
    ///
    /// # Errors
    /// An incomplete extension header.
    pub fn upper(&self) -> Result<Upper<'a>, Error> {
        match self {
            Self::V4(packet) => Ok(packet.upper()),
            Self::V6(packet) => packet.upper(),
        }
    }

    /// Returns the addresses for checksums of the payload.
    #[must_use]
    pub fn pseudo(&self) -> Pseudo {
        match self {
            Self::V4(packet) => packet.pseudo(),
            Self::V6(packet) => packet.pseudo(),
        }
    }
}

impl Upper<'_> {
    /// Says whether a header begins the payload: so in a whole packet, and in the first fragment.
    #[must_use]
    pub fn has_header(&self) -> bool {
        self.fragment.is_none_or(|fragment| fragment.offset == 0)
    }

    /// Says whether other packets carry the rest. An only fragment [RFC 6946] has no rest.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        self.fragment.is_some_and(|fragment| fragment.offset != 0 || fragment.more)
    }
}

impl Fragment {
    /// Returns the offset; its lowest three bits have other uses in headers.
    pub(crate) fn offset_field(self, layer: Layer) -> Result<u16, Error> {
        let value = self.offset;
        if value.is_multiple_of(8) {
            Ok(value)
        } else {
            Err(Error::Invalid { layer, field: "fragment offset", value: value.into() })
        }
    }
}

impl Pseudo {
    /// Begins the sum over a message of `len` bytes.
    #[must_use]
    pub fn sum(self, protocol: u8, len: usize) -> Sum {
        let addresses = match self {
            Self::V4(source, destination) => {
                Sum::default().with(&source.octets()).with(&destination.octets())
            }
            Self::V6(source, destination) => {
                Sum::default().with(&source.octets()).with(&destination.octets())
            }
        };
        addresses.with(&(len as u64).to_be_bytes()).with_u16(protocol.into())
    }
}

fn version(bytes: &[u8]) -> Result<u8, Error> {
    // IPv4 has the shorter header.
    let first = bytes.first().ok_or(Error::Short { layer: Layer::Ipv4, need: 20, have: 0 })?;
    match first >> 4 {
        version @ (4 | 6) => Ok(version),
        other => Err(Error::Invalid { layer: Layer::Ipv4, field: "version", value: other.into() }),
    }
}
