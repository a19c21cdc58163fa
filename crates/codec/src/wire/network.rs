//! Networks: ranges of addresses sharing a prefix.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use super::names::{put_ip, take_ip};
use super::reader::{Reader, WireError};

/// A range of addresses sharing a prefix, as in `10.0.0.0/8` or `2001:db8::/32`; one address is a network too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Network {
    address: IpAddr,
    prefix: u8,
}

/// Why a text is not a network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkError {
    /// What stands before the slash is no address.
    #[error("{0:?} is not a network; write an address and a prefix length such as \"10.0.0.0/8\"")]
    NotAnAddress(String),
    /// The text behind the slash is no prefix length of that family.
    #[error("{0:?} is not a network; the prefix length goes from 0 to {1}")]
    BadPrefix(String, u8),
    /// The address has bits beyond the prefix.
    #[error("{0:?} has bits beyond its prefix; did you mean \"{1}\"?")]
    HostBits(String, Network),
}

impl Network {
    /// Returns the network of `prefix` bits around `address`; prefixes beyond the address's length count as that.
    pub fn around(address: IpAddr, prefix: u8) -> Self {
        let (address, longest) = match address {
            IpAddr::V4(ip) => {
                let dropped = u32::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                (IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & !dropped)), 32)
            }
            IpAddr::V6(ip) => {
                let dropped = u128::MAX.checked_shr(u32::from(prefix)).unwrap_or(0);
                (IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & !dropped)), 128)
            }
        };
        Self { address, prefix: prefix.min(longest) }
    }

    /// Turns a range of IPv4 addresses mapped into IPv6 into the IPv4 network, as which addresses are looked up.
    fn to_canonical(self) -> Self {
        match (self.address.to_canonical(), self.prefix.checked_sub(96)) {
            (address @ IpAddr::V4(_), Some(prefix)) if self.address.is_ipv6() => Self { address, prefix },
            _ => self,
        }
    }

    /// Says whether the network holds an address; an IPv4 address mapped into IPv6 counts as IPv4.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_ipv4() == self.address.is_ipv4() && Self::around(ip, self.prefix).address == self.address
    }

    /// Says whether the network holds every address of another.
    pub fn covers(&self, other: &Self) -> bool {
        self.prefix <= other.prefix && self.contains(other.address)
    }

    /// Says whether some address is in both networks, which is so only if one holds all of the other.
    pub fn overlaps(&self, other: &Self) -> bool {
        self.covers(other) || other.covers(self)
    }

    /// Returns the first address, all of whose bits beyond the prefix are 0.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Says whether its addresses are IPv4's.
    pub fn is_ipv4(&self) -> bool {
        self.address.is_ipv4()
    }

    /// Returns the length of the prefix in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
    }
}

impl Network {
    /// Appends the wire form: address and length of the prefix.
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_ip(out, self.address);
        out.push(self.prefix);
    }

    /// Reads the wire form.
    ///
    /// # Errors
    /// An unknown kind of address, a prefix that is too long, bits beyond it, or an IPv4 network in IPv6 form.
    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self, WireError> {
        let kind = reader.byte("network")?;
        let (address, prefix) = (take_ip(kind, reader)?, reader.byte("network")?);
        let network = Self { address, prefix };
        // One network has one form, so equal ones are found to be so.
        if network != Self::around(address, prefix) || network != network.to_canonical() {
            return Err(WireError::Invalid("network"));
        }
        Ok(network)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.prefix)
    }
}

impl FromStr for Network {
    type Err = NetworkError;

    fn from_str(text: &str) -> Result<Self, NetworkError> {
        let (address, prefix) =
            text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().map_err(|_| NetworkError::NotAnAddress(text.to_owned()))?;
        let longest = if address.is_ipv4() { 32 } else { 128 };
        let prefix = match prefix {
            None => longest,
            Some(digits) => digits
                .parse()
                .ok()
                .filter(|prefix| *prefix <= longest && digits.bytes().all(|byte| byte.is_ascii_digit()))
                .ok_or_else(|| NetworkError::BadPrefix(text.to_owned(), longest))?,
        };
        let network = Self::around(address, prefix);
        if network.address == address {
            Ok(network.to_canonical())
        } else {
            Err(NetworkError::HostBits(text.to_owned(), network))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn network_holds_addresses_with_its_prefix() {
        for (net, inside, outside) in [
            ("10.0.0.0/8", "10.255.0.1", "11.0.0.0"),
            ("192.168.1.7", "192.168.1.7", "192.168.1.6"),
            ("192.168.1.6/31", "192.168.1.7", "192.168.1.8"),
            ("0.0.0.0/0", "255.1.2.3", "::1"),
            ("::/0", "2001:db8::1", "10.0.0.1"),
            ("2001:db8::/33", "2001:db8:7fff::", "2001:db8:8000::"),
            ("::1/128", "::1", "::2"),
        ] {
            assert!(network(net).contains(ip(inside)), "{inside} in {net}");
            assert!(!network(net).contains(ip(outside)), "{outside} in {net}");
            assert_eq!(network(net), network(&network(net).to_string()));
        }
        assert!(network("10.0.0.0/8").contains(ip("::ffff:10.1.2.3")), "mapped addresses are IPv4");
        assert_eq!(network("::ffff:10.0.0.0/104"), network("10.0.0.0/8"), "and so are mapped networks");
        assert_eq!(network("::ffff:10.1.2.3"), network("10.1.2.3"));
    }

    #[test]
    fn text_of_no_network_names_its_fault() {
        let error = |text: &str| text.parse::<Network>().unwrap_err().to_string();
        assert!(error("10.0.0.1/8").contains("did you mean \"10.0.0.0/8\"?"));
        assert!(error("10.0.0.0/33").contains("from 0 to 32"));
        assert!(error("10.0.0.0/").contains("from 0 to 32"));
        assert!(error("10.0.0.0/+8").contains("from 0 to 32"));
        assert!(error("example.net").contains("is not a network"));
    }

    #[test]
    fn networks_overlap_only_if_one_holds_the_other() {
        for (a, b, covers, overlaps) in [
            ("10.0.0.0/8", "10.1.0.0/16", true, true),
            ("10.1.0.0/16", "10.0.0.0/8", false, true),
            ("10.1.0.0/16", "10.1.0.0/16", true, true),
            ("10.0.0.0/16", "10.1.0.0/16", false, false),
            ("0.0.0.0/0", "2001:db8::/32", false, false),
        ] {
            let (a, b) = (network(a), network(b));
            assert_eq!(
                (a.covers(&b), a.overlaps(&b), b.overlaps(&a)),
                (covers, overlaps, overlaps),
                "{a} {b}"
            );
        }
    }
}
