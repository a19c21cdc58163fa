//! Control groups as scopes of interception, with their present numbers.
//!
//! nftables looks up a group by its path when a rule is loaded, and then knows its number alone. A restarted
//! service has a group with the same path and another number, and a rule for a missing path is an error. So
//! groups are looked up beforehand, and other groups make other rules.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::set::Groups;
use super::set::RuleSet;

/// Returns the control groups named by these rules, as found below `root`.
pub(super) fn groups_in(ruleset: &RuleSet, root: &Path) -> Groups {
    let is_tree = |path: &Path| path.join("cgroup.controllers").exists();
    let below = if !is_tree(root) && is_tree(&root.join(BELOW)) { BELOW } else { "" };
    let found = group_paths(ruleset).filter_map(|path| {
        let group = fs::metadata(root.join(below).join(path)).ok().filter(fs::Metadata::is_dir)?;
        Some((path.clone(), group.ino()))
    });
    Groups { below, there: found.collect() }
}

/// Returns the missing control groups, a sentence each.
pub(super) fn missing_groups(ruleset: &RuleSet) -> Vec<String> {
    let missing = group_paths(ruleset).filter(|path| !ruleset.cgroups.there.contains_key(*path));
    missing.map(|path| format!("there is no control group {path:?} now; nothing is taken in by it")).collect()
}

fn group_paths(ruleset: &RuleSet) -> impl Iterator<Item = &String> {
    ruleset.takers.iter().flat_map(|taker| &taker.capture.cgroups)
}

/// nftables' root of control groups.
pub(super) const ROOT: &str = "/sys/fs/cgroup";
/// Their place on a system with version 1 beside them.
const BELOW: &str = "unified/";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rules::set::{How, Taker};
    use oncewire_config::{Capture, RulesBy, Scope};

    #[test]
    fn rules_follow_existing_and_recreated_groups() {
        let root = tempfile::tempdir().unwrap();
        let (service, other) = (root.path().join("unified/a.slice/b"), root.path().join("unified/c"));
        fs::create_dir_all(&service).unwrap();
        fs::write(root.path().join("unified/cgroup.controllers"), "").unwrap();
        let cgroups = vec!["a.slice/b".to_owned(), "c".to_owned()];
        let capture = Capture { scope: Scope::Host, cgroups, ..Capture::default() };
        let takers = vec![Taker::new(How::RedirectOwn, capture, 15001)];
        let rules = RuleSet { takers, ..RuleSet::empty("branch", RulesBy::Install) };
        let now = || RuleSet { cgroups: groups_in(&rules, root.path()), ..rules.clone() };
        let redirects = |rules: &RuleSet| {
            let text = rules.nft();
            text.lines().filter(|line| line.contains("redirect to")).map(str::to_owned).collect::<Vec<_>>()
        };

        let one = now();
        let [redirect] = &redirects(&one)[..] else { panic!("{}", one.nft()) };
        assert!(redirect.contains("socket cgroupv2 level 2 \"unified/a.slice/b\" "), "{redirect}");
        assert!(missing_groups(&one)[0].contains("\"c\"") && missing_groups(&one).len() == 1);
        assert_eq!(one, now());

        fs::create_dir(&other).unwrap();
        let both = now();
        assert!(redirects(&both).len() == 2 && missing_groups(&both).is_empty());
        // The old one stays, for the new one to have another number.
        fs::rename(&other, root.path().join("old")).unwrap();
        fs::create_dir(&other).unwrap();
        assert!(now() != both && now().nft() == both.nft());

        fs::remove_dir(&service).unwrap();
        fs::remove_dir(&other).unwrap();
        let none = now();
        assert!(redirects(&none).is_empty() && missing_groups(&none).len() == 2);
        // Intercepted connections go on and need the chain.
        assert!(none.nft().contains("chain output {"), "{}", none.nft());
    }
}
