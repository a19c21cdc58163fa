//! TCP [RFC 9293].

pub(crate) mod flags;
pub(crate) mod options;

use crate::{Error, Layer, Pseudo, protocol, room};
use flags::TcpFlags;
use options::{TcpOption, TcpOptions};

/// A segment of TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp<'a> {
    header: &'a [u8; HEADER],
    options: &'a [u8],
    payload: &'a [u8],
}

/// The independent fields of a header.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpFields {
    /// Source port.
    pub source_port: u16,
    /// Destination port.
    pub destination_port: u16,
    /// Number of the first byte, or of SYN.
    pub sequence: u32,
    /// Number of the byte expected next; it counts with [`TcpFlags::ACK`].
    pub acknowledgment: u32,
    /// Flags.
    pub flags: TcpFlags,
    /// Window, not scaled.
    pub window: u16,
    /// Urgent pointer; it counts with [`TcpFlags::URG`].
    pub urgent: u16,
}

impl<'a> Tcp<'a> {
    /// Reads a whole segment.
    ///
    /// # Errors
    /// An incomplete header, or one with an invalid length.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        let (segment, len) = Self::read_fixed(bytes)?;
        let short = Error::Short { layer: LAYER, need: HEADER + len, have: bytes.len() };
        let (options, payload) = segment.payload.split_at_checked(len).ok_or(short)?;
        Ok(Self { options, payload, ..segment })
    }

    /// Reads a segment; its end may be missing, from the options on.
    ///
    /// # Errors
    /// Less than the 20 bytes before options, or an invalid length of the header.
    pub fn read_cut(bytes: &'a [u8]) -> Result<Self, Error> {
        let (segment, len) = Self::read_fixed(bytes)?;
        let split = segment.payload.split_at_checked(len);
        let (options, payload) = split.unwrap_or((segment.payload, &[]));
        Ok(Self { options, payload, ..segment })
    }

    /// Reads the header up to its options, and returns their length, too; the payload follows.
    fn read_fixed(bytes: &'a [u8]) -> Result<(Self, usize), Error> {
        let short = Error::Short { layer: LAYER, need: HEADER, have: bytes.len() };
        let (header, payload) = bytes.split_first_chunk::<HEADER>().ok_or(short)?;
        let len = usize::from(header[12] >> 4) * 4;
        let invalid = Error::Invalid { layer: LAYER, field: "header length", value: len as u32 };
        let len = len.checked_sub(HEADER).ok_or(invalid)?;
        Ok((Self { header, options: &[], payload }, len))
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

    /// Returns the number of the first byte, or of SYN.
    #[must_use]
    pub fn sequence(&self) -> u32 {
        let [_, _, _, _, a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the number of the byte expected next; it counts with [`TcpFlags::ACK`].
    #[must_use]
    pub fn acknowledgment(&self) -> u32 {
        let [_, _, _, _, _, _, _, _, a, b, c, d, ..] = *self.header;
        u32::from_be_bytes([a, b, c, d])
    }

    /// Returns the length of the header with its options as the header has it: 20 to 60.
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.header[12] >> 4) * 4
    }

    /// Returns the flags.
    #[must_use]
    pub fn flags(&self) -> TcpFlags {
        TcpFlags::from_bits(u16::from_be_bytes([self.header[12], self.header[13]]))
    }

    /// Returns the window, not scaled.
    #[must_use]
    pub fn window(&self) -> u16 {
        u16::from_be_bytes([self.header[14], self.header[15]])
    }

    /// Returns the checksum.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[16], self.header[17]])
    }

    /// Returns the urgent pointer; it counts with [`TcpFlags::URG`].
    #[must_use]
    pub fn urgent(&self) -> u16 {
        u16::from_be_bytes([self.header[18], self.header[19]])
    }

    /// Says whether the checksum is right, for a whole segment.
    #[must_use]
    pub fn verify(&self, pseudo: Pseudo) -> bool {
        let len = HEADER + self.options.len() + self.payload.len();
        pseudo.sum(protocol::TCP, len).with(self.header).with(self.options).with(self.payload).finish() == 0
    }

    /// Returns the options.
    #[must_use]
    pub fn options(&self) -> TcpOptions<'a> {
        TcpOptions::new(self.options)
    }

    /// Returns the options as they stand in the header, with their padding.
    #[must_use]
    pub fn option_bytes(&self) -> &'a [u8] {
        self.options
    }

    /// Returns the payload.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Returns the fields to write another header with.
    #[must_use]
    pub fn fields(&self) -> TcpFields {
        TcpFields {
            source_port: self.source_port(),
            destination_port: self.destination_port(),
            sequence: self.sequence(),
            acknowledgment: self.acknowledgment(),
            flags: self.flags(),
            window: self.window(),
            urgent: self.urgent(),
        }
    }
}

impl TcpFields {
    /// Returns the length of a segment with these options and this payload.
    ///
    /// # Errors
    /// More than 40 bytes of options.
    pub fn len(&self, options: &[TcpOption<'_>], payload: &[u8]) -> Result<usize, Error> {
        Ok(HEADER + padded_len(options)? + payload.len())
    }

    /// Writes a segment, with options padded to whole words, and returns its length.
    ///
    /// # Errors
    /// More than 40 bytes of options, or too small a buffer.
    pub fn write(
        &self,
        options: &[TcpOption<'_>],
        payload: &[u8],
        pseudo: Pseudo,
        into: &mut [u8],
    ) -> Result<usize, Error> {
        let option_len = padded_len(options)?;
        let header_len = HEADER + option_len;
        let len = header_len + payload.len();
        let (segment, _) = room::split(into, len, LAYER)?;
        let (header, rest) = room::header::<HEADER>(segment, LAYER)?;
        header[..2].copy_from_slice(&self.source_port.to_be_bytes());
        header[2..4].copy_from_slice(&self.destination_port.to_be_bytes());
        header[4..8].copy_from_slice(&self.sequence.to_be_bytes());
        header[8..12].copy_from_slice(&self.acknowledgment.to_be_bytes());
        let first = ((header_len / 4) as u16) << 12 | self.flags.bits();
        header[12..14].copy_from_slice(&first.to_be_bytes());
        header[14..16].copy_from_slice(&self.window.to_be_bytes());
        header[16..18].fill(0);
        header[18..20].copy_from_slice(&self.urgent.to_be_bytes());
        let (place, rest) = room::split(rest, option_len, LAYER)?;
        let mut left = &mut *place;
        for option in options {
            left = option.write(left)?;
        }
        left.fill(0);
        room::put(rest, payload, LAYER)?;
        let checksum = pseudo.sum(protocol::TCP, len).with(header).with(place).with(payload).finish();
        header[16..18].copy_from_slice(&checksum.to_be_bytes());
        Ok(len)
    }
}

/// Returns the length of options with their padding.
fn padded_len(options: &[TcpOption<'_>]) -> Result<usize, Error> {
    let len = options.iter().fold(0_usize, |sum, option| sum.saturating_add(option.len()));
    Ok(room::at_most(len, MAX_OPTIONS, "options", LAYER)?.next_multiple_of(4))
}

const LAYER: Layer = Layer::Tcp;
const HEADER: usize = 20;
const MAX_OPTIONS: usize = 40;
