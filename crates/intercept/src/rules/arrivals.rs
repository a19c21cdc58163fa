//! Detection of lost intercepted connections.
//!
//! A firewall of this machine or an earlier routing rule may stop a packet between the rule that takes it in
//! and its socket. So an intercepted SYN is pending until it has passed the last chain of the hook `input`.
//! One repeated while pending goes its own way, and so do similar ones for some minutes: those to the same
//! server, and all from the same interface to the same port, if none of them has arrived.

use std::fmt::Write as _;

use super::hold;
use super::set::{How, RuleSet};
use super::words::{FAMILIES, SYN, connection, stopped};

/// Whether answers or new connections are led to sockets here by their mark.
fn awaits(ruleset: &RuleSet) -> bool {
    ruleset.in_clients_names || has(ruleset, How::Tproxy)
}

fn has(ruleset: &RuleSet, how: How) -> bool {
    ruleset.takers.iter().any(|taker| taker.how == how)
}

/// Writes the sets and the chains for detecting losses.
pub(super) fn arrivals(ruleset: &RuleSet, text: &mut String) {
    if awaits(ruleset) {
        marked_arrivals(ruleset, text);
    }
    if has(ruleset, How::Redirect) {
        redirected_arrivals(text);
    }
    if !awaits(ruleset) && !has(ruleset, How::Redirect) {
        return;
    }
    let mut heard = Vec::new();
    for (family, ip, _) in FAMILIES.into_iter().filter(|_| awaits(ruleset)) {
        let ends = connection(ip);
        heard.push(format!(
            "{SYN} {ends} @pending-{family} update @arrived-{family} {{ iifname . tcp dport }}"
        ));
        heard.push(format!("delete @pending-{family} {{ {ends} }}"));
    }
    for (family, ip, _) in FAMILIES.into_iter().filter(|_| has(ruleset, How::Redirect)) {
        let end = client(ip);
        heard.push(format!(
            "{end} @pending-redirect-{family} update @arrived-redirect {{ iifname . meta nfproto }}"
        ));
        heard.push(format!("delete @pending-redirect-{family} {{ {end} }}"));
    }
    chain(text, "heard", &heard);
    // Behind the chains of firewalls.
    let hook = "type filter hook input priority 300; policy accept;".to_owned();
    chain(text, "arrived", &[hook, "tcp flags & syn == syn jump heard".to_owned()]);
}

fn marked_arrivals(ruleset: &RuleSet, text: &mut String) {
    let _ = write!(text, "\tcounter {UNHEARD} {{\n\t}}\n");
    for (family, ip, address) in FAMILIES {
        set(
            text,
            &format!("pending-{family}"),
            &format!("{address} . inet_service . {address} . inet_service"),
            "30s",
        );
        set(text, &format!("lost-{family}"), &format!("{address} . inet_service"), REST);
        for name in ["blocked", "arrived"] {
            set(text, &format!("{name}-{family}"), "ifname . inet_service", REST);
        }
        let unheard = [
            format!("counter name \"{UNHEARD}\""),
            format!("update @lost-{family} {{ {ip} daddr . tcp dport }}"),
            format!(
                "iifname . tcp dport != @arrived-{family} update @blocked-{family} {{ iifname . tcp dport }}"
            ),
            "accept".to_owned(),
        ];
        chain(text, &format!("unheard-{family}"), &unheard);
    }
    if hold::hold_numbers(ruleset).is_some() {
        let aside = FAMILIES.map(|(family, ip, _)| {
            let mut rules = stopped(family, ip).to_vec();
            rules.push(format!("{} @pending-{family}", connection(ip)));
            rules.into_iter().map(|rule| format!("{rule} accept"))
        });
        chain(text, "aside", &aside.into_iter().flatten().collect::<Vec<_>>());
    }
    if ruleset.in_clients_names {
        let _ = write!(text, "\tcounter {UNANSWERED} {{\n\t}}\n");
        let answer = FAMILIES.map(|(family, ip, _)| {
            let ends = connection(ip);
            [
                format!("{ends} @pending-{family} counter name \"{UNANSWERED}\""),
                format!("update @pending-{family} {{ {ends} }}"),
            ]
        });
        chain(text, "answer", &answer.concat());
    }
}

/// Returns the rule awaiting servers' answers to connects from clients' addresses; it precedes the rule
/// that leads them here.
pub(super) fn awaited_answers(ruleset: &RuleSet) -> Option<String> {
    let answers = "tcp flags & (fin | syn | rst | ack) == (syn | ack) socket transparent 1 jump answer";
    ruleset.in_clients_names.then(|| answers.to_owned())
}

