//! Routing rules and routes of marked packets to local sockets.
//!
//! They are added, found and removed here.

use std::path::Path;

use super::commands::ip;
use super::commands::{LoadError, Programs};
use super::icmp;
use super::set::RuleSet;

/// Returns the arguments of `ip` for leading marked packets to sockets of this machine, for each family.
pub(super) fn routes(ruleset: &RuleSet) -> Vec<String> {
    if !ruleset.needs_routes() {
        return Vec::new();
    }
    let back = ruleset.leads_back().then_some("rule add priority PRIORITY fwmark BACK lookup TABLE");
    let commands = [
        // For a machine's plausibility check of sources under `src_valid_mark`, not for inbound packets.
        "rule add priority BEFORE fwmark MARK iif lo lookup main",
        "rule add priority PRIORITY fwmark MARK lookup TABLE",
        "route replace local default dev lo table TABLE",
    ];
    with_families(ruleset, &commands.into_iter().chain(back).collect::<Vec<_>>())
}

/// Returns the arguments of `ip` for undoing [`RuleSet::routes`].
pub(super) fn routes_undone(ruleset: &RuleSet) -> Vec<String> {
    let mut commands = with_families(
        ruleset,
        &[
            "rule del priority BEFORE fwmark MARK iif lo lookup main",
            "rule del priority PRIORITY fwmark MARK lookup TABLE",
            "rule del priority PRIORITY fwmark BACK lookup TABLE",
            "route flush table TABLE",
        ],
    );
    let earlier = RuleSet { mark: None, priority: EARLIER_PRIORITY, ..ruleset.clone() };
    commands.extend(with_families(
        &earlier,
        &[
            "rule del priority BEFORE fwmark MARK iif lo lookup main",
            "rule del priority PRIORITY fwmark MARK lookup TABLE",
        ],
    ));
    commands
}

/// Returns the arguments of `ip` for removing its routing rules, without those shared with the others.
fn rules_undone_beside(ruleset: &RuleSet, kept: &RuleSet) -> Vec<String> {
    let kept = kept.routes();
    let is_kept = |command: &str| kept.contains(&command.replace(" rule del ", " rule add "));
    let undone = routes_undone(ruleset).into_iter();
    undone.filter(|command| command.contains(" rule del ") && !is_kept(command)).collect()
}

fn with_families(ruleset: &RuleSet, commands: &[&str]) -> Vec<String> {
    let mark = ruleset.mark();
    let fill = |command: &str| {
        let filled = command.replace("PRIORITY", &ruleset.priority.to_string());
        let filled = filled.replace("BEFORE", &(ruleset.priority - 1).to_string());
        let filled = filled.replace("BACK", &format!("{:#x}", icmp::back_mark(ruleset)));
        filled.replace("MARK", &format!("{mark:#x}")).replace("TABLE", &ruleset.routing_table().to_string())
    };
    FAMILIES.iter().flat_map(|family| commands.iter().map(move |c| format!("{family} {}", fill(c)))).collect()
}

/// Whether other rules of the same gateway have routing rules of their own.
pub(super) fn other_routes(ruleset: &RuleSet, other: &RuleSet) -> bool {
    (ruleset.mark(), ruleset.priority) != (other.mark(), other.priority)
}

/// Whether a family has all of [`RuleSet::routes`], by the output of `ip` on its rules and on the routing
/// table.
fn leads_here(ruleset: &RuleSet, rules: &str, table: &str) -> bool {
    let has_rule = |priority: u32, mark: u32| {
        let (begin, mark) = (format!("{priority}:"), format!("fwmark {mark:#x} "));
        rules.lines().any(|line| line.starts_with(&begin) && line.contains(&mark))
    };
    has_rule(ruleset.priority - 1, ruleset.mark())
        && has_rule(ruleset.priority, ruleset.mark())
        && (!ruleset.leads_back() || has_rule(ruleset.priority, icmp::back_mark(ruleset)))
        && table.lines().any(|line| line.starts_with("local default dev lo "))
}

