//! Bridges in the path: interception of frames passing a bridge.
//!
//! A bridge forwards frames addressed to others. A table of the family `bridge` gives this machine the frames
//! of a gateway's connections, and no others: a connection's first packet, if an interception names the
//! inbound port of the bridge and the gateway lives, and the later ones; and the answers to the gateway's
//! connections from clients' addresses.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use oncewire_host::sockets::OWN_MARK;
use serde::Deserialize;

use super::bypass;
use super::commands::ip;
use super::conditions::conditions_at;
use super::icmp::{QUOTES, Quote};
use super::set::{RuleSet, Taker, beat_mark};
use super::words::{BEAT_GROUP, BEAT_PORT, LIFE_MS, SYN};

/// The interfaces of this machine, and its bridges.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Links {
    names: Vec<String>,
    /// The ports of bridges, each with its bridge.
    ports: BTreeMap<String, String>,
    /// Whether there is any bridge, be it without a port.
    bridged: bool,
}

/// An interface as `ip` describes it.
#[derive(Deserialize)]
struct Link {
    ifname: String,
    master: Option<String>,
    linkinfo: Option<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    info_kind: Option<String>,
    info_slave_kind: Option<String>,
}

impl Links {
    /// The arguments of `ip`.
    pub(super) const COMMAND: &str = "-j -d link show";

    /// Whether there is an interface of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|known| known == name)
    }

    /// Reads the output of `ip` for [`Links::COMMAND`]; none if it is unreadable.
    pub(super) fn read(json: &str) -> Option<Self> {
        let links: Vec<Link> = serde_json::from_str(json).ok()?;
        let mut found = Self::default();
        for link in links {
            found.names.push(link.ifname.clone());
            let Some(kind) = link.linkinfo else { continue };
            found.bridged |= kind.info_kind.as_deref() == Some(BRIDGE);
            if let Some(bridge) = link.master.filter(|_| kind.info_slave_kind.as_deref() == Some(BRIDGE)) {
                found.ports.insert(link.ifname, bridge);
            }
        }
        Some(found)
    }
}

impl Links {
    /// Asks for the interfaces of this machine; none without a readable answer.
    pub(super) fn of_this_machine() -> Option<Self> {
        Self::read(&ip(Self::COMMAND).ok()?)
    }
}

/// Fits the rules to the present bridges.
pub(super) fn on(mut ruleset: RuleSet, links: &Links) -> RuleSet {
    ruleset.bridged = links.bridged && ruleset.in_clients_names;
    for taker in &mut ruleset.takers {
        let named = links.ports.iter().filter(|(port, _)| taker.capture.names_interface(port));
        taker.ports = named.map(|(port, bridge)| (port.clone(), bridge.clone())).collect();
        ruleset.bridged |= !taker.ports.is_empty();
    }
    ruleset.keeps_bridges &= links.bridged && !ruleset.bridged;
    ruleset.bridged |= ruleset.keeps_bridges;
    ruleset
}

/// Returns the bridges with ports named by interceptions.
pub(super) fn bridges(ruleset: &RuleSet) -> impl Iterator<Item = &str> {
    ruleset.takers.iter().flat_map(|taker| taker.ports.values().map(String::as_str))
}

