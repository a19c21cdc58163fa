//! A machine's obstacles to intercepted connections: firewalls, and earlier routing rules.

use serde_json::Value;

use super::commands::{ip, nft};
use super::routes::FAMILIES;
use super::set::{How, RuleSet, Taker};

/// Returns a sentence with a remedy for each chain and each routing rule stopping intercepted packets, as
/// far as `nft` and `ip` show them.
pub(super) fn stops(ruleset: &RuleSet) -> Vec<String> {
    let mut found = Vec::new();
    if ruleset.needs_routes() {
        for family in FAMILIES {
            let rules = ip(&format!("{family} rule show")).unwrap_or_default();
            let leads = |table: &str| {
                let routes = ip(&format!("{family} route show table {table}"));
                routes.is_ok_and(|routes| !routes.trim().is_empty())
            };
            found.extend(rules.lines().filter_map(|rule| stopped_by_rule(ruleset, family, rule, leads)));
        }
    }
    if ruleset.takers.iter().any(|taker| taker.how != How::RedirectOwn)
        && let Ok(json) = nft(&["--json", "--terse", "list", "ruleset"], "")
        && let Ok(listed) = serde_json::from_str::<Value>(&json)
    {
        found.extend(stopped_by_chains(ruleset, &Ruleset::read(&listed)));
    }
    found
}

/// Describes an earlier routing rule's possible diversion of marked packets; `leads` returns whether a
/// table has routes.
fn stopped_by_rule(
    ruleset: &RuleSet,
    family: &str,
    rule: &str,
    leads: impl Fn(&str) -> bool,
) -> Option<String> {
    let (number, selector) = rule.split_once(":\t")?;
    let number: u32 = number.parse().ok().filter(|number| (1..ruleset.priority).contains(number))?;
    let words: Vec<&str> = selector.split_whitespace().collect();
    let after = |key: &str| {
        let at = words.iter().position(|word| *word == key)?;
        words.get(at + 1).copied()
    };
    let mut marked = true;
    if let Some(mark) = after("fwmark") {
        let (mark, mask) = mark.split_once('/').unwrap_or((mark, "0xffffffff"));
        let read = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
        marked = ruleset.mark() & read(mask)? == read(mark)?;
    }
    let by = |name: &str| {
        let mut named = ruleset.takers.iter().filter(|taker| taker.how == How::Tproxy);
        ruleset.in_clients_names || named.any(|taker| taker.enters_by(name))
    };
    let elsewhere = after("iif").is_some_and(|name| name == "lo" || !by(name));
    let other = after("oif").is_some() || after("uidrange").is_some();
    let unlike = after("ipproto").is_some_and(|protocol| protocol != "tcp");
    let is_never = !marked || elsewhere || other || unlike;
    // With `not` it means all other packets.
    let passes_by = if words.first() == Some(&"not") { !is_never && means_all(&words) } else { is_never };
    if passes_by || after("lookup").is_some_and(|table| table == "local" || !leads(table)) {
        return None;
    }
    let remedy = if number > 2 {
        format!("set `rule_priority` to {} or less", number - 1)
    } else {
        "remove it, or give it a later place".to_owned()
    };
    Some(format!(
        "the routing rule {number} of `ip {family} rule` ({}) stands before that of this gateway ({}), and what it \
         leads elsewhere does not arrive: {remedy}",
        words.join(" "),
        ruleset.priority
    ))
}

fn stopped_by_chains(ruleset: &RuleSet, listed: &Ruleset<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for base in &listed.bases {
        let takers = ruleset.takers.iter().filter(|taker| taker.how != How::RedirectOwn);
        let mut stopped = takers.filter(|taker| is_dropped(ruleset, listed, base, taker));
        let Some(taker) = stopped.next() else { continue };
        let Base { family, table, name, .. } = base;
        let mark = ruleset.mark();
        let what = match taker.how {
            How::Redirect => format!("tcp dport {}", taker.port),
            _ => format!("meta mark {mark:#x}"),
        };
        found.push(format!(
            "the firewall's input chain `{name}` of table `{family} {table}` drops connections that are taken in, as \
             far as its rules can be read: have it accept them, such as by `nft insert rule {family} {table} {name} \
             {what} accept`, in the firewall's own configuration so that it stays"
        ));
    }
    found
}

