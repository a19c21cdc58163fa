//! Networks behind peers, and a deterministic choice among several.
//!
//! The same inputs give the same choice.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use oncewire_codec::wire::Network;

/// Known networks behind one peer.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claim {
    /// By configuration.
    pub(crate) configured: Vec<Network>,
    /// Networks it may announce parts of; none forbids announcements.
    pub(crate) accepted: Option<Vec<Network>>,
    /// Its announcement; none if still missing.
    pub(crate) announced: Option<Vec<Network>>,
}

/// Reason against an announced network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unused {
    /// `accept_networks` does not hold it.
    NotAccepted,
    /// It is part of this gateway's own announcement.
    Ours,
    /// Servers see clients' addresses, so one peer alone must front it; this other one does already.
    Overlaps(usize),
}

/// A peer's standing among others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) health: Health,
    /// Its place among all peers by round trip; the first is the best.
    pub(crate) place: usize,
}

/// Whether a peer can take flows, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Health {
    Down,
    /// Up again, but not for long.
    Fresh,
    Settled,
}

/// Peers are named by their place in the configuration.
#[derive(Debug, Default)]
pub(crate) struct Table {
    configured: Prefixes,
    announced: Prefixes,
    /// Peers without an announcement so far count for everything they may announce, and as down.
    silent: BTreeSet<usize>,
    own: Vec<Network>,
    /// Peers without networks by configuration or announcement.
    rest: Vec<usize>,
    /// Each peer's announced networks, with reasons against their use.
    verdicts: Vec<Vec<(Network, Option<Unused>)>>,
}

/// Choice for a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    pub(crate) peer: usize,
    /// Whether it can take flows, and is known to front the destination.
    pub(crate) ready: bool,
}

impl Table {
    /// Combines all claims; with `exclusive` no two peers front the same address by announcing it.
    pub(crate) fn new(claims: &[Claim], own: &[Network], exclusive: bool) -> Self {
        let mut table = Self { own: own.to_vec(), ..Self::default() };
        for (peer, claim) in claims.iter().enumerate() {
            claim.configured.iter().for_each(|network| table.configured.insert(*network, peer));
            if claim.configured.is_empty() && claim.accepted.is_none() {
                table.rest.push(peer);
            }
        }
        for (peer, claim) in claims.iter().enumerate() {
            let verdicts = match (&claim.announced, &claim.accepted) {
                (Some(announced), _) => table.judge(peer, claim, announced, exclusive),
                (None, accepted) => {
                    table.silent.insert(peer);
                    accepted.iter().flatten().for_each(|network| table.announced.insert(*network, peer));
                    Vec::new()
                }
            };
            table.verdicts.push(verdicts);
        }
        table
    }

    /// Takes in a peer's permitted announcements. Of peers with the same announcement the first keeps it.
    fn judge(
        &mut self,
        peer: usize,
        claim: &Claim,
        announced: &[Network],
        exclusive: bool,
    ) -> Vec<(Network, Option<Unused>)> {
        let accepted = claim.accepted.as_deref().unwrap_or_default();
        let mut verdicts = Vec::with_capacity(announced.len());
        for &network in announced {
            let unused = if !accepted.iter().any(|accepted| accepted.covers(&network)) {
                Some(Unused::NotAccepted)
            } else if self.own.iter().any(|own| own.covers(&network)) {
                Some(Unused::Ours)
            } else if exclusive {
                let other = self.configured.overlapping(&network, peer);
                other.or_else(|| self.announced.overlapping(&network, peer)).map(Unused::Overlaps)
            } else {
                None
            };
            if unused.is_none() {
                self.announced.insert(network, peer);
            }
            verdicts.push((network, unused));
        }
        verdicts
    }

    /// A peer's announced networks, each with the reason against its use.
    pub(crate) fn verdicts(&self, peer: usize) -> &[(Network, Option<Unused>)] {
        self.verdicts.get(peer).map_or(&[], Vec::as_slice)
    }

    /// Chooses the peer for a destination; `ip` is none for a name.
    ///
    /// Configured networks decide alone if one matches; next, this gateway's own networks have no peer; next,
    /// announcements decide; the rest is for peers without either. Among several the healthier one is chosen,
    /// then the longer prefix, then the better place.
    pub(crate) fn choose(&self, ip: Option<IpAddr>, standings: &[Standing]) -> Option<Choice> {
        if let Some(ip) = ip.map(|ip| ip.to_canonical()) {
            if let Some(choice) = self.best(self.configured.holding(ip), standings, false) {
                return Some(choice);
            }
            if self.own.iter().any(|own| own.contains(ip)) {
                return None;
            }
            if let Some(choice) = self.best(self.announced.holding(ip), standings, true) {
                return Some(choice);
            }
        }
        self.best(self.rest.iter().map(|peer| (0, *peer)), standings, false)
    }

