//! IPv4 [RFC 791].

use std::net::Ipv4Addr;

use crate::checksum::Sum;
use crate::options::Options;
use crate::{Error, Fragment, Layer, Pseudo, Upper, room};

/// A packet of IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4<'a> {
    header: &'a [u8; HEADER],
    options: &'a [u8],
    payload: &'a [u8],
    is_cut: bool,
}

/// The independent fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv4Fields {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// The number common to all fragments of one packet.
    pub identification: u16,
    /// Whether routers may not cut the packet.
    pub dont_fragment: bool,
    /// Whether another fragment follows.
    pub more_fragments: bool,
    /// Offset of a fragment in bytes, a multiple of 8.
    pub fragment_offset: u16,
    /// The remaining hops of the packet.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
}

impl<'a> Ipv4<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// Another version, or lengths in contradiction or beyond the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let packet = Self::read_header(bytes)?;
        let (need, have) = (packet.total_len(), bytes.len());
        if need < packet.header_len() {
            return Err(invalid("total length", need as u32));
        }
        packet.limit(need).filter(|packet| !packet.is_cut).ok_or(Error::Short { layer: LAYER, need, have })
    }

    /// Reads a packet, with or without its end.
    ///
    /// A total length of zero is that of a packet for segmentation by the network card (TSO): its payload
    /// goes to the end of the bytes.
    ///
    /// # Errors
    /// Another version, lengths in contradiction, or an incomplete header.
    pub fn read_cut(bytes: &'a [u8]) -> Result<Self, Error> {
        let packet = Self::read_header(bytes)?;
        match packet.total_len() {
            0 => Ok(packet),
            len => packet.limit(len).ok_or(invalid("total length", len as u32)),
        }
    }

    /// Reads the header; the payload follows it.
    fn read_header(bytes: &'a [u8]) -> Result<Self, Error> {
        let have = bytes.len();
        let (header, rest) =
            bytes.split_first_chunk::<HEADER>().ok_or(Error::Short { layer: LAYER, need: HEADER, have })?;
        if header[0] >> 4 != 4 {
            return Err(invalid("version", (header[0] >> 4).into()));
        }
        let need = header_len(header);
        let options = need.checked_sub(HEADER).ok_or(invalid("header length", need as u32))?;
        let (options, payload) =
            rest.split_at_checked(options).ok_or(Error::Short { layer: LAYER, need, have })?;
        Ok(Self { header, options, payload, is_cut: false })
    }

    /// Ends the payload at the packet's end; none if this is within the header.
    fn limit(self, total_len: usize) -> Option<Self> {
        let len = total_len.checked_sub(self.header_len())?;
        let payload = self.payload.get(..len);
        Some(Self { payload: payload.unwrap_or(self.payload), is_cut: payload.is_none(), ..self })
    }

    /// Returns the length of the header with its options: 20 to 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        header_len(self.header)
    }

    /// Returns the length of the packet as the header has it.
    #[must_use]
    pub fn total_len(&self) -> usize {
        u16::from_be_bytes([self.header[2], self.header[3]]).into()
    }

    /// Says whether bytes of the payload are missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns DSCP (the upper six bits) and ECN.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        self.header[1]
    }

    /// Returns the number common to all fragments of one packet.
    #[must_use]
    pub fn identification(&self) -> u16 {
        u16::from_be_bytes([self.header[4], self.header[5]])
    }

    /// Says whether routers may not cut the packet.
    #[must_use]
    pub fn dont_fragment(&self) -> bool {
        self.fragment_field() & DONT_FRAGMENT != 0
    }

    /// Returns the place of a fragment; none if the packet is not one.
    #[must_use]
    pub fn fragment(&self) -> Option<Fragment> {
        let field = self.fragment_field();
        let (offset, more) = ((field & OFFSET) << 3, field & MORE_FRAGMENTS != 0);
        let fragment = Fragment { offset, more, identification: self.identification().into() };
        (more || offset != 0).then_some(fragment)
    }

    /// Returns the remaining hops of the packet.
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.header[8]
    }

    /// Returns the protocol of the payload.
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.header[9]
    }

    /// Returns the checksum of the header.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[10], self.header[11]])
    }

    /// Says whether the checksum of the header is right.
    #[must_use]
    pub fn verify(&self) -> bool {
        Sum::default().with(self.header).with(self.options).finish() == 0
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> Ipv4Addr {
        let [.., a, b, c, d, _, _, _, _] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the destination address.
    #[must_use]
    pub fn destination(&self) -> Ipv4Addr {
        let [.., a, b, c, d] = *self.header;
        Ipv4Addr::new(a, b, c, d)
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> Options<'a> {
        Options::new(self.options, Layer::Ipv4Option)
    }

    /// Returns the options as they stand in the header, with their padding.
    #[must_use]
    pub fn option_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// Returns the bytes behind the header.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the payload.
    #[must_use]
    pub fn upper(&self) -> Upper<'a> {
        Upper { protocol: self.protocol(), payload: self.payload, fragment: self.fragment() }
    }

    /// Returns the addresses for checksums of the payload.
    #[must_use]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V4(self.source(), self.destination())
    }

    /// Returns the fields to write another header with.
    #[must_use]
    pub fn fields(&self) -> Ipv4Fields {
        Ipv4Fields {
            traffic_class: self.traffic_class(),
            identification: self.identification(),
            dont_fragment: self.dont_fragment(),
            more_fragments: self.fragment_field() & MORE_FRAGMENTS != 0,
            fragment_offset: (self.fragment_field() & OFFSET) << 3,
            ttl: self.ttl(),
            protocol: self.protocol(),
            source: self.source(),
            destination: self.destination(),
        }
    }

    fn fragment_field(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }
}

