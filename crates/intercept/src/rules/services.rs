//! Routing back of local services' answers to connections from clients' addresses.
//!
//! A service answers the client, and the answer would leave by the routes to it: no expression finds a
//! packet's socket before it comes in. So connections are remembered from their SYN on, in a table of its
//! own; it replaces an older one without forgetting them.

use std::fmt::Write as _;

use oncewire_host::sockets::OWN_MARK;

use super::commands::Programs;
use super::commands::nft;
use super::icmp;
use super::set::RuleSet;
use super::words::{FAMILIES, SYN, connection};

/// Returns the name of their table. No gateway's name has a slash.
pub(super) fn service_table(ruleset: &RuleSet) -> String {
    format!("{}/services", ruleset.table())
}

/// Writes the table, if connections from clients' addresses are made or may go on.
pub(super) fn services(ruleset: &RuleSet, text: &mut String) {
    if !ruleset.leads_back() {
        return;
    }
    let (table, mark) = (service_table(ruleset), icmp::back_mark(ruleset));
    let _ = write!(text, "add table inet {table}\nflush table inet {table}\ntable inet {table} {{\n");
    for (family, _, address) in FAMILIES {
        for (set, time) in [("open", OPEN_FOR.to_owned()), ("ended", format!("{BRIEFLY_S}s"))] {
            let _ = write!(
                text,
                "\tset {set}-{family} {{\n\t\ttype {address} . inet_service . {address} . inet_service\n\
                 \t\tsize {MOST}\n\t\tflags dynamic,timeout\n\t\ttimeout {time}\n\t}}\n"
            );
        }
    }
    let mut chain = |name: &str, rules: &[String]| {
        let rules: String = rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
        let _ = write!(text, "\tchain {name} {{\n{rules}\t}}\n");
    };
    let mut leaving = vec!["type route hook output priority mangle; policy accept;".to_owned()];
    let own = format!("meta mark {OWN_MARK:#x} {SYN} fib saddr type != local fib daddr type local");
    leaving.push(format!("{own} goto begin"));
    // A client's own connection from there is answered directly.
    let mut entering = vec!["type filter hook prerouting priority mangle; policy accept;".to_owned()];
    let mut begins = Vec::new();
    for (family, ip, _) in FAMILIES {
        let (sent, answered) = (connection(ip), answer(ip));
        begins.extend(begin(ruleset, family, &sent));
        entering.push(format!("iifname != \"lo\" {SYN} delete @open-{family} {{ {sent} }}"));
        chain(&format!("sent-{family}"), &renew(ruleset, family, &sent));
        chain(&format!("answered-{family}"), &renew(ruleset, family, &answered));
        leaving.push(format!("{sent} @open-{family} goto sent-{family}"));
        leaving.push(format!("{answered} @open-{family} meta mark set {mark:#x} goto answered-{family}"));
    }
    chain("begin", &begins);
    chain("prerouting", &entering);
    chain("output", &leaving);
    text.push_str("}\n");
}

/// Returns the rules for a SYN. It is remembered with the longer time first: `nft` cannot load a listing
/// with an element expiring later than its creation time-out.
fn begin(ruleset: &RuleSet, family: &str, flow: &str) -> Vec<String> {
    vec![
        format!("delete @ended-{family} {{ {flow} }}"),
        format!("add @open-{family} {{ {flow} timeout {}s }}", ruleset.silence.as_secs()),
        format!("update @open-{family} {{ {flow} timeout {BRIEFLY_S}s }}"),
    ]
}

/// Returns the rules for later packets. Once a side has ended its stream, each packet lengthens the life
/// by less.
fn renew(ruleset: &RuleSet, family: &str, flow: &str) -> Vec<String> {
    let briefly = format!(
        "update @ended-{family} {{ {flow} timeout {BRIEFLY_S}s }} update @open-{family} {{ {flow} timeout {BRIEFLY_S}s }} accept"
    );
    vec![
        format!("tcp flags & (fin | rst) != 0 {briefly}"),
        format!("{flow} @ended-{family} {briefly}"),
        format!("update @open-{family} {{ {flow} timeout {}s }}", ruleset.silence.as_secs()),
    ]
}

impl Programs<'_> {
    /// Missing ones cannot be removed.
    pub(super) fn remove_services(&self) {
        let _ = nft(&["delete", "table", "inet", &service_table(self.0)], "");
    }
}

/// The connection of an answer, in its requests' order.
fn answer(ip: &str) -> String {
    format!("{ip} daddr . tcp dport . {ip} saddr . tcp sport")
}

/// A mandatory value in a set; each connection has its own time.
const OPEN_FOR: &str = "10m";

/// Lifetime of a beginning or ending connection, in seconds.
const BRIEFLY_S: u32 = 300;

/// So many connections of each family; answers to more go to the clients, unknown to them.
const MOST: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::{How, Taker};
    use oncewire_config::{Capture, RulesBy};

    #[test]
    fn services_table_exists_while_client_addresses_are_in_use() {
        let takers = vec![Taker::new(How::Tproxy, Capture::default(), 15001)];
        let router = RuleSet { takers, ..RuleSet::empty("hub", RulesBy::Install) };
        let hub = RuleSet { in_clients_names: true, ..router.clone() };
        let table = "flush table inet oncewire-hub/services\n";
        assert!(!router.nft().contains(table), "{}", router.nft());
        assert!(hub.nft().contains(table), "{}", hub.nft());
        let after = RuleSet::after(Some(router.clone()), &hub).unwrap();
        assert!(after.nft().contains(table), "{}", after.nft());
        let has_rule = |rules: &RuleSet| rules.routes().iter().any(|rule| rule.contains("0x6f74"));
        assert!(has_rule(&hub) && has_rule(&after) && !has_rule(&router), "{:?}", hub.routes());
    }
}
