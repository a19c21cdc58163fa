//! ICMP of IPv4 [RFC 792] and ICMPv6 [RFC 4443].

use crate::{Error, Ip, Ipv4, Ipv6, Layer, Pseudo, checksum, protocol, room};

/// A message of IPv4's ICMP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmp<'a>(Message<'a>);

/// A message of ICMPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Icmpv6<'a>(Message<'a>);

/// Number and count of an echo request or reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Echo {
    /// The sender of the request.
    pub identifier: u16,
    /// The number of the request, by this sender.
    pub sequence: u16,
}

/// The independent fields of a message of either version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IcmpFields {
    /// Type, see [`icmp_kind`] and [`icmpv6_kind`].
    pub kind: u8,
    /// Code within the type.
    pub code: u8,
    /// Four bytes; their meaning depends on the type.
    pub parameter: [u8; 4],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message<'a> {
    header: &'a [u8; HEADER],
    body: &'a [u8],
}

/// Types of IPv4's ICMP.
pub mod icmp_kind {
    /// Answer to an echo request.
    pub const ECHO_REPLY: u8 = 0;
    /// The destination cannot be reached.
    pub const UNREACHABLE: u8 = 3;
    /// Slow down; deprecated by RFC 6633.
    pub const SOURCE_QUENCH: u8 = 4;
    /// Another router is nearer.
    pub const REDIRECT: u8 = 5;
    /// Asks for an echo.
    pub const ECHO_REQUEST: u8 = 8;
    /// The TTL or the time for reassembly is over.
    pub const TIME_EXCEEDED: u8 = 11;
    /// A header cannot be read.
    pub const PARAMETER_PROBLEM: u8 = 12;
}

/// Types of ICMPv6. Those below 128 are errors.
pub mod icmpv6_kind {
    /// The destination cannot be reached.
    pub const UNREACHABLE: u8 = 1;
    /// The next link takes only smaller packets.
    pub const TOO_BIG: u8 = 2;
    /// The hop limit or the time for reassembly is over.
    pub const TIME_EXCEEDED: u8 = 3;
    /// A header cannot be read.
    pub const PARAMETER_PROBLEM: u8 = 4;
    /// Asks for an echo.
    pub const ECHO_REQUEST: u8 = 128;
    /// Answer to an echo request.
    pub const ECHO_REPLY: u8 = 129;
    /// First type of neighbour discovery [RFC 4861], a router solicitation.
    pub const ROUTER_SOLICITATION: u8 = 133;
    /// Last type of neighbour discovery [RFC 4861].
    pub const REDIRECT: u8 = 137;
}

impl<'a> Icmp<'a> {
    /// Reads a message; its end may be missing.
    ///
    /// # Errors
    /// Less than 8 bytes.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        Message::read(bytes, Layer::Icmp).map(Self)
    }

    /// Returns the type, see [`icmp_kind`].
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.header[0]
    }

    /// Returns the code within the type.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.0.header[1]
    }

    /// Returns the checksum.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.0.checksum()
    }

    /// Says whether the checksum is right, for a whole message.
    #[must_use]
    pub fn verify(&self) -> bool {
        self.0.sum(checksum::Sum::default()).finish() == 0
    }

    /// Returns the bytes behind the first 8.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.0.body
    }

    /// Returns the beginning of the packet quoted by an error; none if this is no error.
    ///
    /// Extensions behind it [RFC 4884] are not part of it; padding before them is.
    #[must_use]
    pub fn quoted_bytes(&self) -> Option<&'a [u8]> {
        use icmp_kind::*;
        match self.kind() {
            UNREACHABLE | TIME_EXCEEDED | PARAMETER_PROBLEM => {
                Some(self.0.quoted(usize::from(self.0.header[5]) * 4))
            }
            SOURCE_QUENCH | REDIRECT => Some(self.0.body),
            _ => None,
        }
    }

    /// Reads the packet quoted by an error, without its end; none if this is no error.
    #[must_use]
    pub fn quoted(&self) -> Option<Result<Ip<'a>, Error>> {
        Some(Ipv4::read_cut(self.quoted_bytes()?).map(Ip::V4))
    }

    /// Returns the MTU of the next link if a packet was too big for it, 0 from routers before RFC 1191.
    #[must_use]
    pub fn mtu(&self) -> Option<u16> {
        let is_too_big = (self.kind(), self.code()) == (icmp_kind::UNREACHABLE, FRAGMENTATION_NEEDED);
        is_too_big.then(|| u16::from_be_bytes([self.0.header[6], self.0.header[7]]))
    }

    /// Returns number and count of an echo request or reply; none if this is another message.
    #[must_use]
    pub fn echo(&self) -> Option<Echo> {
        matches!(self.kind(), icmp_kind::ECHO_REQUEST | icmp_kind::ECHO_REPLY).then(|| self.0.echo())
    }

    /// Returns the fields to write another message with.
    #[must_use]
    pub fn fields(&self) -> IcmpFields {
        self.0.fields()
    }
}

impl<'a> Icmpv6<'a> {
    /// Reads a message; its end may be missing.
    ///
    /// # Errors
    /// Less than 8 bytes. Linux drops shorter ones, too.
    pub fn read(bytes: &'a [u8]) -> Result<Self, Error> {
        Message::read(bytes, Layer::Icmpv6).map(Self)
    }