    fn best(
        &self,
        fronting: impl Iterator<Item = (u8, usize)>,
        standings: &[Standing],
        announced: bool,
    ) -> Option<Choice> {
        let ranked = fronting.filter_map(|(prefix, peer)| {
            let standing = standings.get(peer)?;
            let silent = announced && self.silent.contains(&peer);
            let health = if silent { Health::Down } else { standing.health };
            Some(((health, prefix, Reverse(standing.place)), peer))
        });
        let ((health, ..), peer) = ranked.max_by_key(|(rank, _)| *rank)?;
        Some(Choice { peer, ready: health > Health::Down })
    }
}

/// Networks and their peers.
#[derive(Debug, Default)]
struct Prefixes {
    peers: BTreeMap<Network, Vec<usize>>,
    /// The occurring prefix lengths: a destination is looked up once for each.
    lengths: BTreeSet<u8>,
}

impl Prefixes {
    fn insert(&mut self, network: Network, peer: usize) {
        self.peers.entry(network).or_default().push(peer);
        self.lengths.insert(network.prefix());
    }

    /// Returns the peers fronting an address, with the prefix lengths.
    fn holding(&self, ip: IpAddr) -> impl Iterator<Item = (u8, usize)> {
        let networks = self.lengths.iter().map(move |length| Network::around(ip, *length));
        // A length beyond the family's own stands for the other family, and must not find the whole address twice.
        let networks = networks.zip(&self.lengths).filter(|(network, length)| network.prefix() == **length);
        networks.flat_map(|(network, length)| {
            self.peers.get(&network).into_iter().flatten().map(|peer| (*length, *peer))
        })
    }

