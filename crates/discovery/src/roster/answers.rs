//! Rate limits of answers to notes: in total and by source.
//!
//! A sealed note has no time in it, so a recorded one can be replayed for ever, from all addresses open to
//! the attacker. The answers drawn are bounded for each address and for each network, to leave answers for
//! others, and a part of the total is reserved for known gateways.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use oncewire_link::Now;

/// The notes answered in the present second.
#[derive(Debug, Default)]
pub(super) struct Answers {
    second: u64,
    all: u32,
    /// By address, and by network: one entry per answer, so no more than twice [`MAX_ANSWERS`].
    by_source: BTreeMap<Source, u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Address(IpAddr),
    Network(IpAddr),
}

/// The most answers in a second.
pub const MAX_ANSWERS: u32 = 200;
/// Of these, the most for gateways neither members nor seeds.
pub(super) const TO_STRANGERS: u32 = 150;
/// The most to one address: gateways of one host, with two or three each in their first seconds.
pub(super) const TO_ADDRESS: u32 = 20;
/// The most to strangers of one network, /24 or /64: all members of a LAN starting at once.
pub(super) const TO_NETWORK: u32 = 40;

impl Answers {
    /// Whether a note from there is to be answered, and counts it if so.
    pub(super) fn take(&mut self, ip: IpAddr, is_known: bool, now: Now) -> bool {
        if self.second != now.as_secs() {
            *self = Self { second: now.as_secs(), ..Self::default() };
        }
        let ip = ip.to_canonical();
        let all = if is_known { MAX_ANSWERS } else { TO_STRANGERS };
        let of_network = (!is_known).then_some((Source::Network(network(ip)), TO_NETWORK));
        let shares = [Some((Source::Address(ip), TO_ADDRESS)), of_network].into_iter().flatten();
        let has_room = |(source, share)| self.by_source.get(&source).is_none_or(|count| *count < share);
        if self.all >= all || !shares.clone().all(has_room) {
            return false;
        }
        self.all += 1;
        shares.for_each(|(source, _)| *self.by_source.entry(source).or_default() += 1);
        true
    }

    /// Returns the number of answers in this second.
    pub(super) fn count(&self) -> u32 {
        self.all
    }
}

fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) => Ipv4Addr::from_bits(ip.to_bits() & (u32::MAX << 8)).into(),
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many notes are answered in one second, from addresses counting up in steps.
    fn answered(answers: &mut Answers, first: &str, step: u128, notes: u32, is_known: bool) -> u32 {
        let first = match first.parse::<IpAddr>().unwrap() {
            IpAddr::V4(ip) => ip.to_ipv6_mapped(),
            IpAddr::V6(ip) => ip,
        };
        let ip = |at: u32| Ipv6Addr::from_bits(first.to_bits() + u128::from(at) * step).into();
        (0..notes).map(|at| u32::from(answers.take(ip(at), is_known, Now::from_secs(7)))).sum()
    }

    #[test]
    fn no_source_takes_the_answers_of_others() {
        let mut answers = Answers::default();
        for (first, step) in [("192.0.2.1", 0), ("2001:db8::1", 0)] {
            assert_eq!(answered(&mut answers, first, step, 300, false), TO_ADDRESS);
        }
        // Others of the same networks.
        assert_eq!(answered(&mut answers, "192.0.2.2", 1, 200, false), TO_NETWORK - TO_ADDRESS);
        assert_eq!(answered(&mut answers, "2001:db8::2", 1, 300, false), TO_NETWORK - TO_ADDRESS);
        let left = TO_STRANGERS - 2 * TO_NETWORK;
        assert_eq!(answered(&mut answers, "10.0.0.1", 256, 300, false), left);
        // Strangers have used up their part, and known gateways are answered.
        assert_eq!(answered(&mut answers, "10.0.0.1", 1, 300, true), MAX_ANSWERS - TO_STRANGERS);
        assert!(answers.by_source.len() <= 2 * MAX_ANSWERS as usize);
        assert!(answers.take([192, 0, 2, 1].into(), false, Now::from_secs(8)), "another second");
    }
}
