//! The addresses of hosts.
//!
//! Site *s*, counted from 1, branches first, has the LAN 198.18.*s*.0/24 and fd18:*s*::/64, with its gateway at
//! `.1` and hosts from `.2`; and the line 198.19.*s*.0/24 and fd19:*s*::/64, with its gateway at `.1` and the core
//! at `.2`. All of it is in the range for benchmarks [RFC 2544] and in unique local addresses [RFC 4193].

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A version of IP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, for tests with each.
    pub const BOTH: [Self; 2] = [Self::V4, Self::V6];
}

/// The addresses of one interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pair {
    pub(crate) v4: Ipv4Addr,
    pub(crate) v6: Ipv6Addr,
}

impl Pair {
    /// Host `host` of the LAN of `site`; the gateway is 1.
    pub(crate) fn lan(site: u8, host: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(198, 18, site, host),
            v6: Ipv6Addr::new(0xfd18, u16::from(site), 0, 0, 0, 0, 0, u16::from(host)),
        }
    }

    /// An end of the line of `site`: the gateway is 1, the core 2.
    pub(crate) fn line(site: u8, end: u8) -> Self {
        Self {
            v4: Ipv4Addr::new(198, 19, site, end),
            v6: Ipv6Addr::new(0xfd19, u16::from(site), 0, 0, 0, 0, 0, u16::from(end)),
        }
    }

    pub(crate) fn of(self, family: Family) -> IpAddr {
        match family {
            Family::V4 => self.v4.into(),
            Family::V6 => self.v6.into(),
        }
    }
}
