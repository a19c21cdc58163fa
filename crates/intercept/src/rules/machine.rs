//! A machine's obstacles to interception: reported, never changed.

use std::ops::RangeInclusive;

use oncewire_host::sockets;

use super::bridge::Links;
use super::cgroups;
use super::commands::LoadError;
use super::commands::{ip, nft};
use super::set::{How, RuleSet};
use super::stops;
use super::text;

/// Returns this machine's visible obstacles to these rules: a sentence each, with a remedy. Without the
/// privilege, privileged queries are left out.
pub(super) fn obstacles(ruleset: &RuleSet) -> Vec<String> {
    let mut found = Vec::new();
    match nft(&["--check", "-f", "-"], &text::nft(ruleset)) {
        Err(LoadError::Refused { said, .. }) if said.contains(NOT_PERMITTED) => {}
        Err(error) => found.push(format!("the rules cannot be loaded: {error}")),
        Ok(_) => {}
    }
    match ip(Links::COMMAND) {
        Ok(json) => found.extend(missing_interfaces(ruleset, &Links::read(&json).unwrap_or_default())),
        Err(error) => found.push(format!("bridges and routes need `ip`: {error}")),
    }
    found.extend(cgroups::missing_groups(ruleset));
    found.extend(stops::stops(ruleset));
    if ruleset.in_clients_names && !sockets::shares_clients_ports() {
        found.extend(ports_of_clients(sockets::chosen_ports()));
    }
    found.extend(bad_settings(ruleset, |key| {
        let value = std::fs::read_to_string(format!("/proc/sys/{}", key.replace('.', "/"))).ok()?;
        Some(value.trim().to_owned())
    }));
    found
}

fn missing_interfaces(ruleset: &RuleSet, links: &Links) -> Vec<String> {
    let names = ruleset.takers.iter().flat_map(|taker| &taker.capture.interfaces);
    let missing = names.filter(|name| !name.ends_with('*') && !links.has(name));
    missing.map(|name| format!("there is no interface {name:?} now; nothing is taken in by it")).collect()
}

/// Looks at the kernel's settings; `read` returns one by its name, or nothing if the kernel has none.
fn bad_settings(ruleset: &RuleSet, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let is = |key: &str, value: &str| read(key).is_some_and(|found| found == value);
    let mut found = Vec::new();
    for key in FORWARDING.into_iter().filter(|key| routes_for_others(ruleset) && is(key, "0")) {
        found.push(format!(
            "{key} is 0: what is not taken in ends at this machine, as everything does when the gateway is gone; set \
             it to 1"
        ));
    }
    for key in BRIDGED.into_iter().filter(|key| ruleset.bridged && is(key, "1")) {
        found.push(format!(
            "{key} is 1: frames meet rules for routed packets while they are in the bridge, and connections through \
             it time out; set it to 0"
        ));
    }
    found
}

/// Whether interfaces other than bridge ports are named.
fn routes_for_others(ruleset: &RuleSet) -> bool {
    ruleset.takers.iter().filter(|taker| taker.how != How::RedirectOwn).any(|taker| {
        let is_port = |name: &String| taker.ports.contains_key(name);
        !taker.capture.interfaces.iter().all(is_port)
    })
}

/// Describes the effect on the kernel's port range for connects, if clients' ports are in use.
fn ports_of_clients(chosen: Option<RangeInclusive<u16>>) -> Option<String> {
    let chosen = chosen.filter(|chosen| *chosen.end() >= FIRST_OF_CLIENTS)?;
    Some(format!(
        "this kernel is older than Linux 6.3: each client's port in net.ipv4.ip_local_port_range ({} to {}) is taken from all \
         programs of this machine while a connection is made in the client's name; set that to ports that clients do not \
         use, such as \"10240 32767\"",
        chosen.start(),
        chosen.end()
    ))
}

/// From here on the systems of clients choose their ports, Linux; others begin later.
const FIRST_OF_CLIENTS: u16 = 32768;

const FORWARDING: [&str; 2] = ["net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"];

const BRIDGED: [&str; 3] = [
    "net.bridge.bridge-nf-call-iptables",
    "net.bridge.bridge-nf-call-ip6tables",
    "net.bridge.bridge-nf-call-arptables",
];

const NOT_PERMITTED: &str = "Operation not permitted";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::bridge::on;
    use crate::rules::set::Taker;
    use oncewire_config::{Capture, RulesBy};

    fn set(interface: &str) -> RuleSet {
        let capture = Capture { interfaces: vec![interface.to_owned()], ..Capture::default() };
        let takers = vec![Taker::new(How::Tproxy, capture, 15001)];
        RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) }
    }

    #[test]
    fn router_must_forward_and_bridge_must_not_filter() {
        let links = Links::read(
            r#"[{"ifname": "lan0", "master": "br0", "linkinfo": {"info_slave_kind": "bridge"}}, {"ifname": "eth1"}]"#,
        )
        .unwrap();
        let (router, bridge) = (on(set("eth1"), &links), on(set("lan0"), &links));
        let keys = |set: &RuleSet, value: &str| {
            let told = bad_settings(set, |_| Some(value.to_owned()));
            told.iter().map(|line| line.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&router, "0"), FORWARDING);
        assert_eq!(keys(&router, "1"), [""; 0]);
        assert_eq!(keys(&bridge, "0"), [""; 0]);
        assert_eq!(keys(&bridge, "1"), BRIDGED);
        assert!(bad_settings(&router, |_| None).is_empty());
    }

    #[test]
    fn older_kernel_is_reported_with_client_ports() {
        let told = ports_of_clients(Some(32768..=60999)).unwrap();
        assert!(told.contains("(32768 to 60999)") && told.contains("\"10240 32767\""), "{told}");
        assert_eq!(ports_of_clients(Some(10240..=32767)), None);
        assert_eq!(ports_of_clients(None), None);
    }

    #[test]
    fn missing_interface_is_reported() {
        let links = Links::read(r#"[{"ifname": "eth1"}]"#).unwrap();
        assert!(missing_interfaces(&set("eth1"), &links).is_empty());
        assert!(missing_interfaces(&set("eth*"), &links).is_empty());
        assert_eq!(missing_interfaces(&set("eth2"), &links).len(), 1);
    }
}