/// Whether a chain drops an intercepted SYN, by its understood rules.
fn is_dropped(ruleset: &RuleSet, listed: &Ruleset<'_>, base: &Base<'_>, taker: &Taker) -> bool {
    let port = match taker.how {
        How::Redirect => taker.port,
        // One of many ports may be accepted for another reason.
        _ => taker.capture.ports.first().map_or(UNLIKELY_PORT, |ports| ports.first),
    };
    let packet = Packet { taker, port, mark: if taker.how == How::Redirect { 0 } else { ruleset.mark() } };
    match listed.verdict(base, base.name, &packet, MOST_JUMPS) {
        Some(accepts) => !accepts,
        None => base.drops,
    }
}

/// Chains of all tables, as far as they may see intercepted connections.
struct Ruleset<'a> {
    bases: Vec<Base<'a>>,
    rules: Vec<Rule<'a>>,
}

/// A chain of the hook `input`.
struct Base<'a> {
    family: &'a str,
    table: &'a str,
    name: &'a str,
    drops: bool,
}

struct Rule<'a> {
    family: &'a str,
    table: &'a str,
    chain: &'a str,
    expressions: &'a [Value],
}

/// A SYN at the hook `input`.
struct Packet<'a> {
    taker: &'a Taker,
    port: u16,
    mark: u32,
}

impl<'a> Ruleset<'a> {
    fn read(json: &'a Value) -> Self {
        let mut found = Self { bases: Vec::new(), rules: Vec::new() };
        for object in json["nftables"].as_array().into_iter().flatten() {
            let text = |of: &'a Value, key: &str| of[key].as_str().unwrap_or_default();
            let (chain, rule) = (&object["chain"], &object["rule"]);
            if chain["hook"] == "input" && chain["type"] == "filter" && text(chain, "family") != "bridge" {
                found.bases.push(Base {
                    family: text(chain, "family"),
                    table: text(chain, "table"),
                    name: text(chain, "name"),
                    drops: chain["policy"] == "drop",
                });
            }
            if let Some(expressions) = rule["expr"].as_array() {
                let (family, table) = (text(rule, "family"), text(rule, "table"));
                found.rules.push(Rule { family, table, chain: text(rule, "chain"), expressions });
            }
        }
        found
    }

    /// Returns whether a chain accepts a packet; none if it leaves that to its caller.
    fn verdict(&self, base: &Base<'_>, chain: &str, packet: &Packet<'_>, jumps: u8) -> Option<bool> {
        let of_chain =
            |rule: &&Rule<'_>| rule.family == base.family && rule.table == base.table && rule.chain == chain;
        for rule in self.rules.iter().filter(of_chain) {
            for expression in rule.expressions {
                let Some((kind, what)) = expression.as_object().and_then(|object| object.iter().next())
                else {
                    break;
                };
                match kind.as_str() {
                    "match" if packet.is_matched(what) == Some(true) => {}
                    "counter" | "log" | "comment" => {}
                    "accept" => return Some(true),
                    "drop" | "reject" => return Some(false),
                    "return" => return None,
                    "jump" | "goto" => {
                        let target = what["target"].as_str().unwrap_or_default();
                        let left = jumps.checked_sub(1)?;
                        let verdict = self.verdict(base, target, packet, left);
                        if verdict.is_some() || kind == "goto" {
                            return verdict;
                        }
                    }
                    // A condition failed, or not understood.
                    _ => break,
                }
            }
        }
        None
    }
}

