//! A peer's access to destinations.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub use oncewire_codec::wire::{Network, NetworkError};

/// A peer's access list through this gateway.
///
/// In this order: addresses of no host (unspecified, multicast, broadcast) are denied; `deny` denies;
/// `allow`, if given, allows and everything else is denied; link-local addresses and those of cloud metadata
/// services are denied unless `allow` names them; the rest is allowed. An IPv6 address embedding an IPv4
/// address is denied with it. The gateway's own sockets are denied by the connecting code, with its knowledge
/// of their addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Permitted networks; none means everything. An empty list means nothing.
    pub allow: Option<Vec<Network>>,
    /// Forbidden networks, even if named by `allow`.
    pub deny: Vec<Network>,
}

impl Access {
    /// Whether the peer may reach an address.
    pub fn permits(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        let is_denied = self.denies(ip) || embedded(ip).into_iter().any(|ip| self.denies(IpAddr::V4(ip)));
        let allow = self.allow.as_ref();
        !is_denied && allow.is_none_or(|allow| allow.iter().any(|network| network.contains(ip)))
    }

    /// Whether an address is denied independent of the rest of `allow`.
    fn denies(&self, ip: IpAddr) -> bool {
        if ip.is_unspecified() || ip.is_multicast() || ip == IpAddr::V4(Ipv4Addr::BROADCAST) {
            return true;
        }
        // A network merely containing them was not written with them in mind.
        let is_named = |guarded: &Network| {
            let names = |network: &Network| network.contains(ip) && guarded.contains(network.address());
            self.allow.as_ref().is_some_and(|allow| allow.iter().any(names))
        };
        self.deny.iter().any(|network| network.contains(ip))
            || guarded().any(|guarded| guarded.contains(ip) && !is_named(&guarded))
    }

    /// Whether no address is permitted: names then need no look-up.
    pub fn permits_nothing(&self) -> bool {
        let is_denied = |allow: &Network| self.deny.iter().any(|deny| deny.covers(allow));
        self.allow.as_ref().is_some_and(|allow| allow.iter().all(is_denied))
    }

    /// Whether some address of a network may be reached, judged by whole networks.
    pub fn permits_some_of(&self, network: &Network) -> bool {
        let denied = self.deny.iter().any(|deny| deny.covers(network));
        let allowed =
            self.allow.as_ref().is_none_or(|allow| allow.iter().any(|allow| allow.overlaps(network)));
        allowed && !denied
    }
}

/// Returns the guarded networks not named by these.
pub fn unnamed(networks: &[Network]) -> Vec<Network> {
    let is_named = |guarded: &Network| networks.iter().any(|network| guarded.contains(network.address()));
    guarded().filter(|guarded| !is_named(guarded)).collect()
}

/// Returns the networks denied unless named.
fn guarded() -> impl Iterator<Item = Network> {
    GUARDED.iter().map(|(address, len)| Network::around(*address, *len))
}

