//! The keys of chunk names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use oncewire_codec::wanax::{NameKey, NamesConfig};
use oncewire_config::{Config, Peer};
use oncewire_host::clock::Clock;
use oncewire_keys::Identity;

/// Returns the naming of chunks in data sent to a peer; none if none of its flows name any.
pub fn config(config: &Config, peer: &Peer, clock: Clock) -> Option<NamesConfig> {
    let named = config.policies.name_chunks(&peer.name, peer.settings.usual());
    named.then(|| NamesConfig {
        key: key(&config.gateway.identity, peer),
        group: peer.group.as_ref().map(|group| group.key.name_key()),
        shape: peer.settings.chunk_sizes,
        hint_memory: peer.memory.hints,
        saved: None,
        clock_secs: unix_time_s().saturating_sub(clock.now().as_secs()),
    })
}

/// Derives the key for one peer, in force unless both are of a group. Nobody else can derive it, and it is
/// the same in the next process, for the peer's store outlives this one.
fn key(identity: &Identity, peer: &Peer) -> NameKey {
    let theirs = peer.public_keys.first().map(ToString::to_string).unwrap_or_default();
    NameKey::new(identity.derive_secret(&format!("oncewire names of chunks for {theirs}")))
}

/// Returns the time of day in seconds since 1970.
pub(super) fn unix_time_s() -> u64 {
    // A clock before 1970 is set later; chunks then seem older than they are, and hints stale.
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO).as_secs()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configured() -> (Config, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("branch.key")).unwrap();
        let peer = |byte: u8| {
            let key = Identity::from_seed([byte; 32]).public_key();
            format!("[[peer]]\nname = \"p{byte}\"\npublic_key = \"{key}\"\naddress = \"h:1\"\n")
        };
        let text = format!("[gateway]\nname = \"a\"\nkey_file = \"branch.key\"\n{}{}", peer(1), peer(2));
        (Config::parse(&text, &dir.path().join("branch.toml")).unwrap(), dir)
    }

    #[test]
    fn keys_differ_by_gateway_and_peer() {
        let (config, _dir) = configured();
        let (ours, other) = (&config.gateway.identity, Identity::from_seed([9; 32]));
        let [one, two] = &config.peers[..] else { panic!("{:?}", config.peers) };
        let bytes = |identity, peer| *key(identity, peer).bytes();
        assert_eq!(bytes(ours, one), bytes(ours, one), "it outlives the process");
        assert_ne!(bytes(ours, one), bytes(ours, two));
        assert_ne!(bytes(ours, one), bytes(&other, one));
    }
}
