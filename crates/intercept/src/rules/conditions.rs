//! Conditions of an interception in rules.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use oncewire_config::PortRange;

use super::set::{RuleSet, Taker};
use super::words::{SYN, joined, networks};

/// Returns the conditions of an interception, any of them sufficient: one for each family of networks and
/// each control group.
pub(super) fn conditions(ruleset: &RuleSet, taker: &Taker) -> Vec<String> {
    let capture = &taker.capture;
    // Frames lifted from a bridge come in by it.
    let bridges: BTreeSet<&String> = taker.ports.values().collect();
    let bridges = bridges.into_iter().filter(|bridge| !capture.names_interface(bridge));
    let names = capture.interfaces.iter().chain(bridges);
    let names: Vec<String> = names.map(|name| format!("{name:?}")).collect();
    let entry = joined(&names).map_or_else(String::new, |names| format!("iifname {names} "));
    let groups = match &capture.cgroups[..] {
        [] => vec![String::new()],
        // If none of them is there, there is no condition, and nothing is taken in.
        paths => ruleset.cgroups.conditions(paths),
    };
    let each = groups.iter().map(|group| format!("{entry}meta nfproto @alive {group}"));
    each.flat_map(|entry| conditions_at(taker, &entry)).collect()
}

/// Returns the conditions of an interception behind `entry`, any of them sufficient: one for each family of
/// networks.
pub(super) fn conditions_at(taker: &Taker, entry: &str) -> Vec<String> {
    let capture = &taker.capture;
    let mut common = format!("{entry}{SYN} ");
    for (key, names) in [("meta skuid", &capture.users), ("meta skgid", &capture.groups)] {
        if !names.is_empty() {
            let names: Vec<String> = names.iter().map(|name| account(name)).collect();
            let _ = write!(common, "{key} {{ {} }} ", names.join(", "));
        }
    }
    let ports = joined(&capture.ports.iter().map(PortRange::to_string).collect::<Vec<_>>());
    let ports = ports.map_or("meta l4proto tcp".to_owned(), |ports| format!("tcp dport {ports}"));
    let to = (!capture.networks.is_empty()).then_some(&capture.networks[..]);
    let networks = networks(taker.from.as_deref(), to);
    networks.iter().map(|networks| format!("{common}{networks}{ports}")).collect()
}

/// Writes a name as a name, and a number as a number.
fn account(name: &str) -> String {
    if name.bytes().all(|byte| byte.is_ascii_digit()) { name.to_owned() } else { format!("{name:?}") }
}
