//! Clearing of logs at rest: no gateway has them open.

use std::fs::{self, TryLockError};
use std::io;
use std::path::{Path, PathBuf};

use oncewire_keys::PublicKey;
use oncewire_report::{ClearReport, ClearedReport};
use oncewire_store::Obstacle;

use super::directory::take_state;
use super::disk::temporary;
use super::{FILES, hex};

/// Why logs at rest cannot be cleared.
#[derive(Debug, thiserror::Error)]
pub enum ClearError {
    /// A running gateway may write them at any moment.
    #[error("{path}: a gateway uses the directory, so it has to clear its logs itself; set `admin` in its [gateway] \
             section or give --admin ADDR, or stop it first", path = .0.display())]
    InUse(PathBuf),
    /// The file system takes no changes, not even the lock.
    #[error("{path}: the file system is read-only, as it may become after errors of its disk: check the disk and mount \
             it again", path = .0.display())]
    ReadOnly(PathBuf),
    /// The directory, or its lock, is something else.
    #[error(transparent)]
    InTheWay(Obstacle),
    /// The file system refused.
    #[error("{path}: {source}", path = .path.display())]
    Io {
        /// The path not removed or read.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
}

impl ClearError {
    fn of(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.downcast::<Obstacle>() {
            Ok(obstacle) => Self::InTheWay(obstacle),
            Err(source) if source.kind() == io::ErrorKind::ReadOnlyFilesystem => Self::ReadOnly(path),
            Err(source) => Self::Io { path, source },
        }
    }
}

/// Removes the logs of these peers from an unused state directory, and reports them in order. With `all`,
/// also those of peers without a configuration, by their key in place of a name. Foreign files stay.
///
/// # Errors
/// If a gateway uses the directory, or a file cannot be removed; others may be gone then.
pub fn clear_at_rest(
    state: &Path,
    peers: &[(String, Vec<PublicKey>)],
    all: bool,
) -> Result<ClearReport, ClearError> {
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ClearError::of(&path, source)
    };
    if !state.try_exists().map_err(io(state))? {
        return Ok(ClearReport::of(peers.iter().map(|(name, _)| ClearedReport::new(name))));
    }
    let _lock = take_state(state).map_err(|error| match error {
        TryLockError::WouldBlock => ClearError::InUse(state.to_owned()),
        TryLockError::Error(source) => ClearError::of(state, source),
    })?;
    let logs = state.join("logs");
    let mut cleared = Vec::new();
    for (name, keys) in peers {
        let mut report = ClearedReport::new(name);
        for key in keys {
            report.disk += remove(&logs.join(hex(key)))?;
        }
        cleared.push(report);
    }
    if all {
        let keys: Vec<_> = peers.iter().flat_map(|(_, keys)| keys).copied().collect();
        cleared.extend(clear_past(state, &keys)?);
    }
    Ok(ClearReport::of(cleared))
}

/// Removes the logs of all peers with none of these keys from this process's state directory, and reports
/// them by their keys in place of names. Foreign files stay.
///
/// # Errors
/// If a file cannot be removed; others may be gone then.
pub(super) fn clear_past(state: &Path, keys: &[PublicKey]) -> Result<Vec<ClearedReport>, ClearError> {
    let logs = state.join("logs");
    let io = |path: &Path| {
        let path = path.to_owned();
        move |source| ClearError::of(&path, source)
    };
    let is_configured = |name: &str| keys.iter().any(|key| hex(key) == name);
    let mut cleared = Vec::new();
    for entry in fs::read_dir(&logs).into_iter().flatten() {
        let entry = entry.map_err(io(&logs))?;
        let path = entry.path();
        let name =
            entry.file_name().into_string().ok().filter(|name| is_of_a_peer(name) && !is_configured(name));
        let is_directory = entry.file_type().map_err(io(&path))?.is_dir();
        if let Some(name) = name.filter(|_| is_directory) {
            let mut report = ClearedReport::new(&name);
            report.disk = remove(&path)?;
            cleared.push(report);
        }
    }
    Ok(cleared)
}

