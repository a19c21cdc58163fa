//! UDP [RFC 768].

use crate::checksum::never_zero;
use crate::{Error, Layer, Pseudo, protocol, room};

/// A datagram of UDP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Udp<'a> {
    header: &'a [u8; HEADER],
    payload: &'a [u8],
}

/// The independent fields of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UdpFields {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
}

impl<'a> Udp<'a> {
    /// Reads a datagram.
    ///
    /// # Errors
    /// An incomplete header, or an invalid length.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let datagram = Self::read_header(bytes)?;
        let need = datagram.datagram_len();
        let payload = datagram.payload.get(..datagram.payload_len()?);
        let payload = payload.ok_or(Error::Short { layer: LAYER, need, have: bytes.len() })?;
        Ok(Self { payload, ..datagram })
    }

    /// Reads a datagram, with or without its end.
    ///
    /// A length of zero is that of a datagram in a jumbogram [RFC 2675 §4]: its payload goes to the end of
    /// the bytes.
    ///
    /// # Errors
    /// An incomplete header, or an invalid length.
    pub fn read_cut(bytes: &'a [u8]) -> Result<Self, Error> {
        let datagram = Self::read_header(bytes)?;
        if datagram.datagram_len() == 0 {
            return Ok(datagram);
        }
        let payload = datagram.payload.get(..datagram.payload_len()?).unwrap_or(datagram.payload);
        Ok(Self { payload, ..datagram })
    }

    /// Reads the header; the payload follows it.
    fn read_header(bytes: &'a [u8]) -> Result<Self, Error> {
        let short = Error::Short { layer: LAYER, need: HEADER, have: bytes.len() };
        let (header, payload) = bytes.split_first_chunk::<HEADER>().ok_or(short)?;
        Ok(Self { header, payload })
    }

    fn payload_len(&self) -> Result<usize, Error> {
        let len = self.datagram_len();
        len.checked_sub(HEADER).ok_or(Error::Invalid { layer: LAYER, field: "length", value: len as u32 })
    }

    /// Returns the source port.
    #[must_use]
    pub fn source_port(&self) -> u16 {
        u16::from_be_bytes([self.header[0], self.header[1]])
    }

    /// Returns the destination port.
    #[must_use]
    pub fn destination_port(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    /// Returns the length of header and payload as the header has it.
    #[must_use]
    pub fn datagram_len(&self) -> usize {
        u16::from_be_bytes([self.header[4], self.header[5]]).into()
    }

    /// Returns the checksum; zero stands for none.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[6], self.header[7]])
    }

    /// Says whether the checksum is right, for a whole datagram. It may be missing in IPv4 alone.
    #[must_use]
    pub fn verify(&self, pseudo: Pseudo) -> bool {
        if self.checksum() == 0 {
            return matches!(pseudo, Pseudo::V4(..));
        }
        let len = HEADER + self.payload.len();
        pseudo.sum(protocol::UDP, len).with(self.header).with(self.payload).finish() == 0
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the fields to write another header with.
    #[must_use]
    pub fn fields(&self) -> UdpFields {
        UdpFields { source_port: self.source_port(), destination_port: self.destination_port() }
    }
}

impl UdpFields {
    /// Writes a datagram and returns its length.
    ///
    /// # Errors
    /// More than 65,527 bytes of payload, or too small a buffer.
    pub fn write(&self, payload: &[u8], pseudo: Pseudo, into: &mut [u8]) -> Result<usize, Error> {
        let most = usize::from(u16::MAX) - HEADER;
        let len = HEADER + room::at_most(payload.len(), most, "payload", LAYER)?;
        let (datagram, _) = room::split(into, len, LAYER)?;
        let (header, rest) = room::header::<HEADER>(datagram, LAYER)?;
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..6].copy_from_slice(&(len as u16).to_be_bytes());
        header[6..8].fill(0);
        room::put(rest, payload, LAYER)?;
        let checksum = pseudo.sum(protocol::UDP, len).with(header).with(payload).finish();
        header[6..8].copy_from_slice(&never_zero(checksum).to_be_bytes());
        Ok(len)
    }
}

const LAYER: Layer = Layer::Udp;
const HEADER: usize = 8;
