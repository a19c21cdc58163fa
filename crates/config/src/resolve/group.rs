//! `[[group]]` and its members.

use oncewire_keys::GroupKey;

use super::Resolver;
use crate::raw::{RawConfig, RawPeer};
use crate::{Group, explain};

/// Resolves the groups and reads their key files; bad ones are reported and left out.
pub(super) fn groups(resolver: &mut Resolver, raw: &RawConfig) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for raw_group in &raw.group {
        let group = raw_group.get_ref();
        let key = GroupKey::load(&resolver.private_file("key_file in [[group]]", &group.key_file));
        let key = resolver.problems.check(group.key_file.span(), "key_file", key);
        let (Some(name), Some(key)) = (resolver.name("name", &group.name), key) else { continue };
        if groups.iter().any(|other| other.name == name) {
            let message = format!("name: there are two groups of the name {name:?}");
            resolver.problems.at(group.name.span(), message);
        }
        let member = |peer: &toml::Spanned<RawPeer>| {
            peer.get_ref().group.as_ref().is_some_and(|group| *group.get_ref() == name)
        };
        if !raw.peer.iter().any(member) && group.discover.is_none() {
            resolver.warnings.push(format!("group: no [[peer]] is in {name:?}; it has no effect"));
        }
        groups.push(Group { name, key });
    }
    groups
}

/// Warns of a site with this gateway alone.
pub(super) fn warn_of_solitude(resolver: &mut Resolver, raw: &RawConfig) {
    let Some(site) = &raw.gateway.get_ref().site else { return };
    let site = site.get_ref();
    let near = |peer: &toml::Spanned<RawPeer>| {
        peer.get_ref().site.as_ref().is_some_and(|other| other.get_ref() == site)
    };
    let looks = raw.group.iter().any(|group| group.get_ref().discover.is_some());
    if !raw.peer.iter().any(near) && !looks {
        resolver
            .warnings
            .push(format!("site: no [[peer]] stands at {site:?}, so there are no neighbours to ask"));
    } else if raw.cache.store_disk.is_none() {
        resolver
            .warnings
            .push("site: without store_disk there is nothing to share with neighbours".to_owned());
    }
}

/// Resolves a peer's group and site.
pub(super) fn group_of_peer(
    resolver: &mut Resolver,
    raw: &RawPeer,
    groups: &[Group],
) -> (Option<Group>, Option<String>) {
    if let (Some(site), None) = (&raw.site, &raw.group) {
        let message = "site: has no effect without group; set group or remove it";
        resolver.problems.at(site.span(), message);
    }
    let site = raw.site.as_ref().and_then(|site| resolver.name("site", site));
    let Some(wanted) = &raw.group else { return (None, site) };
    let group = groups.iter().find(|group| group.name == *wanted.get_ref());
    if group.is_none() {
        let known: Vec<&str> = groups.iter().map(|group| group.name.as_str()).collect();
        let message = match explain::closest(wanted.get_ref(), &known) {
            Some(meant) => format!("there is no such [[group]]; did you mean {meant:?}?"),
            None => "there is no such [[group]] with a key file".to_owned(),
        };
        resolver.problems.at(wanted.span(), format_args!("group: {message}"));
    }
    (group.cloned(), site)
}
