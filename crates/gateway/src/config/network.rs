//! Networks as prefixes, and what a peer may reach.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// A range of addresses that share a prefix, as in `10.0.0.0/8` or `2001:db8::/32`; one address is a network too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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
    /// What stands after the slash is no prefix length of that family.
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

    /// Turns a range of IPv4 addresses that are mapped into IPv6 into the IPv4 network, as which addresses are looked
    /// up.
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

    /// Returns the length of the prefix in bits.
    pub fn prefix(&self) -> u8 {
        self.prefix
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

/// Which addresses a peer may reach through this gateway.
///
/// In this order: what names no host (unspecified, multicast, broadcast) is denied; `deny` denies; `allow`, if
/// given, allows and everything else is denied; link-local addresses are denied unless `allow` names them, for
/// they are the link's routers and cloud metadata services; the rest is allowed. The gateway's own sockets are
/// denied by the code that connects, which knows where they are bound.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// What may be reached; none means everything. An empty list means nothing.
    pub allow: Option<Vec<Network>>,
    /// What may not be reached even if `allow` names it.
    pub deny: Vec<Network>,
}

impl Access {
    /// Says whether the peer may reach an address.
    pub fn permits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return false;
        }
        if self.deny.iter().any(|network| network.contains(ip)) {
            return false;
        }
        match &self.allow {
            // A network that only happens to hold them was not written with them in mind.
            Some(allow) => allow.iter().any(|network| {
                network.contains(ip) && (!is_link_local(ip) || is_link_local(network.address))
            }),
            None => !is_link_local(ip),
        }
    }
}

/// Says whether an address is good on one link only (RFC 3927, RFC 4291 §2.5.6).
fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
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
    fn a_network_holds_what_shares_its_prefix() {
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
    fn a_text_that_is_no_network_says_why() {
        let error = |text: &str| text.parse::<Network>().unwrap_err().to_string();
        assert!(error("10.0.0.1/8").contains("did you mean \"10.0.0.0/8\"?"));
        assert!(error("10.0.0.0/33").contains("from 0 to 32"));
        assert!(error("10.0.0.0/").contains("from 0 to 32"));
        assert!(error("10.0.0.0/+8").contains("from 0 to 32"));
        assert!(error("example.net").contains("is not a network"));
    }

    #[test]
    fn link_local_addresses_must_be_allowed_by_name() {
        let open = Access::default();
        assert!(open.permits(ip("10.0.0.1")) && open.permits(ip("127.0.0.1")));
        for denied in
            ["169.254.169.254", "fe80::1", "0.0.0.0", "::", "224.0.0.1", "ff02::1", "255.255.255.255"]
        {
            assert!(!open.permits(ip(denied)), "{denied}");
        }
        assert!(!open.permits(ip("::ffff:169.254.169.254")));
        let everything = Access { allow: Some(vec![network("0.0.0.0/0")]), deny: vec![] };
        assert!(everything.permits(ip("10.0.0.1")) && !everything.permits(ip("169.254.169.254")));
        let halves = Access { allow: Some(vec![network("0.0.0.0/1"), network("128.0.0.0/1")]), deny: vec![] };
        assert!(halves.permits(ip("192.0.2.1")) && !halves.permits(ip("169.254.169.254")));
        let named = Access { allow: Some(vec![network("169.254.0.0/16")]), deny: vec![] };
        assert!(named.permits(ip("169.254.169.254")) && !named.permits(ip("10.0.0.1")));
    }

    #[test]
    fn deny_wins_over_allow_and_an_empty_allow_list_allows_nothing() {
        let access = Access { allow: Some(vec![network("10.0.0.0/8")]), deny: vec![network("10.9.0.0/16")] };
        assert!(access.permits(ip("10.1.0.1")));
        assert!(!access.permits(ip("10.9.0.1")));
        assert!(!access.permits(ip("192.168.0.1")));
        assert!(!Access { allow: Some(vec![]), deny: vec![] }.permits(ip("10.0.0.1")));
    }
}
