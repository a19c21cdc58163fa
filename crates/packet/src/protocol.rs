//! Numbers of protocols and of IPv6's extension headers, as IANA assigns them.

/// Hop-by-hop options of IPv6; the number means nothing else in IPv4.
pub const HOP_BY_HOP: u8 = 0;
/// ICMP of IPv4.
pub const ICMP: u8 = 1;
/// TCP.
pub const TCP: u8 = 6;
/// UDP.
pub const UDP: u8 = 17;
/// Routing header of IPv6.
pub const ROUTING: u8 = 43;
/// Fragment header of IPv6.
pub const FRAGMENT: u8 = 44;
/// Encapsulating security payload; the bytes behind it are encrypted.
pub const ESP: u8 = 50;
/// Authentication header.
pub const AUTHENTICATION: u8 = 51;
/// ICMPv6.
pub const ICMPV6: u8 = 58;
/// Nothing follows in an IPv6 packet.
pub const NO_NEXT_HEADER: u8 = 59;
/// Destination options of IPv6.
pub const DESTINATION_OPTIONS: u8 = 60;
/// Mobility header.
pub const MOBILITY: u8 = 135;
/// Host identity protocol.
pub const HOST_IDENTITY: u8 = 139;
/// Shim6.
pub const SHIM6: u8 = 140;
