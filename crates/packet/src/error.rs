//! Errors of reading and writing packets.

use std::fmt;

/// The part of a packet with a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// IPv4, with its payload as far as its total length says.
    Ipv4,
    /// An option of IPv4.
    Ipv4Option,
    /// IPv6, with its payload as far as its payload length says.
    Ipv6,
    /// An extension header of IPv6.
    Ipv6Extension,
    /// TCP.
    Tcp,
    /// An option of TCP.
    TcpOption,
    /// UDP, with its payload as far as its length says.
    Udp,
    /// ICMP of IPv4.
    Icmp,
    /// ICMPv6.
    Icmpv6,
}

/// An unreadable or unwritable packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The packet ends too early.
    #[error("{layer}: {need} bytes are needed, and {have} are there")]
    Short {
        /// The incomplete part.
        layer: Layer,
        /// Bytes from the start of this part, at least.
        need: usize,
        /// Bytes from the start of this part to the end.
        have: usize,
    },
    /// A field has a value that contradicts the format.
    #[error("{layer}: the {field} is {value}")]
    Invalid {
        /// The part with the field.
        layer: Layer,
        /// Name of the field.
        field: &'static str,
        /// Its value, in the unit of the field.
        value: u32,
    },
    /// The input does not fit the format.
    #[error("{layer}: {len} bytes of {field} are too many, the most is {most}")]
    TooLong {
        /// The part being written.
        layer: Layer,
        /// The field of excessive length.
        field: &'static str,
        /// The format's limit in bytes.
        most: usize,
        /// Bytes to be written.
        len: usize,
    },
    /// The buffer is too small.
    #[error("{layer}: {need} bytes are to be written, and the buffer has {room}")]
    NoRoom {
        /// The part being written.
        layer: Layer,
        /// Bytes of this part.
        need: usize,
        /// Bytes left in the buffer.
        room: usize,
    },
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "IPv4",
            Self::Ipv4Option => "option of IPv4",
            Self::Ipv6 => "IPv6",
            Self::Ipv6Extension => "extension header of IPv6",
            Self::Tcp => "TCP",
            Self::TcpOption => "option of TCP",
            Self::Udp => "UDP",
            Self::Icmp => "ICMP",
            Self::Icmpv6 => "ICMPv6",
        })
    }
}