    /// Returns the type, see [`icmpv6_kind`].
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.header[0]
    }

    /// Returns the code within the type.
    #[must_use]
    pub fn code(&self) -> u8 {
        self.0.header[1]
    }

    /// Returns the checksum.
    #[must_use]
    pub fn checksum(&self) -> u16 {
        self.0.checksum()
    }

    /// Says whether the checksum is right, for a whole message.
    #[must_use]
    pub fn verify(&self, pseudo: Pseudo) -> bool {
        self.0.sum(pseudo.sum(protocol::ICMPV6, self.0.len())).finish() == 0
    }

    /// Returns the bytes behind the first 8.
    #[must_use]
    pub fn body(&self) -> &'a [u8] {
        self.0.body
    }

    /// Returns the beginning of the packet quoted by an error; none if this is no error.
    ///
    /// Extensions behind it [RFC 4884] are not part of it; padding before them is.
    #[must_use]
    pub fn quoted_bytes(&self) -> Option<&'a [u8]> {
        use icmpv6_kind::*;
        match self.kind() {
            UNREACHABLE | TIME_EXCEEDED => Some(self.0.quoted(usize::from(self.0.header[4]) * 8)),
            TOO_BIG | PARAMETER_PROBLEM => Some(self.0.body),
            _ => None,
        }
    }

    /// Reads the packet quoted by an error, without its end; none if this is no error.
    #[must_use]
    pub fn quoted(&self) -> Option<Result<Ip<'a>, Error>> {
        Some(Ipv6::read_cut(self.quoted_bytes()?).map(Ip::V6))
    }

    /// Returns the MTU of the next link if a packet was too big for it.
    #[must_use]
    pub fn mtu(&self) -> Option<u32> {
        (self.kind() == icmpv6_kind::TOO_BIG).then(|| u32::from_be_bytes(self.0.fields().parameter))
    }

    /// Returns number and count of an echo request or reply; none if this is another message.
    #[must_use]
    pub fn echo(&self) -> Option<Echo> {
        matches!(self.kind(), icmpv6_kind::ECHO_REQUEST | icmpv6_kind::ECHO_REPLY).then(|| self.0.echo())
    }

    /// Returns the fields to write another message with.
    #[must_use]
    pub fn fields(&self) -> IcmpFields {
        self.0.fields()
    }
}

impl<'a> Message<'a> {
    fn read(bytes: &'a [u8], layer: Layer) -> Result<Self, Error> {
        let short = Error::Short { layer, need: HEADER, have: bytes.len() };
        let (header, body) = bytes.split_first_chunk::<HEADER>().ok_or(short)?;
        Ok(Self { header, body })
    }

    fn len(&self) -> usize {
        HEADER + self.body.len()
    }

    fn checksum(&self) -> u16 {
        u16::from_be_bytes([self.header[2], self.header[3]])
    }

    fn sum(&self, before: checksum::Sum) -> checksum::Sum {
        before.with(self.header).with(self.body)
    }

    /// Returns the quoted part of the body, if `len` gives its length.
    fn quoted(&self, len: usize) -> &'a [u8] {
        self.body.get(..len).filter(|_| len > 0).unwrap_or(self.body)
    }

    fn parameter(&self) -> [u8; 4] {
        let [.., a, b, c, d] = *self.header;
        [a, b, c, d]
    }

    fn echo(&self) -> Echo {
        let [a, b, c, d] = self.parameter();
        Echo { identifier: u16::from_be_bytes([a, b]), sequence: u16::from_be_bytes([c, d]) }
    }

    fn fields(&self) -> IcmpFields {
        IcmpFields { kind: self.header[0], code: self.header[1], parameter: self.parameter() }
    }
}

impl IcmpFields {
    /// Returns the length of a message with this body.
    #[must_use]
    pub fn len(&self, body: &[u8]) -> usize {
        HEADER + body.len()
    }

    /// Writes a message of IPv4's ICMP and returns its length.
    ///
    /// # Errors
    /// Too small a buffer.
    pub fn write(&self, body: &[u8], into: &mut [u8]) -> Result<usize, Error> {
        self.write_after(checksum::Sum::default(), body, into, Layer::Icmp)
    }

    /// Writes a message of ICMPv6 and returns its length.
    ///
    /// # Errors
    /// Too small a buffer.
    pub fn write_v6(&self, body: &[u8], pseudo: Pseudo, into: &mut [u8]) -> Result<usize, Error> {
        let sum = pseudo.sum(protocol::ICMPV6, self.len(body));
        self.write_after(sum, body, into, Layer::Icmpv6)
    }

    fn write_after(
        &self,
        sum: checksum::Sum,
        body: &[u8],
        into: &mut [u8],
        layer: Layer,
    ) -> Result<usize, Error> {
        let len = self.len(body);
        let (message, _) = room::split(into, len, layer)?;
        let (header, rest) = room::header::<HEADER>(message, layer)?;
        let [a, b, c, d] = self.parameter;
        *header = [self.kind, self.code, 0, 0, a, b, c, d];
        room::put(rest, body, layer)?;
        let checksum = sum.with(header).with(body).finish();
        header[2..4].copy_from_slice(&checksum.to_be_bytes());
        Ok(len)
    }
}

const HEADER: usize = 8;
/// Code of an unreachable destination that needs smaller packets.
const FRAGMENTATION_NEEDED: u8 = 4;