impl Packet<'_> {
    /// Whether a condition holds; none if it is not understood.
    fn is_matched(&self, condition: &Value) -> Option<bool> {
        let (left, right) = (&condition["left"], &condition["right"]);
        let holds = match (left["meta"]["key"].as_str(), left["ct"]["key"].as_str()) {
            (Some("iifname" | "iif"), _) => any(right, &|name| Some(self.taker.enters_by(name.as_str()?))),
            (Some("mark"), _) => any(right, &|mark| Some(mark.as_u64()? == u64::from(self.mark))),
            (Some("l4proto"), _) => any(right, &|protocol| Some(protocol.as_str()? == "tcp")),
            (_, Some("state")) => any(right, &|state| Some(state.as_str()? == "new")),
            _ if left["payload"]["protocol"] == "tcp" && left["payload"]["field"] == "dport" => {
                any(right, &|port| self.is_port(port))
            }
            // Other protocols and other fields.
            _ => None,
        }?;
        match condition["op"].as_str()? {
            "==" | "in" => Some(holds),
            "!=" => Some(!holds),
            _ => None,
        }
    }

    fn is_port(&self, port: &Value) -> Option<bool> {
        let own = u64::from(self.port);
        match port["range"].as_array().map(Vec::as_slice) {
            Some([first, last]) => Some((first.as_u64()?..=last.as_u64()?).contains(&own)),
            _ => Some(port.as_u64()? == own),
        }
    }
}

/// Whether any value of a set, a list or a value alone matches.
fn any(right: &Value, is: &dyn Fn(&Value) -> Option<bool>) -> Option<bool> {
    let values = right.as_array().or_else(|| right["set"].as_array());
    let Some(values) = values else { return is(right) };
    let mut unknown = false;
    for value in values {
        match is(value) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => unknown = true,
        }
    }
    (!unknown).then_some(false)
}

/// Whether a routing rule has no condition beside the mark and the protocol.
fn means_all(words: &[&str]) -> bool {
    const OTHERS: [&str; 8] = ["to", "iif", "tos", "dsfield", "sport", "dport", "l3mdev", "tun_id"];
    let is_from_all = !words.windows(2).any(|pair| pair[0] == "from" && pair[1] != "all");
    is_from_all && !words.iter().any(|word| OTHERS.contains(word))
}

impl Taker {
    /// Whether its intercepted packets come in by an interface, as seen by rules for packets.
    fn enters_by(&self, name: &str) -> bool {
        let bridged = self.ports.values().any(|bridge| bridge == name);
        bridged || self.capture.names_interface(name)
    }
}

/// As many chains as may call each other.
const MOST_JUMPS: u8 = 16;

