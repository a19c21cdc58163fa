//! IPv6 [RFC 8200].

pub(crate) mod extensions;

use std::net::Ipv6Addr;

use crate::{Error, Layer, Pseudo, Upper, protocol, room};
use extensions::Extensions;

/// A packet of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6<'a> {
    header: &'a [u8; HEADER],
    payload: &'a [u8],
    is_cut: bool,
}

/// The independent fields of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ipv6Fields {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label, 20 bits.
    pub flow_label: u32,
    /// The next header: an extension, or a protocol.
    pub next_header: u8,
    /// The remaining hops of the packet.
    pub hop_limit: u8,
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
}

impl<'a> Ipv6<'a> {
    /// Reads a packet.
    ///
    /// # Errors
    /// Another version, or lengths beyond the bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let packet = Self::read_header(bytes)?;
        let len = packet.payload_len();
        match packet.payload.get(..len) {
            Some(payload) => Ok(Self { payload, ..packet }),
            None => Err(Error::Short { layer: LAYER, need: HEADER + len, have: bytes.len() }),
        }
    }

    /// Reads a packet, with or without its end.
    ///
    /// A payload length of zero before another header is that of a jumbogram, or of a packet for segmentation
    /// by the network card (TSO): its payload goes to the end of the bytes.
    ///
    /// # Errors
    /// Another version, or an incomplete header.
    pub fn read_cut(bytes: &'a [u8]) -> Result<Self, Error> {
        let packet = Self::read_header(bytes)?;
        match (packet.payload_len(), packet.next_header()) {
            (0, next) if next != protocol::NO_NEXT_HEADER => Ok(packet),
            (len, _) => match packet.payload.get(..len) {
                Some(payload) => Ok(Self { payload, ..packet }),
                None => Ok(Self { is_cut: true, ..packet }),
            },
        }
    }

    /// Reads the header; the payload follows it.
    fn read_header(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = Error::Short { layer: LAYER, need: HEADER, have: bytes.len() };
        let (header, payload) = bytes.split_first_chunk::<HEADER>().ok_or(short)?;
        match header[0] >> 4 {
            6 => Ok(Self { header, payload, is_cut: false }),
            other => Err(Error::Invalid { layer: LAYER, field: "version", value: other.into() }),
        }
    }

    /// Returns the length of the payload as the header has it.
    #[must_use]
    pub fn payload_len(&self) -> usize {
        u16::from_be_bytes([self.header[4], self.header[5]]).into()
    }

    /// Says whether bytes of the payload are missing.
    #[must_use]
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Returns DSCP (the upper six bits) and ECN.
    #[must_use]
    pub fn traffic_class(&self) -> u8 {
        (self.first_word() >> 20) as u8
    }

    /// Returns the flow label, 20 bits.
    #[must_use]
    pub fn flow_label(&self) -> u32 {
        self.first_word() & MAX_FLOW_LABEL
    }

    /// Returns the next header: an extension, or a protocol.
    #[must_use]
    pub fn next_header(&self) -> u8 {
        self.header[6]
    }

    /// Returns the remaining hops of the packet.
    #[must_use]
    pub fn hop_limit(&self) -> u8 {
        self.header[7]
    }

    /// Returns the source address.
    #[must_use]
    pub fn source(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.header[8..24]);
        octets.into()
    }

    /// Returns the destination address.
    ///
    /// It is the next stop, not the last, before a routing header with segments left.
    #[must_use]
    pub fn destination(&self) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.header[24..40]);
        octets.into()
    }

    /// Returns the bytes behind the header, extension headers included.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the extension headers.
    #[must_use]
    pub fn extensions(&self) -> Extensions<'a> {
        Extensions::new(self.next_header(), self.payload)
    }

    /// Returns the payload behind the extension headers.
    ///
    /// # Errors
    /// An incomplete extension header.
    pub fn upper(&self) -> Result<Upper<'a>, Error> {
        let mut extensions = self.extensions();
        let mut fragment = None;
        for extension in extensions.by_ref() {
            fragment = fragment.or(extension?.fragment());
        }
        Ok(Upper { protocol: extensions.next_header(), payload: extensions.rest(), fragment })
    }

    /// Returns the addresses for checksums of the payload.
    #[must_use]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V6(self.source(), self.destination())
    }

    /// Returns the fields to write another header with.
    #[must_use]
    pub fn fields(&self) -> Ipv6Fields {
        Ipv6Fields {
            traffic_class: self.traffic_class(),
            flow_label: self.flow_label(),
            next_header: self.next_header(),
            hop_limit: self.hop_limit(),
            source: self.source(),
            destination: self.destination(),
        }
    }

    fn first_word(&self) -> u32 {
        let [a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }
}

impl Ipv6Fields {
    /// Returns the fields of a packet with a hop limit of 64 and no addresses.
    #[must_use]
    pub fn new(next_header: u8) -> Self {
        Self {
            traffic_class: 0,
            flow_label: 0,
            next_header,
            hop_limit: 64,
            source: Ipv6Addr::UNSPECIFIED,
            destination: Ipv6Addr::UNSPECIFIED,
        }
    }

    /// Writes a header and returns the room for a payload of `payload_len` bytes, extension headers included.
    ///
    /// # Errors
    /// More than 65,535 bytes of payload, a flow label of more than 20 bits, or too small a buffer.
    pub fn write<'b>(&self, payload_len: usize, into: &'b mut [u8]) -> Result<&'b mut [u8], Error> {
        room::at_most(payload_len, u16::MAX.into(), "payload", LAYER)?;
        let value = self.flow_label;
        if value > MAX_FLOW_LABEL {
            return Err(Error::Invalid { layer: LAYER, field: "flow label", value });
        }
        let (packet, _) = room::split(into, HEADER + payload_len, LAYER)?;
        let (header, rest) = room::header::<HEADER>(packet, LAYER)?;
        let first = (6 << 28) | (u32::from(self.traffic_class) << 20) | value;
        header[..4].copy_from_slice(&first.to_be_bytes());
        header[4..6].copy_from_slice(&(payload_len as u16).to_be_bytes());
        header[6] = self.next_header;
        header[7] = self.hop_limit;
        header[8..24].copy_from_slice(&self.source.octets());
        header[24..40].copy_from_slice(&self.destination.octets());
        Ok(rest)
    }

    /// Returns the addresses for checksums of the payload.
    #[must_use]
    pub fn pseudo(&self) -> Pseudo {
        Pseudo::V6(self.source, self.destination)
    }
}

const LAYER: Layer = Layer::Ipv6;
const HEADER: usize = 40;
const MAX_FLOW_LABEL: u32 = 0xf_ffff;
