//! ICMP errors for packets sent from clients' addresses.
//!
//! They are addressed to the client. An error from outside is recognized by the transparent socket of its
//! quoted connection. This machine's own errors about its own SYN, for a silent host of its network, leave by
//! themselves, and no expression finds the socket then; so each such SYN is remembered with its sequence
//! number.

use std::fmt::Write as _;
use std::sync::OnceLock;

use oncewire_host::sockets::OWN_MARK;

use super::commands::LoadError;
use super::commands::nft;
use super::set::RuleSet;
use super::words::SYN;

/// Finds out whether sets can be keyed by fields of a quoted header; without the privilege to ask, most can.
pub(super) fn with_quoted_keys(ruleset: RuleSet) -> RuleSet {
    let known = ARE_KEYS.get().copied();
    let quoted_keys = known.unwrap_or_else(|| match nft(&["--check", "-f", "-"], PROBE) {
        Ok(_) => *ARE_KEYS.get_or_init(|| true),
        Err(LoadError::Refused { said, .. }) if !said.contains("Operation not permitted") => {
            *ARE_KEYS.get_or_init(|| false)
        }
        Err(_) => true,
    });
    RuleSet { quoted_keys, ..ruleset }
}

/// Whether this machine's errors are led back to it.
pub(super) fn leads_own_errors(ruleset: &RuleSet) -> bool {
    ruleset.in_clients_names && ruleset.quoted_keys
}

/// Returns the mark of packets to this machine itself under a client's address: the usual one is for
/// inbound packets, and on outbound ones means the same as no mark.
pub(super) fn back_mark(ruleset: &RuleSet) -> u32 {
    ruleset.mark() ^ 0x0003_0000
}

/// Returns the rule for errors from outside to reach the socket of an intercepted connection, or of one
/// from a client's address [RFC 1191, RFC 8201, RFC 9293 §3.9.2.2].
pub(super) fn errors_from_outside(ruleset: &RuleSet) -> String {
    format!(
        "meta l4proto {{ icmp, ipv6-icmp }} socket transparent 1 meta mark set {:#x} accept",
        ruleset.mark()
    )
}

/// Writes the sets and the chain for this machine's errors to reach the sockets of connections from
/// clients' addresses.
pub(super) fn own_errors(ruleset: &RuleSet, text: &mut String) {
    if !leads_own_errors(ruleset) {
        return;
    }
    let mut rules = Vec::new();
    for quote in QUOTES {
        let Quote { family, syn, quoted_syn, errors, .. } = quote;
        let _ = write!(
            text,
            "\tset asked-{family} {{\n\t\ttypeof {quoted_syn}\n\t\tsize {MOST_ASKED}\n\
             \t\tflags dynamic,timeout\n\t\ttimeout {ASKED_FOR_S}s\n\t}}\n"
        );
        let own = format!("meta mark {OWN_MARK:#x} meta nfproto ip{family} {SYN} fib saddr type != local");
        rules.push(format!("{own} update @asked-{family} {{ {syn} }}"));
        rules.push(format!("{errors} {quoted_syn} @asked-{family} meta mark set {:#x}", back_mark(ruleset)));
    }
    text.push_str("\tchain errors {\n\t\ttype route hook output priority mangle; policy accept;\n");
    rules.iter().for_each(|rule| text.push_str(&format!("\t\t{rule}\n")));
    text.push_str("\t}\n");
}

/// One family's form of packets quoted in errors: its addresses, its ports, its sequence number.
///
/// No part is a field known to `nft`: it would list the field's name, and not load such a listing.
pub(super) struct Quote {
    pub(super) family: &'static str,
    /// The errors.
    pub(super) errors: &'static str,
    /// Both ends of a packet's connection, for packets without options, such as this machine's.
    pub(super) ends: &'static str,
    /// The same in the quotation.
    pub(super) quoted_ends: &'static str,
    /// Both ends, and the sequence number.
    syn: &'static str,
    quoted_syn: &'static str,
}

pub(super) const QUOTES: [Quote; 2] = [
    Quote {
        family: "v4",
        errors: "icmp type { destination-unreachable, time-exceeded, parameter-problem } @th,136,8 6",
        ends: "@nh,96,96",
        quoted_ends: "@th,160,96",
        syn: "@nh,96,128",
        quoted_syn: "@th,160,128",
    },
    Quote {
        family: "v6",
        errors: "icmpv6 type { destination-unreachable, packet-too-big, time-exceeded, parameter-problem } @th,112,8 6",
        ends: "@nh,64,96 . @nh,160,96 . @nh,256,64 . @th,0,32",
        quoted_ends: "@th,128,96 . @th,224,96 . @th,320,64 . @th,384,32",
        syn: "@nh,64,96 . @nh,160,96 . @nh,256,64 . @th,0,64",
        quoted_syn: "@th,128,96 . @th,224,96 . @th,320,64 . @th,384,64",
    },
];

/// Programs older than 2020 cannot; that does not change while this process runs.
static ARE_KEYS: OnceLock<bool> = OnceLock::new();

const PROBE: &str = "table inet oncewire_probe { set probe { typeof @th,128,128 . @th,384,64\nsize 1\n}\n}\n";

/// The kernel's longest repetition of a SYN, by default.
const ASKED_FOR_S: u32 = 150;

/// So many connects from clients' addresses within that time; this machine's errors about more are lost.
const MOST_ASKED: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::{How, Taker};
    use oncewire_config::{Capture, RulesBy};

    #[test]
    fn own_errors_return_only_with_client_addresses() {
        let takers = vec![Taker::new(How::Tproxy, Capture::default(), 15001)];
        let router = RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) };
        let hub = RuleSet { in_clients_names: true, ..RuleSet::empty("hub", RulesBy::Install) };
        for set in [&router, &hub] {
            assert!(set.nft().contains(&errors_from_outside(set)), "{}", set.nft());
        }
        assert!(!router.nft().contains("chain errors"));
        let text = hub.nft();
        assert!(text.contains("chain errors {\n\t\ttype route hook output"), "{text}");
        assert!(text.contains("update @asked-v6 {") && text.contains("@th,160,128 @asked-v4"), "{text}");
        let old_program = RuleSet { quoted_keys: false, ..hub };
        assert!(!old_program.nft().contains("typeof"), "{}", old_program.nft());
    }
}
