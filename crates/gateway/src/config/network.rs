//! What a peer may reach.

use std::net::{IpAddr, Ipv4Addr};

pub use oncewire_codec::wire::{Network, NetworkError};

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
                network.contains(ip) && (!is_link_local(ip) || is_link_local(network.address()))
            }),
            None => !is_link_local(ip),
        }
    }

    /// Says whether some address of a network may be reached, as far as whole networks tell.
    pub fn permits_some_of(&self, network: &Network) -> bool {
        let denied = self.deny.iter().any(|deny| deny.covers(network));
        let allowed =
            self.allow.as_ref().is_none_or(|allow| allow.iter().any(|allow| allow.overlaps(network)));
        allowed && !denied
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
    fn a_network_of_which_nothing_may_be_reached_is_known_as_such() {
        let access = Access { allow: Some(vec![network("10.0.0.0/8")]), deny: vec![network("10.9.0.0/16")] };
        for (told, some) in
            [("10.1.0.0/16", true), ("0.0.0.0/0", true), ("10.9.1.0/24", false), ("192.168.0.0/16", false)]
        {
            assert_eq!(access.permits_some_of(&network(told)), some, "{told}");
        }
        assert!(Access::default().permits_some_of(&network("10.9.0.0/16")));
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