impl Ipv4Fields {
    /// Returns the fields of an unfragmented packet, with a TTL of 64 and no addresses.
    #[must_use]
    pub fn new(protocol: u8) -> Self {
        Self {
            traffic_class: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol,
            source: Ipv4Addr::UNSPECIFIED,
            destination: Ipv4Addr::UNSPECIFIED,
        }
    }

    /// Writes a header, with options padded to whole words, and returns the room for a payload of `payload_len` bytes.
    ///
    /// # Errors
    /// More than 40 bytes of options, more than 65,535 in all, an offset other than a multiple of 8, or too
    /// small a buffer.
    pub fn write<'b>(
        &self,
        options: &[u8],
        payload_len: usize,
        into: &'b mut [u8],
    ) -> Result<&'b mut [u8], Error> {
        let option_len = room::at_most(options.len(), MAX_OPTIONS, "options", LAYER)?.next_multiple_of(4);
        let header_len = HEADER + option_len;
        let payload_len = room::at_most(payload_len, usize::from(u16::MAX) - header_len, "payload", LAYER)?;
        let total_len = header_len + payload_len;
        let fragment = Fragment {
            offset: self.fragment_offset,
            more: self.more_fragments,
            identification: self.identification.into(),
        };
        let offset = fragment.offset_field(LAYER)? >> 3;
        let flags = (u16::from(self.dont_fragment) << 14) | (u16::from(self.more_fragments) << 13);
        let (packet, _) = room::split(into, total_len, LAYER)?;
        let (header, rest) = room::header::<HEADER>(packet, LAYER)?;
        header[0] = 0x40 | (header_len / 4) as u8;
        header[1] = self.traffic_class;
        header[2..4].copy_from_slice(&(total_len as u16).to_be_bytes());
        header[4..6].copy_from_slice(&self.identification.to_be_bytes());
        header[6..8].copy_from_slice(&(flags | offset).to_be_bytes());
        header[8] = self.ttl;
        header[9] = self.protocol;
        header[10..12].fill(0);
        header[12..16].copy_from_slice(&self.source.octets());
        header[16..20].copy_from_slice(&self.destination.octets());
        let (place, rest) = room::split(rest, option_len, LAYER)?;
        room::put(place, options, LAYER)?.fill(0);
        let checksum = Sum::default().with(header).with(place).finish();
        header[10..12].copy_from_slice(&checksum.to_be_bytes());
        Ok(rest)
    }

    /// Returns the addresses for checksums of the payload.
    #[must_use]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V4(self.source, self.destination)
    }
}

fn header_len(header: &[u8; HEADER]) -> usize {
    usize::from(header[0] & 0x0f) * 4
}

fn invalid(field: &'static str, value: u32) -> Error {
    Error::Invalid { layer: LAYER, field, value }
}

const LAYER: Layer = Layer::Ipv4;
const HEADER: usize = 20;
const MAX_OPTIONS: usize = 40;
const DONT_FRAGMENT: u16 = 0x4000;
const MORE_FRAGMENTS: u16 = 0x2000;
const OFFSET: u16 = 0x1fff;