impl Programs<'_> {
    /// Adds missing routing rules and routes; present ones may be in use, and stay.
    pub(super) fn install_routes(&self) -> Result<(), LoadError> {
        for command in self.0.routes() {
            match ip(&command) {
                Err(LoadError::Refused { said, .. }) if said.contains("File exists") => {}
                Err(_) if command.starts_with("-6") && !has_ipv6() => {}
                done => drop(done?),
            }
        }
        Ok(())
    }

    /// Whether they are all present, or none is needed. Without an answer of `ip` they count as present.
    pub(super) fn has_routes(&self) -> bool {
        let families = FAMILIES.into_iter().filter(|family| *family != "-6" || has_ipv6());
        !self.0.needs_routes()
            || families.into_iter().all(|family| self.has_routes_of(family).unwrap_or(true))
    }

    fn has_routes_of(&self, family: &str) -> Result<bool, LoadError> {
        let rules = ip(&format!("{family} rule show"))?;
        let table = match ip(&format!("{family} route show table {}", self.0.routing_table())) {
            // A table exists from its first route to its last.
            Err(LoadError::Refused { said, .. }) if said.contains("table does not exist") => String::new(),
            table => table?,
        };
        Ok(leads_here(self.0, &rules, &table))
    }

    /// Removes only the routing rules missing in `new`: those lead to the same routes by now.
    pub(super) fn remove_rules(&self, new: &RuleSet) {
        for command in rules_undone_beside(self.0, new) {
            let _ = ip(&command);
        }
    }

    /// Missing ones cannot be removed; without the table of nftables no packet is marked, and none goes
    /// there.
    pub(super) fn remove_routes(&self) {
        for command in routes_undone(self.0) {
            let _ = ip(&command);
        }
    }
}

fn has_ipv6() -> bool {
    let is_off =
        std::fs::read("/proc/sys/net/ipv6/conf/lo/disable_ipv6").is_ok_and(|text| text.starts_with(b"1"));
    Path::new("/proc/net/if_inet6").exists() && !is_off
}

pub(super) const FAMILIES: [&str; 2] = ["-4", "-6"];

/// Former default priority of gateways' routing rule; a killed one has left it.
const EARLIER_PRIORITY: u32 = 7400;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::{How, Taker};
    use oncewire_config::{Capture, RulesBy};

    #[test]
    fn two_rules_and_an_own_route_lead_packets_here() {
        let named = |gateway: &str| {
            let takers = vec![Taker::new(How::Tproxy, Capture::default(), 15001)];
            RuleSet { takers, ..RuleSet::empty(gateway, RulesBy::Install) }
        };
        let (branch, other) = (named("branch"), named("other"));
        let mark = branch.mark();
        let before = format!("89:\tfrom all fwmark {mark:#x} iif lo lookup main\n");
        let rule = format!("90:\tfrom all fwmark {mark:#x} lookup {mark}\n");
        let rules = format!("0:\tfrom all lookup local\n{before}{rule}32766:\tfrom all lookup main\n");
        let route = "local default dev lo scope host \n";
        assert!(leads_here(&branch, &rules, route));
        assert!(!leads_here(&branch, &rules, ""));
        assert!(!leads_here(&branch, &rule, route) && !leads_here(&branch, &before, route));
        assert!(!leads_here(&other, &rules, route));
        let elsewhere = RuleSet { mark: Some(0x100), priority: 40, ..branch.clone() };
        assert!(!leads_here(&elsewhere, &rules, route));
        let rules = format!(
            "39:\tfrom all fwmark 0x100 iif lo lookup main\n40:\tfrom all fwmark 0x100 lookup {mark}\n"
        );
        assert!(leads_here(&elsewhere, &rules, route));
        // As IPv6 shows it.
        assert!(leads_here(&elsewhere, &rules, "local default dev lo metric 1024 pref medium\n"));
    }

    #[test]
    fn shared_routing_rules_stay() {
        let takers = vec![Taker::new(How::Tproxy, Capture::default(), 15001)];
        let now = RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) };
        // The former default priority.
        let earlier = RuleSet { priority: EARLIER_PRIORITY, ..now.clone() };
        let (added, undone) = (earlier.routes(), rules_undone_beside(&now, &earlier));
        let mark = now.mark();
        for family in FAMILIES {
            let kept = format!("{family} rule del priority 7400 fwmark {mark:#x} lookup {mark}");
            assert!(added.contains(&kept.replace(" del ", " add ")) && !undone.contains(&kept), "{undone:?}");
            let gone = format!("{family} rule del priority {} fwmark {mark:#x} lookup {mark}", now.priority);
            assert!(undone.contains(&gone), "{undone:?}");
        }
    }
}