/// Writes the redirecting chains, one for each interception.
pub(super) fn redirects(ruleset: &RuleSet, text: &mut String) {
    let numbered = ruleset.takers.iter().enumerate().filter(|(_, taker)| taker.how == How::Redirect);
    for (number, taker) in numbered {
        let mut rules = vec!["fib daddr type local return".to_owned()];
        rules.extend(FAMILIES.map(|(family, ip, _)| {
            format!("{} @pending-redirect-{family} goto unheard-redirect", client(ip))
        }));
        rules.push("iifname . meta nfproto @blocked-redirect return".to_owned());
        // A rule of their own: a full set ends a rule.
        rules.extend(
            FAMILIES.map(|(family, ip, _)| format!("update @pending-redirect-{family} {{ {} }}", client(ip))),
        );
        rules.push(format!("meta l4proto tcp redirect to :{}", taker.port));
        chain(text, &format!("redirect-{number}"), &rules);
    }
}

fn redirected_arrivals(text: &mut String) {
    for (family, _, address) in FAMILIES {
        set(text, &format!("pending-redirect-{family}"), &format!("{address} . inet_service"), "30s");
    }
    for name in ["blocked", "arrived"] {
        set(text, &format!("{name}-redirect"), "ifname . nf_proto", REST);
    }
    let _ = write!(text, "\tcounter {UNHEARD}-redirect {{\n\t}}\n");
    let blocked =
        "iifname . meta nfproto != @arrived-redirect update @blocked-redirect { iifname . meta nfproto }";
    let unheard = [format!("counter name \"{UNHEARD}-redirect\""), blocked.to_owned(), "accept".to_owned()];
    chain(text, "unheard-redirect", &unheard);
}

/// The client's end of a packet's connection, untouched by redirection.
fn client(ip: &str) -> String {
    format!("{ip} saddr . tcp sport")
}

fn set(text: &mut String, name: &str, kind: &str, timeout: &str) {
    let _ = write!(
        text,
        "\tset {name} {{\n\t\ttype {kind}\n\t\tsize {MOST}\n\t\tflags dynamic,timeout\n\t\ttimeout {timeout}\n\t}}\n"
    );
}

fn chain(text: &mut String, name: &str, rules: &[String]) {
    let rules: String = rules.iter().map(|rule| format!("\t\t{rule}\n")).collect();
    let _ = write!(text, "\tchain {name} {{\n{rules}\t}}\n");
}

/// Losses counted by tables: repeated SYNs, and repeated answers of servers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Losses {
    pub(super) connections: u64,
    pub(super) answers: u64,
}

impl Losses {
    /// Reads the counters from tables in `nft`'s format.
    pub(super) fn read(tables: &str) -> Self {
        let count = |name: &str| {
            let after = tables.split(&format!("counter {name} {{\n")).nth(1)?;
            after.trim_start().strip_prefix("packets ")?.split(' ').next()?.parse::<u64>().ok()
        };
        let redirected = count(&format!("{UNHEARD}-redirect")).unwrap_or(0);
        let connections = count(UNHEARD).unwrap_or(0).saturating_add(redirected);
        Self { connections, answers: count(UNANSWERED).unwrap_or(0) }
    }

    /// Returns the increase; a lower count means a table loaded meanwhile.
    pub(super) fn since(self, before: Self) -> Self {
        let more = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
        Self {
            connections: more(self.connections, before.connections),
            answers: more(self.answers, before.answers),
        }
    }
}

const UNHEARD: &str = "unheard";
const UNANSWERED: &str = "unanswered";

/// How long lost connections pass until the next try.
const REST: &str = "10m";

/// So many of each kind; further ones count as arrived.
const MOST: u32 = 65_536;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_are_read_as_nft_lists_them_and_counted_once() {
        let table = |unheard: u64, redirected: u64, unanswered: u64| {
            format!(
                "table inet oncewire-branch {{\n\tcounter unheard {{\n\t\tpackets {unheard} bytes 60\n\t}}\n\n\
                 \tcounter unheard-redirect {{\n\t\tpackets {redirected} bytes 60\n\t}}\n\n\
                 \tcounter unanswered {{\n\t\tpackets {unanswered} bytes 60\n\t}}\n}}\n"
            )
        };
        let first = Losses::read(&table(3, 1, 2));
        assert_eq!(first, Losses { connections: 4, answers: 2 });
        assert_eq!(Losses::read(&table(5, 1, 2)).since(first), Losses { connections: 2, answers: 0 });
        assert_eq!(Losses::read(&table(1, 0, 0)).since(first), Losses { connections: 1, answers: 0 });
        assert_eq!(Losses::read("table inet oncewire-branch {\n}\n"), Losses::default());
    }
}