/// Writes the table for bridges, if any frames are to be lifted.
///
/// It replaces an older one without forgetting carried connections.
pub(super) fn bridge_table(ruleset: &RuleSet, text: &mut String) {
    if !ruleset.bridged {
        return;
    }
    let table = ruleset.table();
    let _ = write!(text, "add table bridge {table}\nflush table bridge {table}\n");
    for (policy, _) in bypass::bypasses(ruleset) {
        // Counting begins anew, as in the other table.
        let counter = format!("counter bridge {table} policy-{policy}");
        let _ = write!(text, "add {counter}\ndelete {counter}\n");
    }
    let _ = writeln!(text, "table bridge {table} {{");
    bypass::counters(ruleset, text);
    let ports = format!("size {PORTS}\n\t\tflags dynamic,timeout\n\t\ttimeout");
    let _ = write!(
        text,
        "\tset alive {{\n\t\ttype ifname\n\t\t{ports} {LIFE_MS}ms\n\t}}\n\
         \tmap addresses {{\n\t\ttype ifname : ether_addr\n\t\t{ports} {CARRIED_FOR}\n\t}}\n"
    );
    for (family, ip) in FAMILIES {
        let _ = write!(
            text,
            "\tset carried-{family} {{\n\t\ttype {ip} . inet_service . {ip} . inet_service\n\t\tsize {CARRIED}\n\
             \t\tflags dynamic,timeout\n\t\ttimeout {CARRIED_FOR}\n\t}}\n"
        );
    }
    for (family, ip) in FAMILIES {
        let _ = write!(
            text,
            "\tset ended-{family} {{\n\t\ttype {ip} . inet_service . {ip} . inet_service\n\t\tsize {CARRIED}\n\
             \t\tflags dynamic,timeout\n\t\ttimeout {BRIEFLY}\n\t}}\n"
        );
    }
    for Quote { family, quoted_ends, .. } in quotes(ruleset) {
        let _ = write!(
            text,
            "\tset sent-{family} {{\n\t\ttypeof {quoted_ends}\n\t\tsize {CARRIED}\n\t\tflags dynamic,timeout\n\
             \t\ttimeout {CARRIED_FOR}\n\t}}\n"
        );
    }
    for (number, taker) in on_ports(ruleset).filter(|(_, taker)| !taker.excluded.is_empty()) {
        taker.excluded.chain(text, &format!("policy-{number}"), "goto forget", true);
    }
    let mut chain = |name: &str, rules: &[String]| {
        let rules: String = rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
        let _ = write!(text, "\tchain {name} {{\n{rules}\t}}\n");
    };
    chain("lift", &[format!("ether daddr set iifname map @addresses meta pkttype set host {LEARN_IN}")]);
    chain(
        "take",
        &each_family(|family| {
            let flow = to(family);
            format!(
                "delete @ended-{family} {{ {flow} }} {} goto lift",
                remember_briefly(ruleset, family, &flow)
            )
        }),
    );
    let mut forget = each_family(|family| format!("delete @carried-{family} {{ {} }}", to(family)));
    forget.push("accept".to_owned());
    chain("forget", &forget);
    chain("new", &new_on_bridges(ruleset));
    chain("own", &own_connections(ruleset));
    let mut leaving = vec!["type filter hook output priority filter; policy accept;".to_owned()];
    let beat = format!("ip daddr {BEAT_GROUP} udp dport {BEAT_PORT}");
    let mark = beat_mark(&ruleset.gateway);
    leaving.push(format!("meta mark {mark:#x} {beat} {LEARN_OUT} update @alive {{ oifname }} drop"));
    leaving.push(format!("meta mark {OWN_MARK:#x} {SYN} jump own"));
    leaving.extend(quotes(ruleset).map(|quote| remember_sent(ruleset, quote)));
    chain("output", &leaving);
    let mut entering = vec!["type filter hook prerouting priority dstnat; policy accept;".to_owned()];
    entering.push(format!("{SYN} goto new"));
    entering.extend(each_family(|family| {
        let flow = to(family);
        format!("tcp flags & (fin | rst) != 0 {flow} @carried-{family} {}", note_end(family, &flow))
    }));
    entering.extend(each_family(|family| {
        let flow = to(family);
        let brief = remember_briefly(ruleset, family, &flow);
        format!("{flow} @ended-{family} {} {brief} goto lift", note_end(family, &flow))
    }));
    entering.extend(each_family(|family| {
        let flow = to(family);
        format!("{flow} @carried-{family} {} goto lift", remember(ruleset, family, &flow))
    }));
    entering.extend(quotes(ruleset).map(|Quote { family, errors, quoted_ends, .. }| {
        format!("{errors} {quoted_ends} @sent-{family} goto lift")
    }));
    chain("prerouting", &entering);
    text.push_str("}\n");
}

/// Returns the rules for a connection's first packet. One not taken in is not carried, regardless of
/// earlier connections between the same ports.
fn new_on_bridges(ruleset: &RuleSet) -> Vec<String> {
    let mut rules = Vec::new();
    for (number, taker) in on_ports(ruleset) {
        let ports: Vec<String> = taker.ports.keys().map(|port| format!("{port:?}")).collect();
        let entry = format!("iifname {{ {} }} iifname @alive ", ports.join(", "));
        for condition in conditions_at(taker, &entry) {
            if !taker.excluded.is_empty() {
                rules.push(format!("{condition} jump policy-{number}"));
            }
            rules.push(format!("{condition} goto take"));
        }
    }
    rules.push("goto forget".to_owned());
    rules
}