/// Returns the IPv4 addresses embedded in an IPv6 address in the formats of translators, tunnels and relays.
fn embedded(ip: IpAddr) -> Vec<Ipv4Addr> {
    let IpAddr::V6(ip) = ip else { return Vec::new() };
    let bytes = ip.octets();
    let at = |places: [usize; 4]| Ipv4Addr::from(places.map(|place| bytes[place]));
    let last = at([12, 13, 14, 15]);
    match ip.segments() {
        // IPv4-compatible (RFC 4291 §2.5.5.1); `::` and `::1` are none.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 || low > 1 => vec![last],
        // IPv4-translated (RFC 2765 §2.1).
        [0, 0, 0, 0, 0xffff, 0, ..] => vec![last],
        // NAT64 at its well-known prefix (RFC 6052 §2.1).
        [0x64, 0xff9b, 0, 0, 0, 0, ..] => vec![last],
        // NAT64 at local prefixes (RFC 8215), of each length within (RFC 6052 §2.2).
        [0x64, 0xff9b, 1, ..] => {
            let of_48 = (bytes[8] == 0 && bytes[11..] == [0; 5]).then(|| at([6, 7, 9, 10]));
            let of_56 = (bytes[8] == 0 && bytes[12..] == [0; 4]).then(|| at([7, 9, 10, 11]));
            let of_64 = (bytes[8] == 0 && bytes[13..] == [0; 3]).then(|| at([9, 10, 11, 12]));
            [of_48, of_56, of_64, Some(last)]
                .into_iter()
                .flatten()
                .filter(|ip| !ip.is_unspecified())
                .collect()
        }
        // 6to4 (RFC 3056 §2).
        [0x2002, ..] => vec![at([2, 3, 4, 5])],
        // Teredo: the server, and the client with its bits turned over (RFC 4380 §4).
        [0x2001, 0, ..] => vec![at([4, 5, 6, 7]), Ipv4Addr::from(last.octets().map(|byte| !byte))],
        // ISATAP (RFC 5214 §6.1).
        [_, _, _, _, 0 | 0x200, 0x5efe, ..] => vec![last],
        _ => Vec::new(),
    }
}

