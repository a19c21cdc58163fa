//! Words of nftables common to several chains.

use std::net::Ipv4Addr;

use oncewire_config::Network;

pub(super) const SYN: &str = "tcp flags & (fin | syn | rst | ack) == syn";

pub(super) const FAMILIES: [(&str, &str, &str); 2] = [("v4", "ip", "ipv4_addr"), ("v6", "ip6", "ipv6_addr")];

/// Both ends of the connection of a packet.
pub(super) fn connection(ip: &str) -> String {
    format!("{ip} saddr . tcp sport . {ip} daddr . tcp dport")
}

/// Returns the rules, without their verdict, for connections known to be lost.
pub(super) fn stopped(family: &str, ip: &str) -> [String; 2] {
    [
        format!("meta nfproto ip{family} iifname . tcp dport @blocked-{family}"),
        format!("{ip} daddr . tcp dport @lost-{family}"),
    ]
}

/// How long a sign of life counts, in milliseconds: new connections go direct within a second of the last one.
pub(crate) const LIFE_MS: u64 = 900;

/// Destination of signs of life for a bridge, if the bridge permits: no further than its own network in any
/// case.
pub(super) const BEAT_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 1);

/// The discard port (RFC 863), without a listener.
pub(super) const BEAT_PORT: u16 = 9;

/// Returns the conditions on both ends' networks: one for both families, or one for each possible one.
pub(super) fn networks(from: Option<&[Network]>, to: Option<&[Network]>) -> Vec<String> {
    if from.is_none() && to.is_none() {
        return vec![String::new()];
    }
    let of_family = |key: &str, v4: bool| {
        let among = |end: &str, networks: Option<&[Network]>| {
            let Some(networks) = networks else { return Some(String::new()) };
            let fitting = networks.iter().filter(|network| network.is_ipv4() == v4);
            let listed = joined(&fitting.map(Network::to_string).collect::<Vec<_>>())?;
            Some(format!("{key} {end} {listed} "))
        };
        let both = among("saddr", from)? + &among("daddr", to)?;
        Some(both)
    };
    [of_family("ip", true), of_family("ip6", false)].into_iter().flatten().collect()
}

pub(super) fn joined(items: &[String]) -> Option<String> {
    (!items.is_empty()).then(|| format!("{{ {} }}", items.join(", ")))
}