    /// Returns another peer fronting a part of a network.
    fn overlapping(&self, network: &Network, but: usize) -> Option<usize> {
        let mut others = self.peers.iter().filter(|(other, _)| other.overlaps(network));
        others.find_map(|(_, peers)| peers.iter().copied().find(|peer| *peer != but))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn networks(texts: &[&str]) -> Vec<Network> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    fn configured(texts: &[&str]) -> Claim {
        Claim { configured: networks(texts), ..Claim::default() }
    }

    /// A peer with announced networks and permission to announce anything.
    fn announces(texts: &[&str]) -> Claim {
        let accepted = Some(networks(&["0.0.0.0/0", "::/0"]));
        Claim { accepted, announced: Some(networks(texts)), ..Claim::default() }
    }

    fn all(health: &[Health]) -> Vec<Standing> {
        health.iter().enumerate().map(|(place, health)| Standing { health: *health, place }).collect()
    }

    fn chosen(table: &Table, to: &str, health: &[Health]) -> Option<(usize, bool)> {
        table.choose(to.parse().ok(), &all(health)).map(|choice| (choice.peer, choice.ready))
    }

    use Health::{Down, Fresh, Settled};

    #[test]
    fn longest_prefix_among_available_peers_wins() {
        let table = Table::new(&[announces(&["10.0.0.0/8"]), announces(&["10.1.0.0/16"])], &[], false);
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled, Settled]), Some((1, true)));
        assert_eq!(chosen(&table, "10.2.2.3", &[Settled, Settled]), Some((0, true)));
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled, Down]), Some((0, true)));
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled, Fresh]), Some((0, true)), "not back for long");
        assert_eq!(chosen(&table, "10.1.2.3", &[Down, Fresh]), Some((1, true)));
        assert_eq!(chosen(&table, "10.1.2.3", &[Down, Down]), Some((1, false)));
        assert_eq!(chosen(&table, "11.1.2.3", &[Settled, Settled]), None);
        assert_eq!(chosen(&table, "::ffff:10.1.2.3", &[Settled, Settled]), Some((1, true)));
    }

    #[test]
    fn among_equals_the_better_place_wins() {
        let table = Table::new(&[announces(&["10.0.0.0/8"]), announces(&["10.0.0.0/8"])], &[], false);
        let ip = "10.0.0.1".parse().ok();
        for (places, peer) in [([0, 1], 0), ([1, 0], 1)] {
            let standings = places.map(|place| Standing { health: Settled, place });
            assert_eq!(table.choose(ip, &standings), Some(Choice { peer, ready: true }));
        }
    }

    #[test]
    fn announcements_never_override_the_configuration() {
        let greedy = announces(&["0.0.0.0/0", "10.1.2.3/32"]);
        let table = Table::new(&[greedy, configured(&["10.0.0.0/8"])], &[], false);
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled, Settled]), Some((1, true)));
        assert_eq!(
            chosen(&table, "10.1.2.3", &[Settled, Down]),
            Some((1, false)),
            "not even while it is down"
        );
        assert_eq!(chosen(&table, "192.0.2.1", &[Settled, Settled]), Some((0, true)));
    }

    #[test]
    fn forbidden_announcements_are_unused_with_a_reason() {
        let mut claim = announces(&["10.1.0.0/16", "0.0.0.0/0", "10.2.0.0/16", "192.0.2.0/24"]);
        claim.accepted = Some(networks(&["10.0.0.0/8"]));
        let table = Table::new(&[claim.clone()], &networks(&["10.2.0.0/15"]), false);
        let why: Vec<_> = table.verdicts(0).iter().map(|(_, unused)| *unused).collect();
        let not = Some(Unused::NotAccepted);
        assert_eq!(why, [None, not, Some(Unused::Ours), not]);
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled]), Some((0, true)));
        assert_eq!(chosen(&table, "192.0.2.1", &[Settled]), None);
        claim.accepted = None;
        claim.configured = networks(&["10.9.0.0/16"]);
        let table = Table::new(&[claim], &[], false);
        assert_eq!(chosen(&table, "10.1.2.3", &[Settled]), None, "nothing was accepted");
    }

    #[test]
    fn own_networks_have_no_peer_unless_configured() {
        let own = networks(&["10.2.0.0/16"]);
        let table = Table::new(&[announces(&["10.0.0.0/8"])], &own, false);
        assert_eq!(chosen(&table, "10.2.0.1", &[Settled]), None);
        assert_eq!(chosen(&table, "10.3.0.1", &[Settled]), Some((0, true)));
        let table = Table::new(&[configured(&["10.2.2.0/24"])], &own, false);
        assert_eq!(chosen(&table, "10.2.2.1", &[Settled]), Some((0, true)));
    }

    #[test]
    fn silent_peer_counts_as_down_for_its_permitted_networks() {
        let silent = Claim { accepted: Some(networks(&["10.0.0.0/8"])), ..Claim::default() };
        let table = Table::new(&[silent, announces(&["10.1.0.0/16"])], &[], false);
        assert_eq!(chosen(&table, "10.2.0.1", &[Settled, Settled]), Some((0, false)));
        assert_eq!(chosen(&table, "10.1.0.1", &[Settled, Settled]), Some((1, true)));
    }

    #[test]
    fn names_and_other_networks_go_to_unclaimed_peers() {
        let table = Table::new(&[configured(&["0.0.0.0/0"]), Claim::default(), Claim::default()], &[], false);
        assert_eq!(chosen(&table, "example.net", &[Settled, Settled, Settled]), Some((1, true)));
        assert_eq!(chosen(&table, "example.net", &[Settled, Down, Settled]), Some((2, true)));
        assert_eq!(chosen(&table, "2001:db8::1", &[Settled, Settled, Settled]), Some((1, true)));
        let table = Table::new(&[configured(&["0.0.0.0/0", "::/0"])], &[], false);
        assert_eq!(chosen(&table, "example.net", &[Settled]), None);
    }

    #[test]
    fn with_clients_addresses_no_two_peers_front_the_same() {
        let claims = [
            announces(&["10.1.0.0/16"]),
            announces(&["10.0.0.0/8", "10.2.0.0/16"]),
            configured(&["10.2.3.0/24"]),
        ];
        let table = Table::new(&claims, &[], true);
        let why: Vec<Vec<_>> =
            (0..2).map(|peer| table.verdicts(peer).iter().map(|(_, why)| *why).collect()).collect();
        assert_eq!(why, [vec![None], vec![Some(Unused::Overlaps(2)), Some(Unused::Overlaps(2))]]);
        let table = Table::new(&claims[..2], &[], true);
        let why: Vec<_> = table.verdicts(1).iter().map(|(_, why)| *why).collect();
        assert_eq!(why, [Some(Unused::Overlaps(0)), None]);
    }

    fn any_network() -> impl Strategy<Value = Network> {
        // Few bits: prefixes nest and meet.
        let v4 = (0u32..4, 0u8..=32)
            .prop_map(|(bits, len)| Network::around(IpAddr::V4((bits << 30 | bits).into()), len));
        let v6 = (0u128..4, 0u8..=128).prop_map(|(bits, len)| {
            Network::around(IpAddr::V6((0x2001 << 112 | bits << 60 | bits).into()), len)
        });
        prop_oneof![v4, v6]
    }

    fn any_standing() -> impl Strategy<Value = Health> {
        prop_oneof![Just(Down), Just(Fresh), Just(Settled)]
    }

    proptest! {
        #[test]
        fn plain_search_of_all_networks_chooses_the_same(
            claims in prop::collection::vec((prop::collection::vec(any_network(), 0..6), any_standing()), 1..5),
            to in any_network(),
        ) {
            let standings = all(&claims.iter().map(|(_, health)| *health).collect::<Vec<_>>());
            let everything = networks(&["0.0.0.0/0", "::/0"]);
            let ip = to.address();
            let mut expected = None;
            for (peer, (networks, health)) in claims.iter().enumerate() {
                for network in networks.iter().filter(|network| network.contains(ip)) {
                    let rank = (*health, network.prefix(), Reverse(peer));
                    expected = expected.max(Some((rank, peer)));
                }
            }
            let claims: Vec<Claim> = claims
                .into_iter()
                .map(|(networks, _)| Claim { accepted: Some(everything.clone()), announced: Some(networks), ..Claim::default() })
                .collect();
            let choice = Table::new(&claims, &[], false).choose(Some(ip), &standings);
            prop_assert_eq!(choice.map(|choice| choice.peer), expected.map(|(_, peer)| peer));
        }
    }
}
