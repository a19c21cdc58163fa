//! The header of PROXY protocol version 2 [PROXY protocol §2.2].
//!
//! It gives a server its client's address.

use std::net::{IpAddr, SocketAddr};

/// Writes the header for a connection from `client` to `local`, an address of this gateway.
///
/// Addresses of different families are both written as IPv6. Without both of them the header declares them
/// unknown, and servers take the connection's own.
pub(super) fn header(client: Option<SocketAddr>, local: Option<SocketAddr>) -> Vec<u8> {
    let mut out = SIGNATURE.to_vec();
    out.push(VERSION_2_PROXY);
    let Some((client, local)) = client.zip(local) else {
        out.extend_from_slice(&[UNSPECIFIED, 0, 0]);
        return out;
    };
    match (client.ip().to_canonical(), local.ip().to_canonical()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[TCP_OVER_IPV4, 0, 12]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
        }
        (from, to) => {
            out.extend_from_slice(&[TCP_OVER_IPV6, 0, 36]);
            out.extend_from_slice(&as_v6(from));
            out.extend_from_slice(&as_v6(to));
        }
    }
    out.extend_from_slice(&client.port().to_be_bytes());
    out.extend_from_slice(&local.port().to_be_bytes());
    out
}

fn as_v6(ip: IpAddr) -> [u8; 16] {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    }
}

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";

/// Version 2, and the command for proxied connections.
const VERSION_2_PROXY: u8 = 0x21;

const UNSPECIFIED: u8 = 0x00;
const TCP_OVER_IPV4: u8 = 0x11;
const TCP_OVER_IPV6: u8 = 0x21;

#[cfg(test)]
mod tests {
    use super::*;

    fn header_of(client: &str, local: &str) -> Vec<u8> {
        header(client.parse().ok(), local.parse().ok())
    }

    #[test]
    fn both_families_are_written_byte_by_byte() {
        let v4 = header_of("192.0.2.7:4660", "198.51.100.1:80");
        let expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c\xc0\0\x02\x07\xc6\x33\x64\x01\x12\x34\0\x50";
        assert_eq!(v4, expected);
        let v6 = header_of("[2001:db8::7]:4660", "[2001:db8::1]:443");
        let mut expected = b"\r\n\r\n\0\r\nQUIT\n\x21\x21\0\x24".to_vec();
        for last in [7, 1] {
            expected.extend_from_slice(b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0");
            expected.push(last);
        }
        expected.extend_from_slice(b"\x12\x34\x01\xbb");
        assert_eq!(v6, expected);
    }

    #[test]
    fn addresses_of_two_families_are_both_written_as_ipv6() {
        let mixed = header_of("192.0.2.7:4660", "[2001:db8::1]:80");
        assert_eq!(mixed[12..16], [0x21, 0x21, 0, 36]);
        assert_eq!(mixed[16..32], *b"\0\0\0\0\0\0\0\0\0\0\xff\xff\xc0\0\x02\x07");
        assert_eq!(mixed.len(), 16 + 36);
        // An IPv4 address mapped into IPv6 counts as IPv4.
        assert_eq!(header_of("[::ffff:192.0.2.7]:1", "198.51.100.1:80")[13], 0x11);
    }

    #[test]
    fn without_an_address_the_header_says_so() {
        let unknown = b"\r\n\r\n\0\r\nQUIT\n\x21\0\0\0";
        assert_eq!(header_of("", "198.51.100.1:80"), unknown);
        assert_eq!(header_of("192.0.2.7:4660", ""), unknown);
    }
}
