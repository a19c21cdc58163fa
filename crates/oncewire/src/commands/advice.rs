//! Warnings of `check` about valid but unusual settings.

use std::fs;
use std::path::Path;

use oncewire_config::units::Size;
use oncewire_config::{Config, StoreSettings};

/// Returns the warnings, one a line.
pub(super) fn advice(config: &Config) -> Vec<String> {
    let store = config.store.as_ref().and_then(|store| room_for(store, free_space(&store.path)));
    open_to_peers(config).into_iter().chain(store).collect()
}

/// Warns of a gateway that peers dial, and that connects for them to any reachable host.
fn open_to_peers(config: &Config) -> Option<String> {
    let open = config.peers.iter().filter(|peer| peer.access.allow.is_none());
    let names: Vec<&str> = open.map(|peer| peer.name.as_str()).collect();
    (!config.gateway.listen.is_empty() && !names.is_empty()).then(|| {
        format!(
            "{} may reach whatever this machine reaches; name what is meant in [[peer]], such as allow = [\"10.0.0.0/8\"]",
            names.join(", ")
        )
    })
}

/// Warns of a store with a capacity beyond its disk's room.
fn room_for(store: &StoreSettings, free: Option<u64>) -> Option<String> {
    let room = free?.saturating_add(held(&store.path));
    (store.disk > room).then(|| {
        format!(
            "store_disk: {} is more than the {} that the disk of {} has room for; lower it, or the disk fills up",
            Size(store.disk),
            Size(room),
            store.path.display()
        )
    })
}

/// Returns the free bytes below a directory, perhaps still to be made; none if unknown.
fn free_space(path: &Path) -> Option<u64> {
    let there = path.ancestors().find(|path| path.exists())?;
    let there = if there.as_os_str().is_empty() { Path::new(".") } else { there };
    let disk = rustix::fs::statvfs(there).ok()?;
    disk.f_bavail.checked_mul(disk.f_frsize)
}

/// Returns the store's bytes on disk.
fn held(path: &Path) -> u64 {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| entry.metadata().ok())
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use oncewire_keys::Identity;

    use super::*;

    /// Returns the warnings about a gateway with these keys, and its peer with those.
    fn of(directory: &Path, gateway: &str, peer: &str) -> Vec<String> {
        let peer_key = Identity::from_seed([1; 32]).public_key();
        let text = format!(
            "[gateway]\nname = \"hub\"\nkey_file = \"hub.key\"\n{gateway}[[peer]]\nname = \"branch\"\n\
             public_key = \"{peer_key}\"\naddress = \"127.0.0.1:7400\"\n{peer}"
        );
        advice(&Config::parse(&text, &directory.join("hub.toml")).unwrap())
    }

    #[test]
    fn hub_without_allow_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        Identity::create(&dir.path().join("hub.key")).unwrap();
        let listen = "listen = [\"127.0.0.1:7400\"]\n";
        let open = of(dir.path(), listen, "");
        assert!(open.len() == 1 && open[0].starts_with("branch may reach whatever"), "{open:?}");
        for (gateway, peer) in [(listen, "allow = [\"10.0.0.0/8\"]\n"), (listen, "allow = []\n"), ("", "")] {
            assert_eq!(of(dir.path(), gateway, peer), Vec::<String>::new());
        }
    }

    #[test]
    fn store_larger_than_its_disk_is_warned_of() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("not/there/yet");
        let store = |disk| StoreSettings { path: path.clone(), disk, index_memory: 0, read_latency: None };
        let free = free_space(&path).unwrap();
        assert!(free > 0);
        assert_eq!(room_for(&store(1000), Some(1000)), None);
        let said = room_for(&store(1001), Some(1000)).unwrap();
        assert!(said.starts_with("store_disk: 1001 B is more than the 1000 B"), "{said}");
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("segment"), [0; 7]).unwrap();
        assert_eq!(room_for(&store(1007), Some(1000)), None, "what is there already needs no room");
        assert_eq!(room_for(&store(u64::MAX), None), None);
    }
}