/// Link-local addresses, including the link's routers, and metadata services of clouds: access to them gives
/// the credentials of the machine.
const GUARDED: [(IpAddr, u8); 9] = [
    // RFC 3927 and RFC 4291 §2.5.6.
    (IpAddr::V4(Ipv4Addr::new(169, 254, 0, 0)), 16),
    (IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0)), 10),
    // AWS: metadata, credentials of containers, names and time.
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xec2, 0, 0, 0, 0, 0, 0)), 64),
    // Google.
    (IpAddr::V6(Ipv6Addr::new(0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254)), 128),
    // Oracle, over IPv6 and in its older form.
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0xc1, 0, 0, 0, 0, 0xa9fe, 0xa9fe)), 128),
    (IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)), 32),
    // Scaleway.
    (IpAddr::V6(Ipv6Addr::new(0xfd00, 0x42, 0, 0, 0, 0, 0, 0x42)), 128),
    // Alibaba, metadata and names.
    (IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)), 32),
    // Azure.
    (IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)), 32),
];

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
    fn metadata_services_must_be_allowed_by_name() {
        let open = Access::default();
        let everything = Access { allow: Some(vec![network("0.0.0.0/0"), network("::/0")]), deny: vec![] };
        let services = [
            "169.254.169.254",
            "fe80::a9fe:a9fe",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fd00:c1::a9fe:a9fe",
            "192.0.0.192",
            "fd00:42::42",
            "100.100.100.200",
            "168.63.129.16",
        ];
        for service in services {
            assert!(!open.permits(ip(service)) && !everything.permits(ip(service)), "{service}");
            let named = Access { allow: Some(vec![service.parse().unwrap()]), deny: vec![] };
            assert!(named.permits(ip(service)), "{service}");
        }
        for other in ["fd00:ec2:1::254", "fd20:ce::255", "100.100.100.100", "fd00::1"] {
            assert!(open.permits(ip(other)) && everything.permits(ip(other)), "{other}");
        }
    }

    /// Each form of an IPv4 address as an IPv6 address.
    fn forms(ip: &str) -> Vec<IpAddr> {
        let IpAddr::V4(ip) = self::ip(ip) else { panic!("{ip} is IPv4") };
        let [a, b, c, d] = ip.octets();
        let turned = ip.octets().map(|byte| !byte);
        let (high, low) = (u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]));
        let word = u16::from_be_bytes;
        let last = |prefix: [u16; 6]| {
            let [p, q, r, s, t, u] = prefix;
            IpAddr::from([p, q, r, s, t, u, high, low])
        };
        vec![
            last([0, 0, 0, 0, 0, 0xffff]),
            last([0; 6]),
            last([0, 0, 0, 0, 0xffff, 0]),
            last([0x64, 0xff9b, 0, 0, 0, 0]),
            last([0x64, 0xff9b, 1, 0, 0, 0]),
            last([0x64, 0xff9b, 1, 0x1234, 0x5678, 0x9abc]),
            IpAddr::from([0x64, 0xff9b, 1, high, word([0, c]), word([d, 0]), 0, 0]),
            IpAddr::from([0x64, 0xff9b, 1, word([7, a]), word([0, b]), low, 0, 0]),
            IpAddr::from([0x64, 0xff9b, 1, 7, word([0, a]), word([b, c]), word([d, 0]), 0]),
            IpAddr::from([0x2002, high, low, 1, 0, 0, 0, 9]),
            IpAddr::from([0x2001, 0, high, low, 0, 0, 0xf7f7, 0xf7f7]),
            IpAddr::from([
                0x2001,
                0,
                0x0808,
                0x0808,
                0,
                0,
                word([turned[0], turned[1]]),
                word([turned[2], turned[3]]),
            ]),
            last([0x2001, 0xdb8, 1, 2, 0, 0x5efe]),
            last([0x2001, 0xdb8, 1, 2, 0x200, 0x5efe]),
        ]
    }

    #[test]
    fn ipv6_forms_of_denied_ipv4_addresses_are_denied() {
        let everywhere = vec![network("0.0.0.0/0"), network("::/0")];
        for allow in [None, Some(everywhere)] {
            let access = Access { allow, deny: vec![network("10.0.0.0/8")] };
            for denied in ["10.9.8.7", "169.254.169.254", "224.0.0.9", "255.255.255.255", "100.100.100.200"] {
                for form in forms(denied) {
                    assert!(!access.permits(form), "{form} is {denied}");
                }
            }
            for permitted in ["192.0.2.9", "203.0.113.77"] {
                for form in forms(permitted) {
                    assert!(access.permits(form), "{form} is {permitted}");
                }
            }
            for plain in ["::1", "2001:db8::a09:807", "2001:4860:4860::8888", "fd00::10.9.8.7"] {
                assert!(access.permits(ip(plain)), "{plain}");
            }
        }
    }

    #[test]
    fn fully_denied_allow_lists_permit_nothing() {
        let of = |allow: Option<&[&str]>, deny: &[&str]| {
            let networks = |texts: &[&str]| texts.iter().map(|text| network(text)).collect();
            Access { allow: allow.map(networks), deny: networks(deny) }.permits_nothing()
        };
        assert!(of(Some(&[]), &[]));
        assert!(of(Some(&["10.1.0.0/16"]), &["10.0.0.0/8"]));
        assert!(!of(Some(&["10.1.0.0/16", "10.2.0.0/16"]), &["10.1.0.0/16"]));
        assert!(!of(None, &["0.0.0.0/0"]));
    }

    #[test]
    fn fully_denied_network_is_recognized() {
        let access = Access { allow: Some(vec![network("10.0.0.0/8")]), deny: vec![network("10.9.0.0/16")] };
        for (told, some) in
            [("10.1.0.0/16", true), ("0.0.0.0/0", true), ("10.9.1.0/24", false), ("192.168.0.0/16", false)]
        {
            assert_eq!(access.permits_some_of(&network(told)), some, "{told}");
        }
        assert!(Access::default().permits_some_of(&network("10.9.0.0/16")));
    }

    #[test]
    fn deny_wins_and_an_empty_allow_list_allows_nothing() {
        let access = Access { allow: Some(vec![network("10.0.0.0/8")]), deny: vec![network("10.9.0.0/16")] };
        assert!(access.permits(ip("10.1.0.1")));
        assert!(!access.permits(ip("10.9.0.1")));
        assert!(!access.permits(ip("192.168.0.1")));
        assert!(!Access { allow: Some(vec![]), deny: vec![] }.permits(ip("10.0.0.1")));
    }
}