/// Returns the rules for the gateway's own connections: their answers are for it.
fn own_connections(ruleset: &RuleSet) -> Vec<String> {
    let mut rules = vec![LEARN_OUT.to_owned()];
    rules.extend(each_family(|family| {
        let flow = from(family);
        format!("delete @ended-{family} {{ {flow} }} {}", remember_briefly(ruleset, family, &flow))
    }));
    rules
}

/// Returns the rule remembering sent packets of carried connections, as quoted by ICMP errors: these come
/// to the packets' source address, foreign to this machine.
fn remember_sent(ruleset: &RuleSet, quote: &Quote) -> String {
    let Quote { family, ends, .. } = quote;
    let silence = ruleset.silence.as_secs();
    format!("{} @carried-{family} update @sent-{family} {{ {ends} timeout {silence}s }}", from(family))
}

/// Returns the forms of packets quoted by ICMP errors, if sets can be keyed by them.
fn quotes(ruleset: &RuleSet) -> impl Iterator<Item = &'static Quote> {
    QUOTES.iter().filter(|_| ruleset.quoted_keys)
}

/// Marks a connection as carried.
fn remember(ruleset: &RuleSet, family: &str, flow: &str) -> String {
    format!("update @carried-{family} {{ {flow} timeout {}s }}", ruleset.silence.as_secs())
}

/// Marks a beginning or ending connection as carried for a while.
///
/// It is made with the longer time: `nft` cannot load a listing with an element expiring later than its
/// creation time-out.
fn remember_briefly(ruleset: &RuleSet, family: &str, flow: &str) -> String {
    let made = format!("add @carried-{family} {{ {flow} timeout {}s }}", ruleset.silence.as_secs());
    format!("{made} update @carried-{family} {{ {flow} timeout {BRIEFLY} }}")
}

/// Returns the interceptions with ports of bridges, with their numbers.
fn on_ports(ruleset: &RuleSet) -> impl Iterator<Item = (usize, &Taker)> {
    ruleset.takers.iter().enumerate().filter(|(_, taker)| !taker.ports.is_empty())
}

/// Returns one table of a family from a list of all; nothing if it is not there.
pub(super) fn table_in<'a>(ruleset: &'a str, family: &str, table: &str) -> &'a str {
    let head = format!("table {family} {table} {{\n");
    let begins = |at: &usize| *at == 0 || ruleset.get(..*at).is_some_and(|before| before.ends_with('\n'));
    let found = ruleset.match_indices(&head).map(|(at, _)| at).find(begins);
    let rest = found.and_then(|at| ruleset.get(at..)).unwrap_or_default();
    let end = rest.find("\n}\n").map_or(rest.len(), |end| end + "\n}\n".len());
    rest.get(..end).unwrap_or_default()
}

fn each_family(rule: impl Fn(&str) -> String) -> Vec<String> {
    FAMILIES.map(|(family, _)| rule(family)).to_vec()
}

/// Both ends of an inbound packet's connection.
fn to(family: &str) -> String {
    let key = key(family);
    format!("{key} saddr . tcp sport . {key} daddr . tcp dport")
}

/// The connection of an outbound packet, in inbound order.
fn from(family: &str) -> String {
    let key = key(family);
    format!("{key} daddr . tcp dport . {key} saddr . tcp sport")
}

fn key(family: &str) -> &'static str {
    if family == "v4" { "ip" } else { "ip6" }
}

/// Notes that a side of a connection has ended its stream, or goes on after that.
fn note_end(family: &str, flow: &str) -> String {
    format!("update @ended-{family} {{ {flow} timeout {BRIEFLY} }}")
}

const BRIDGE: &str = "bridge";

const FAMILIES: [(&str, &str); 2] = [("v4", "ipv4_addr"), ("v6", "ipv6_addr")];

/// This machine's output reveals the address of a port's bridge.
const LEARN_OUT: &str = "update @addresses { oifname : ether saddr }";
const LEARN_IN: &str = "update @addresses { iifname : ether daddr }";

/// A mandatory value in sets; each connection has its own time.
const CARRIED_FOR: &str = "10m";

/// Lifetime of a connection with only its first packet, or after its end: there are many such. A one-way
/// stream shows at least every two minutes, as the kernel probes a full window.
const BRIEFLY: &str = "300s";

