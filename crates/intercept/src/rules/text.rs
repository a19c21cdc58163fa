//! The rules as text for `nft` and `ip`.

use std::fmt::Write as _;

use oncewire_host::sockets::OWN_MARK;

use super::arrivals;
use super::begun;
use super::bridge;
use super::bypass;
use super::conditions::conditions;
use super::hold;
use super::icmp;
use super::services;
use super::set::{How, RuleSet, beat_mark};
use super::words::LIFE_MS;

/// Writes the table for `nft -f`; it replaces an older one of the same name atomically.
pub(super) fn nft(ruleset: &RuleSet) -> String {
    let (table, beat) = (ruleset.table(), beat_mark(&ruleset.gateway));
    let mut text = format!("add table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n");
    let _ = write!(
        text,
        "\tset alive {{\n\t\ttype nf_proto\n\t\tsize 2\n\t\tflags dynamic,timeout\n\t\ttimeout {LIFE_MS}ms\n\t}}\n\
         \tchain heartbeat {{\n\t\ttype filter hook output priority filter; policy accept;\n\
         \t\tmeta mark {beat:#x} meta l4proto udp oifname \"lo\" update @alive {{ meta nfproto }}\n\t}}\n"
    );
    bypass::counters(ruleset, &mut text);
    for (number, taker) in ruleset.takers.iter().enumerate().filter(|(_, taker)| !taker.excluded.is_empty()) {
        taker.excluded.chain(&mut text, &format!("policy-{number}"), "accept", true);
    }
    hold::hold_chain(ruleset, &mut text);
    hook(ruleset, &mut text, "divert", "filter hook prerouting priority mangle", How::Tproxy);
    hook(ruleset, &mut text, "prerouting", "nat hook prerouting priority dstnat", How::Redirect);
    hook(ruleset, &mut text, "output", "nat hook output priority -100", How::RedirectOwn);
    icmp::own_errors(ruleset, &mut text);
    arrivals::arrivals(ruleset, &mut text);
    arrivals::redirects(ruleset, &mut text);
    begun::takes(ruleset, &mut text);
    text.push_str("}\n");
    services::services(ruleset, &mut text);
    bridge::bridge_table(ruleset, &mut text);
    text
}

