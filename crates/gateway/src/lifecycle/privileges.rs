//! Release of privileges a gateway does not need.
//!
//! The kernel keeps user, groups and capabilities for each thread, so this happens before there is a second
//! one; the runtime's threads inherit the rest.

use std::fs;
use std::io;

use oncewire_config::Config;
use oncewire_tunnel::lane::options::LaneOptions;
use rustix::process::{DumpableBehavior, Gid, Uid, geteuid, set_dumpable_behavior};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set,
    configure_capability_in_ambient_set, remove_capability_from_bounding_set, set_capabilities,
    set_keep_capabilities, set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid,
};

/// A user of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

/// Why privileges were not released.
#[derive(Debug, thiserror::Error)]
pub enum PrivilegeError {
    /// The user list cannot be read.
    #[error("cannot read {PASSWD}: {0}")]
    Passwd(io::Error),
    /// There is no such user.
    #[error("user: {PASSWD} has no user {0:?}; make one with `useradd --system {0}`")]
    NoUser(String),
    /// Another user started the process.
    #[error("user: only root can become {0:?}; start as root, or as that user, or remove `user`")]
    NotRoot(String),
    /// The kernel refused.
    #[error("cannot {what}: {source}")]
    Refused {
        /// The refused operation.
        what: &'static str,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Returns the obstacle to starting as its user on this machine: a missing user.
pub fn obstacle(config: &Config) -> Option<String> {
    let error = Account::find(config.gateway.user.as_ref()?).err()?;
    Some(format!("it does not start on this machine: {error}"))
}

/// Returns the capabilities needed by a configuration: one for ports below 1024, and one for transparent
/// interception, and for lanes with a rate beyond the kernel's default buffers.
pub fn needed(config: &Config) -> CapabilitySet {
    let gateway = &config.gateway;
    let listens = gateway.listen.iter().chain(gateway.admin.iter().map(|admin| &admin.listen));
    let mut listens = listens.chain(config.intercepts.iter().map(|intercept| &intercept.listen));
    let mut needed = CapabilitySet::empty();
    let low = listens.any(|address| (1..FIRST_FREE_PORT).contains(&address.port()));
    needed.set(CapabilitySet::NET_BIND_SERVICE, low || config.acts_as_clients());
    let buffers =
        config.peers.iter().filter_map(|peer| peer.link.rate_limit).any(LaneOptions::asks_for_buffers);
    needed.set(CapabilitySet::NET_ADMIN, config.is_transparent() || buffers);
    needed
}

/// Becomes `user` if one is named, and drops all capabilities but the needed ones; returns whether this
/// process was root and stays it.
///
/// Root without `user` keeps all, perhaps for reasons unknown here. Call it while the process has one thread.
///
/// # Errors
/// If there is no such user, or the kernel refuses; the process must end then, since it may be half of each.
pub fn give_up(user: Option<&str>, needed: CapabilitySet) -> Result<bool, PrivilegeError> {
    let root = geteuid().is_root();
    match user {
        None if root => return Ok(true),
        None => {}
        Some(name) => {
            let account = Account::find(name)?;
            match root {
                true => become_user(&account, needed)?,
                false if geteuid().as_raw() == account.uid => {}
                false => return Err(PrivilegeError::NotRoot(name.to_owned())),
            }
        }
    }
    keep_only(needed)?;
    Ok(false)
}

/// Keeps keys and the content of flows out of core dumps, and this process from being traced by others of its
/// user. Call it after the release of privileges: that reverts it. `ONCEWIRE_DUMPABLE=1` in the environment
/// leaves both possible; returns whether it does.
///
/// # Errors
/// If the kernel refuses.
pub fn keep_secrets() -> Result<bool, PrivilegeError> {
    let is_asked = std::env::var_os(DUMPABLE).is_some_and(|value| value == "1");
    // Another user makes it not dumpable as well.
    let behavior = if is_asked { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
    refused("decide about core dumps", set_dumpable_behavior(behavior))?;
    Ok(is_asked)
}

impl Account {
    /// Finds a user by name.
    pub(super) fn find(name: &str) -> Result<Self, PrivilegeError> {
        let users = fs::read_to_string(PASSWD).map_err(PrivilegeError::Passwd)?;
        let found = users.lines().filter_map(Self::read).find(|account| account.name == name);
        found.ok_or_else(|| PrivilegeError::NoUser(name.to_owned()))
    }

    /// Reads a line of passwd(5).
    fn read(line: &str) -> Option<Self> {
        let mut fields = line.split(':');
        let name = fields.next()?.to_owned();
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Self { name, uid, gid })
    }
}

fn become_user(account: &Account, needed: CapabilitySet) -> Result<(), PrivilegeError> {
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    // First, since this needs a privilege itself: programs started later can never regain these.
    for unneeded in CapabilitySet::all().difference(needed).iter() {
        // The kernel may be older than the list.
        let _ = remove_capability_from_bounding_set(unneeded);
    }
    refused("keep capabilities", set_keep_capabilities(true))?;
    refused("set groups", set_thread_groups(&[gid]))?;
    refused("set the group", set_thread_gid(gid))?;
    refused("set the user", set_thread_uid(uid))?;
    refused("forget to keep capabilities", set_keep_capabilities(false))
}

/// Keeps these capabilities, if this process has them, and hands them to child programs.
fn keep_only(needed: CapabilitySet) -> Result<(), PrivilegeError> {
    let had = refused("read capabilities", capabilities(None))?;
    let kept = needed & had.permitted;
    refused("clear ambient capabilities", clear_ambient_capability_set())?;
    let sets = CapabilitySets { effective: kept, permitted: kept, inheritable: kept };
    refused("set capabilities", set_capabilities(None, sets))?;
    for capability in kept.iter() {
        refused("hand capabilities on", configure_capability_in_ambient_set(capability, true))?;
    }
    refused("rule out new privileges", set_no_new_privs(true))
}

fn refused<T>(what: &'static str, result: rustix::io::Result<T>) -> Result<T, PrivilegeError> {
    result.map_err(|source| PrivilegeError::Refused { what, source: source.into() })
}

/// For debugging.
const DUMPABLE: &str = "ONCEWIRE_DUMPABLE";

const PASSWD: &str = "/etc/passwd";

/// Below it ports belong to root.
const FIRST_FREE_PORT: u16 = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_their_whole_name() {
        let line = "oncewire:x:991:992:a gateway:/nonexistent:/usr/sbin/nologin";
        let account = Account { name: "oncewire".to_owned(), uid: 991, gid: 992 };
        assert_eq!(Account::read(line), Some(account));
        assert_eq!(Account::read("half:x:12"), None);
        assert_eq!(Account::find("root").unwrap().uid, 0);
        assert!(matches!(Account::find("roo"), Err(PrivilegeError::NoUser(_))));
    }

    #[test]
    fn only_low_ports_need_a_privilege() {
        let dir = tempfile::tempdir().unwrap();
        oncewire_keys::Identity::create(&dir.path().join("k")).unwrap();
        let with = |listen: &str| {
            let peer =
                "[[peer]]\nname = \"b\"\npublic_key = \"AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\"\n";
            let text = format!("[gateway]\nname = \"a\"\nkey_file = \"k\"\nlisten = \"{listen}\"\n{peer}");
            needed(&Config::parse(&text, &dir.path().join("a.toml")).unwrap())
        };
        assert_eq!(with("127.0.0.1:0"), CapabilitySet::empty());
        assert_eq!(with("127.0.0.1:1024"), CapabilitySet::empty());
        assert_eq!(with("[::]:443"), CapabilitySet::NET_BIND_SERVICE);
        // The kernel's own limits end at some megabytes.
        assert_eq!(with("127.0.0.1:0\"\n[link]\nrate_limit = \"1 Mbit/s"), CapabilitySet::empty());
        assert_eq!(with("127.0.0.1:0\"\n[link]\nrate_limit = \"100 Gbit/s"), CapabilitySet::NET_ADMIN);
    }
}