/// Whether a directory can be a peer's by its name.
fn is_of_a_peer(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Removes a peer's files, if any, and their directory; returns the number of bytes. Foreign files stay, and
/// the directory with them.
fn remove(directory: &Path) -> Result<u64, ClearError> {
    let mut bytes = 0;
    for name in FILES.iter().flat_map(|name| [(*name).to_owned(), temporary(name)]) {
        let path = directory.join(name);
        match fs::symlink_metadata(&path) {
            Ok(found) if !found.is_dir() => {
                fs::remove_file(&path).map_err(|error| ClearError::of(&path, error))?;
                bytes += found.len();
            }
            // None of ours.
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {}
            Err(error) => return Err(ClearError::of(&path, error)),
        }
    }
    // It may be missing, full, or something else.
    let _ = fs::remove_dir(directory);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::tests::open_in;
    use crate::{LogOwner, Logs};

    fn key(byte: u8) -> PublicKey {
        PublicKey::from_bytes([byte; 32])
    }

    fn peers(names: &[(&str, u8)]) -> Vec<(String, Vec<PublicKey>)> {
        names.iter().map(|(name, byte)| ((*name).to_owned(), vec![key(*byte)])).collect()
    }

    fn open(state: &Path) -> Logs {
        let owner = |byte| LogOwner {
            name: "peer".to_owned(),
            keys: vec![key(byte)],
            capacity: 1 << 20,
            held: oncewire_link::LogLimits { out: 1 << 20, inbound: 1 << 20 },
            hints: 1 << 20,
            anew: false,
        };
        open_in(state, &[owner(1), owner(2), owner(3)]).unwrap().0
    }

    #[test]
    fn only_named_peers_lose_their_logs() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).finish();
        let report = clear_at_rest(dir.path(), &peers(&[("two", 2)]), false).unwrap();
        assert_eq!(report.cleared.len(), 1);
        assert_eq!((report.cleared[0].peer.as_str(), report.cleared[0].memory), ("two", 0));
        assert!(report.cleared[0].disk > 0);
        let left = |byte| dir.path().join("logs").join(hex(&key(byte))).exists();
        assert_eq!([left(1), left(2), left(3)], [true, false, true]);
    }

    #[test]
    fn with_all_those_of_peers_of_the_past_go_too() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).finish();
        let report = clear_at_rest(dir.path(), &peers(&[("one", 1), ("two", 2)]), true).unwrap();
        let names: Vec<_> = report.cleared.iter().map(|cleared| cleared.peer.clone()).collect();
        assert_eq!(names, ["one".to_owned(), "two".to_owned(), "03".repeat(32)]);
        assert!(report.cleared[2].disk > 0);
        assert_eq!(fs::read_dir(dir.path().join("logs")).unwrap().count(), 0);
    }

    #[test]
    fn foreign_files_survive_clearing() {
        let dir = tempfile::tempdir().unwrap();
        open(dir.path()).finish();
        let logs = dir.path().join("logs");
        let of_peer = |byte| logs.join(hex(&key(byte)));
        fs::write(of_peer(1).join("hints.new"), "cut short").unwrap();
        // One configured peer, one past peer.
        for directory in [of_peer(1), of_peer(3)] {
            fs::write(directory.join("note"), "somebody else's").unwrap();
            fs::create_dir(directory.join("out.idx.new")).unwrap();
        }
        fs::remove_dir_all(of_peer(2)).unwrap();
        fs::write(of_peer(2), "somebody else's").unwrap();
        let almost = [&hex(&key(4))[1..], &hex(&key(0xab)).to_uppercase(), "mydata"];
        for name in almost {
            fs::create_dir(logs.join(name)).unwrap();
            fs::write(logs.join(name).join("out.log"), "somebody else's").unwrap();
        }
        let report = clear_at_rest(dir.path(), &peers(&[("one", 1), ("two", 2)]), true).unwrap();
        assert_eq!(report.cleared.len(), 3);
        let names = |directory: &Path| {
            let names = fs::read_dir(directory).unwrap().map(|left| left.unwrap().file_name());
            let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
            names.sort();
            names
        };
        for directory in [of_peer(1), of_peer(3)] {
            assert_eq!(names(&directory), ["note", "out.idx.new"]);
        }
        assert!(of_peer(2).exists());
        assert!(almost.iter().all(|name| logs.join(name).join("out.log").exists()));
    }

    #[test]
    fn logs_of_a_running_gateway_stay_untouched() {
        let dir = tempfile::tempdir().unwrap();
        let logs = open(dir.path());
        let refused = clear_at_rest(dir.path(), &peers(&[("one", 1)]), true).unwrap_err();
        assert!(matches!(refused, ClearError::InUse(_)), "{refused}");
        assert!(dir.path().join("logs").join(hex(&key(1))).join("out.idx").exists());
        drop(logs);
    }

    #[test]
    fn read_only_file_system_is_named_as_the_reason() {
        let of = |errno| ClearError::of(Path::new("/a"), io::Error::from_raw_os_error(errno)).to_string();
        let (erofs, eacces) = (of(30), of(13));
        assert!(
            erofs.starts_with("/a: the file system is read-only") && erofs.ends_with("mount it again"),
            "{erofs}"
        );
        assert!(eacces.starts_with("/a: Permission denied"), "{eacces}");
    }

    #[test]
    fn clearing_a_missing_state_creates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let state = dir.path().join("state");
        let report = clear_at_rest(&state, &peers(&[("one", 1)]), true).unwrap();
        assert_eq!(report.cleared, [ClearedReport::new("one")]);
        assert!(!state.exists());
    }
}