/// Writes the chain of one hook, if it has rules.
fn hook(ruleset: &RuleSet, text: &mut String, name: &str, hook: &str, how: How) {
    let mut rules = Vec::new();
    if how == How::RedirectOwn {
        // A gateway must not intercept its own connections, and traffic within the machine has no need of
        // it.
        rules.push(format!("meta mark {OWN_MARK:#x} accept"));
        rules.push("fib daddr type local accept".to_owned());
    }
    if how == How::Tproxy {
        rules.extend(hold::answers(ruleset));
    }
    let own = rules.len();
    for (number, taker) in ruleset.takers.iter().enumerate().filter(|(_, taker)| taker.how == how) {
        for condition in conditions(ruleset, taker) {
            if !taker.excluded.is_empty() {
                rules.push(format!("{condition} fib daddr type != local jump policy-{number}"));
            }
            rules.push(match how {
                How::Tproxy => format!("{condition} goto intercept-{number}"),
                How::Redirect => format!("{condition} goto redirect-{number}"),
                How::RedirectOwn => format!("{condition} redirect to :{}", taker.port),
            });
        }
    }
    if how == How::Tproxy && ruleset.needs_routes() {
        // Behind the rules for new connections: a SYN to a socket in TIME-WAIT is new all the same.
        rules.extend(begun::rules_to_forget(ruleset));
        let mark = ruleset.mark();
        rules.extend(arrivals::awaited_answers(ruleset));
        rules.push(format!("meta l4proto tcp socket transparent 1 meta mark set {mark:#x} accept"));
        rules.push(icmp::errors_from_outside(ruleset));
        rules.extend(begun::rules_without_socket(ruleset));
    }
    let has_taker = || ruleset.takers.iter().any(|taker| taker.how == how);
    if how != How::Tproxy && rules.len() == own && (ruleset.kept.contains(&how) || has_taker()) {
        // A control group may be gone, and connections of it not. Without a chain of the kind, and a rule
        // looking at connections, the kernel stops translating addresses of known ones back.
        rules.push("ct state new accept".to_owned());
    }
    if rules.len() > own {
        let _ = write!(text, "\tchain {name} {{\n\t\ttype {hook}; policy accept;\n");
        rules.iter().for_each(|rule| text.push_str(&format!("\t\t{rule}\n")));
        text.push_str("\t}\n");
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::exclusions::Exclusions;
    use super::super::set::Taker;
    use super::*;
    use oncewire_config::{Capture, Network, PortRange, RulesBy, Scope};

    fn set(how: How, capture: Capture, from: Option<Vec<Network>>) -> RuleSet {
        let takers = vec![Taker { from, ..Taker::new(how, capture, 15001) }];
        RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) }
    }

    /// Rules with exclusions.
    pub(in super::super) fn excluding(excluded: Exclusions) -> RuleSet {
        let capture = Capture { interfaces: vec!["lan0".to_owned()], ..Capture::default() };
        let mut set = set(How::Tproxy, capture, None);
        set.takers[0].excluded = excluded;
        set
    }

    fn rules(set: &RuleSet, verdict: &str) -> Vec<String> {
        set.nft().lines().filter(|line| line.contains(verdict)).map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn tproxy_takes_syns_of_its_interfaces_while_alive() {
        let capture = Capture {
            interfaces: vec!["lan0".to_owned()],
            ports: vec![PortRange { first: 80, last: 80 }, PortRange { first: 8000, last: 8100 }],
            ..Capture::default()
        };
        let set = set(How::Tproxy, capture, None);
        let expected = "iifname { \"lan0\" } meta nfproto @alive tcp flags & (fin | syn | rst | ack) == syn \
                        tcp dport { 80, 8000-8100 } goto intercept-0";
        assert_eq!(rules(&set, "goto intercept"), [expected]);
        assert_eq!(rules(&set, "socket transparent").len(), 2);
        assert_eq!(set.routes().len(), 6);
    }

    #[test]
    fn networks_of_one_family_take_in_nothing_of_the_other() {
        let networks =
            |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<Network>>();
        let to = |texts: &[&str]| Capture { networks: networks(texts), ..Capture::default() };
        let v4 = rules(&set(How::Redirect, to(&["10.0.0.0/8"]), None), "goto redirect-0");
        assert_eq!(v4.len(), 1);
        assert!(v4[0].contains("ip daddr { 10.0.0.0/8 } meta l4proto tcp"), "{v4:?}");
        assert_eq!(
            rules(&set(How::Redirect, to(&["10.0.0.0/8", "fd00::/8"]), None), "goto redirect-0").len(),
            2
        );
        let from = Some(networks(&["fd01::/16"]));
        assert!(rules(&set(How::Redirect, to(&["10.0.0.0/8"]), from), "goto redirect-0").is_empty());
    }

    #[test]
    fn host_intercepts_named_users_and_never_itself() {
        let capture = Capture {
            scope: Scope::Host,
            users: vec!["1000".to_owned(), "backup".to_owned()],
            ..Capture::default()
        };
        let set = set(How::RedirectOwn, capture, None);
        let redirects = rules(&set, "redirect to");
        assert_eq!(redirects.len(), 1);
        assert!(redirects[0].contains("meta skuid { 1000, \"backup\" }"), "{redirects:?}");
        assert!(rules(&set, "accept").iter().any(|rule| rule == "meta mark 0x6f780000 accept"));
        assert_eq!(set.routes(), [""; 0]);
    }

    #[test]
    fn gateways_have_distinct_marks_apart_from_the_socket_mark() {
        let named =
            |name: &str| RuleSet { gateway: name.to_owned(), ..set(How::Tproxy, Capture::default(), None) };
        assert_ne!(named("branch").mark(), named("hub").mark());
        assert_ne!(named("branch").mark() >> 16, OWN_MARK >> 16);
    }
}