/// Two for each carried connection; further ones pass the bridge.
const CARRIED: u32 = 131_072;

/// As many as a bridge can have.
const PORTS: u32 = 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::How;
    use oncewire_config::{Capture, PortRange, RulesBy};

    const LINKS: &str = r#"[
        {"ifname": "lo"},
        {"ifname": "br0", "linkinfo": {"info_kind": "bridge"}},
        {"ifname": "lan0", "master": "br0", "linkinfo": {"info_kind": "veth", "info_slave_kind": "bridge"}},
        {"ifname": "eth1", "master": "bond0", "linkinfo": {"info_slave_kind": "bond"}}
    ]"#;

    fn links() -> Links {
        Links::read(LINKS).unwrap()
    }

    fn set(interfaces: &[&str], in_clients_names: bool) -> RuleSet {
        let interfaces = interfaces.iter().map(ToString::to_string).collect();
        let ports = vec![PortRange { first: 80, last: 80 }];
        let taker = Taker::new(How::Tproxy, Capture { interfaces, ports, ..Capture::default() }, 15001);
        let takers = if in_clients_names { Vec::new() } else { vec![taker] };
        RuleSet { takers, in_clients_names, ..RuleSet::empty("branch", RulesBy::Install) }
    }

    #[test]
    fn connections_are_lifted_at_named_ports() {
        let set = on(set(&["lan*", "eth1"], false), &links());
        assert_eq!(bridges(&set).collect::<Vec<_>>(), ["br0"]);
        let text = set.nft();
        let lifts = "iifname { \"lan0\" } iifname @alive tcp flags & (fin | syn | rst | ack) == syn tcp dport { 80 } goto \
                     take";
        assert!(text.contains(lifts), "{text}");
        assert!(text.contains("iifname { \"lan*\", \"eth1\", \"br0\" }"), "{text}");
    }

    #[test]
    fn repeated_rules_are_equal_and_keep_lifting_frames() {
        let links = links();
        let after = |wanted: &RuleSet, old: &RuleSet| {
            RuleSet::after(Some(wanted.clone()), old).map(|rules| on(rules, &links)).unwrap()
        };
        let (bridge, router) = (set(&["lan0"], false), set(&["eth1"], false));
        for wanted in [&bridge, &router, &set(&[], true)] {
            let first = on(wanted.clone(), &links);
            assert_eq!(after(wanted, &first), first);
        }
        let routed = on(router.clone(), &links);
        assert!(!routed.nft().contains("bridge"), "there is one on the machine, and nothing to do with it");
        let kept = after(&router, &on(bridge, &links));
        assert!(kept.nft().contains("table bridge"), "connections go on that were taken in there");
        assert_eq!(after(&router, &kept), kept);
    }

    #[test]
    fn one_table_is_found_among_those_of_a_machine() {
        let text = |name: &str, packets: u8| {
            format!(
                "table bridge {name} {{\n\tcounter policy-1 {{\n\t\tpackets {packets} bytes 0\n\t}}\n}}\n"
            )
        };
        let (other, ours, last) = (text("x-oncewire-a", 1), text("oncewire-a", 2), text("oncewire-ab", 3));
        let all = [other.as_str(), &ours, &last].concat();
        assert_eq!(table_in(&all, "bridge", "oncewire-a"), ours);
        assert_eq!(table_in(&all, "bridge", "oncewire-ab"), last);
        assert_eq!(table_in(&all, "inet", "oncewire-a"), "");
        for absent in ["oncewire", "a", "oncewire-abc"] {
            assert_eq!(table_in(&all, "bridge", absent), "");
        }
        assert_eq!(table_in("", "bridge", "oncewire-a"), "");
    }

    #[test]
    fn machine_without_a_bridge_needs_no_bridge_table() {
        assert_eq!(Links::read(""), None, "no answer says nothing");
        for json in ["[]", "[{\"ifname\": \"lan0\"}]"] {
            for set in [set(&["lan0"], false), set(&[], true)] {
                let set = on(set, &Links::read(json).unwrap());
                assert!(!set.nft().contains("bridge"), "{}", set.nft());
            }
        }
    }

    #[test]
    fn answers_to_clients_are_lifted_from_any_bridge() {
        let text = on(set(&[], true), &links()).nft();
        assert!(text.contains("@carried-v6"), "{text}");
        assert!(!text.contains("goto take"), "{text}");
    }
}