/// Unlikely among this machine's own services.
const UNLIKELY_PORT: u16 = 47_808;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use oncewire_config::{Capture, RulesBy};

    fn branch(how: How) -> RuleSet {
        let capture = Capture { interfaces: vec!["lan0".to_owned()], ..Capture::default() };
        let takers = vec![Taker::new(how, capture, 15001)];
        RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) }
    }

    #[test]
    fn earlier_routing_rules_are_reported_unless_for_other_packets() {
        let set = RuleSet { priority: 7400, mark: Some(0x6f77_8061), ..branch(How::Tproxy) };
        let told = |rule: &str| stopped_by_rule(&set, "-4", rule, |table| table != "empty");
        let line = told("5270:\tfrom all lookup 52").unwrap();
        assert!(line.contains("rule 5270") && line.contains("`rule_priority` to 5269"), "{line}");
        for stops in [
            "1001:\tfrom all iif lan0 lookup 1",
            "2001:\tfrom all fwmark 0x61/0xff lookup 2",
            "2061:\tfrom all fwmark 0x8000/0x8000 unreachable",
            "9:\tfrom all to 10.0.0.0/8 lookup main",
            "5:\tnot from all fwmark 0xca6c lookup 51820",
            "5:\tnot from all iif wan0 lookup 1",
            "5:\tnot from 10.0.0.0/8 fwmark 0x6f778061 lookup 1",
        ] {
            assert!(told(stops).is_some(), "{stops}");
        }
        for other in [
            "0:\tfrom all lookup local",
            "7399:\tfrom all fwmark 0x6f778061 iif lo lookup main",
            "7400:\tfrom all fwmark 0x6f778061 lookup 1870102625",
            "5210:\tfrom all fwmark 0x80000/0xff0000 lookup main",
            "1001:\tfrom all iif wan0 lookup 1",
            "1002:\tfrom all oif wan0 lookup 1",
            "100:\tfrom all uidrange 1000-1000 lookup 1",
            "100:\tfrom all ipproto udp lookup 1",
            "5270:\tfrom all lookup empty",
            "5:\tnot from all fwmark 0x6f778061 lookup 1",
            "5:\tnot from all fwmark 0x61/0xff ipproto tcp lookup 1",
            "32766:\tfrom all lookup main",
        ] {
            assert_eq!(told(other), None, "{other}");
        }
    }

    /// A ruleset with one chain of the hook `input`, and other callable ones.
    fn ruleset(policy: &str, rules: &[(&str, Value)]) -> Value {
        let chain = json!({"chain": {"family": "inet", "table": "fw", "name": "input", "type": "filter", "hook": "input",
                                     "prio": 0, "policy": policy}});
        let rule = |(chain, expr): &(&str, Value)| json!({"rule": {"family": "inet", "table": "fw", "chain": chain, "expr": expr}});
        let objects: Vec<Value> = std::iter::once(chain).chain(rules.iter().map(rule)).collect();
        json!({ "nftables": objects })
    }

    fn is(left: Value, right: Value) -> Value {
        json!({"match": {"op": "==", "left": left, "right": right}})
    }

    #[test]
    fn only_dropping_firewall_is_reported() {
        let state = is(json!({"ct": {"key": "state"}}), json!(["established", "related"]));
        let enters = |name: &str| is(json!({"meta": {"key": "iifname"}}), json!(name));
        let port = |right: Value| is(json!({"payload": {"protocol": "tcp", "field": "dport"}}), right);
        let marked = |set: &RuleSet| is(json!({"meta": {"key": "mark"}}), json!(set.mark()));
        let (accept, drop) = (json!({"accept": null}), json!({"drop": null}));
        let established = ("input", json!([state, accept]));
        for (how, what) in [(How::Tproxy, "meta mark 0x"), (How::Redirect, "tcp dport 15001")] {
            let set = branch(how);
            let told = |policy: &str, rules: &[(&str, Value)]| {
                let json = ruleset(policy, rules);
                let told = stopped_by_chains(&set, &Ruleset::read(&json));
                assert!(told.iter().all(|line| line.contains(what)), "{told:?}");
                told.len()
            };
            assert_eq!(told("drop", &[]), 1);
            assert_eq!(told("accept", &[]), 0);
            assert_eq!(told("drop", std::slice::from_ref(&established)), 1);
            assert_eq!(told("accept", &[established.clone(), ("input", json!([{"reject": null}]))]), 1);
            assert_eq!(told("drop", &[("input", json!([enters("lo"), accept]))]), 1);
            assert_eq!(told("drop", &[("input", json!([enters("lan0"), accept]))]), 0);
            assert_eq!(
                told(
                    "drop",
                    &[
                        ("input", json!([enters("lan0"), {"jump": {"target": "zone"}}])),
                        ("zone", json!([accept]))
                    ]
                ),
                0
            );
            assert_eq!(
                told(
                    "accept",
                    &[
                        ("input", json!([enters("lan0"), {"goto": {"target": "zone"}}])),
                        ("zone", json!([drop]))
                    ]
                ),
                1
            );
            assert_eq!(told("drop", &[("input", json!([{"xt": null}, accept]))]), 1);
            let open = json!({"set": [22, {"range": [15000, 50000]}]});
            assert_eq!(told("drop", &[("input", json!([port(open), accept]))]), 0);
            assert_eq!(told("drop", &[("input", json!([port(json!(22)), accept]))]), 1);
            let by_mark = told("drop", &[("input", json!([marked(&set), {"counter": null}, accept]))]);
            assert_eq!(by_mark, usize::from(how == How::Redirect));
        }
        let hub = RuleSet { in_clients_names: true, ..RuleSet::empty("hub", RulesBy::Install) };
        assert_eq!(stopped_by_chains(&hub, &Ruleset::read(&ruleset("drop", &[]))), [""; 0]);
    }
}
