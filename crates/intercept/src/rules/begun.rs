//! Handshakes taken in by `tproxy` and still without a socket.
//!
//! Under a flood of SYNs the kernel answers with SYN cookies and keeps no sockets, so only the addresses
//! identify the packet ending such a handshake. A set for each interception and family remembers the
//! addresses of each intercepted SYN: later packets of the same connection without a socket are for the
//! listener, and the kernel checks the cookie there. A packet of any other connection is in no set, and goes
//! its way.

use std::fmt::Write as _;

use super::set::{How, RuleSet, Taker};
use super::words::{FAMILIES, SYN, connection, stopped};

/// Writes the sets and, for each interception, the chain giving a SYN to its listener.
pub(super) fn takes(ruleset: &RuleSet, text: &mut String) {
    for (number, _) in transparent(ruleset) {
        for (family, _, addresses) in FAMILIES {
            let _ = write!(
                text,
                "\tset begun-{number}-{family} {{\n\
                 \t\ttype {addresses} . inet_service . {addresses} . inet_service\n\
                 \t\tsize {MOST_BEGUN}\n\t\tflags dynamic,timeout\n\t\ttimeout {BEGUN_FOR_S}s\n\t}}\n"
            );
        }
    }
    for (number, taker) in transparent(ruleset) {
        let _ = write!(text, "\tchain intercept-{number} {{\n\t\tfib daddr type local return\n");
        for (family, ip, _) in FAMILIES {
            // A SYN passed below has begun nothing here.
            let _ = writeln!(text, "\t\tdelete @begun-{number}-{family} {{ {} }}", connection(ip));
            let _ = writeln!(text, "\t\t{} @pending-{family} goto unheard-{family}", connection(ip));
            stopped(family, ip).iter().for_each(|rule| text.push_str(&format!("\t\t{rule} return\n")));
        }
        for (family, ip, _) in FAMILIES {
            // In one rule: without room, later packets could not be taken in, so the SYN is not either.
            let (begins, takes) = (connection(ip), take(ruleset, taker, family));
            let _ = writeln!(
                text,
                "\t\tmeta nfproto ip{family} meta l4proto tcp update @begun-{number}-{family} {{ {begins} }} \
                 {takes} update @pending-{family} {{ {begins} }} accept"
            );
        }
        text.push_str("\t}\n");
    }
}

/// Returns the rules for packets without a socket, behind the rule for those with one.
pub(super) fn rules_without_socket(ruleset: &RuleSet) -> Vec<String> {
    let each = transparent(ruleset).flat_map(|(number, taker)| {
        FAMILIES.map(|(family, ip, _)| {
            format!("{} @begun-{number}-{family} {} accept", connection(ip), take(ruleset, taker, family))
        })
    });
    each.collect()
}

/// Returns the rules for SYNs not taken in: regardless of earlier connections between the same ports,
/// later packets go the SYN's way.
pub(super) fn rules_to_forget(ruleset: &RuleSet) -> Vec<String> {
    let each = transparent(ruleset).flat_map(|(number, _)| {
        FAMILIES
            .map(|(family, ip, _)| format!("{SYN} delete @begun-{number}-{family} {{ {} }}", connection(ip)))
    });
    each.collect()
}

/// Returns the interceptions by `tproxy`, with their numbers.
fn transparent(ruleset: &RuleSet) -> impl Iterator<Item = (usize, &Taker)> {
    ruleset.takers.iter().enumerate().filter(|(_, taker)| taker.how == How::Tproxy)
}

/// Gives a packet to the listener, unless there is none.
fn take(ruleset: &RuleSet, taker: &Taker, family: &str) -> String {
    let (port, mark) = (taker.port, ruleset.mark());
    let to = if family == "v4" { "ip to 127.0.0.1" } else { "ip6 to [::1]" };
    format!("tproxy {to}:{port} meta mark set {mark:#x}")
}

/// Time limit of a handshake from its last SYN on: a client with a lost last packet repeats it after 1, 3, 7
/// and 15 seconds.
const BEGUN_FOR_S: u32 = 30;

/// So many handshakes of one interception and family within that time, 4,369 a second; about 13 MB of the
/// kernel's memory, or 17 of IPv6. Beyond it new connections go direct.
const MOST_BEGUN: u32 = 131_072;

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_config::{Capture, RulesBy};

    #[test]
    fn only_tproxy_remembers_handshakes() {
        let takers = [How::Redirect, How::Tproxy].map(|how| Taker::new(how, Capture::default(), 15001));
        let set = RuleSet { takers: takers.to_vec(), ..RuleSet::empty("branch", RulesBy::Install) };
        let text = set.nft();
        let connection = "ip saddr . tcp sport . ip daddr . tcp dport";
        let takes = format!("tproxy ip to 127.0.0.1:15001 meta mark set {:#x}", set.mark());
        let rules = [
            format!("{SYN} delete @begun-1-v4 {{ {connection} }}"),
            format!(
                "meta nfproto ipv4 meta l4proto tcp update @begun-1-v4 {{ {connection} }} {takes} \
                 update @pending-v4 {{ {connection} }} accept"
            ),
            format!("{connection} @begun-1-v4 {takes} accept"),
        ];
        for rule in &rules {
            assert_eq!(text.lines().filter(|line| line.trim() == rule).count(), 1, "{rule}\n{text}");
        }
        let place = |rule: &str| text.lines().position(|line| line.trim().starts_with(rule)).unwrap();
        assert!(place(&rules[0]) > place("meta nfproto @alive tcp flags"), "behind what takes in");
        assert!(place(&rules[2]) > place("meta l4proto tcp socket transparent"), "behind what has a socket");
        assert!(!text.contains("begun-0"), "conntrack remembers those");
    }
}
