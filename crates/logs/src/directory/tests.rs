//! Logs in a real directory: ownership, and the cost of a hanging disk.

use std::fs::{self, TryLockError};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use oncewire_keys::PublicKey;
use oncewire_link::{LogLimits, LogSide, SavedLog};

use super::super::tests::{check, piece, ranges};
use super::*;

fn owner(keys: &[u8]) -> LogOwner {
    let keys = keys.iter().map(|key| PublicKey::from_bytes([*key; 32])).collect();
    LogOwner {
        name: "hub".to_owned(),
        keys,
        capacity: 256 << 10,
        held: LogLimits { out: 256 << 10, inbound: 256 << 10 },
        hints: 1 << 20,
        anew: false,
    }
}

/// As a disk that hangs while there is a file of this name in the state directory.
fn hang(state: &Path) {
    while state.join(HANGS).exists() {
        std::thread::yield_now();
    }
}

const HANGS: &str = "hangs";

fn place(state: &Path) -> Place {
    Place { state: state.to_owned(), key: None }
}

/// Opens logs in a real directory as a start does.
pub(crate) fn open_in(state: &Path, owners: &[LogOwner]) -> Result<(Logs, Vec<PeerLogs>), StateInUse> {
    in_runtime(open(state, owners.to_vec(), Patience::default()))
}

async fn open(
    state: &Path,
    owners: Vec<LogOwner>,
    patience: Patience,
) -> Result<(Logs, Vec<PeerLogs>), StateInUse> {
    Ok(Logs::take(place(state), patience).await?.open(owners).await)
}

fn in_runtime<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

/// Opens the logs of one owner in a real directory, writes `count` pieces on both sides, and returns the
/// earlier content.
fn run(state: &Path, owner: LogOwner, count: u64) -> [Option<SavedLog>; 2] {
    let (logs, mut peers) = open_in(state, &[owner]).unwrap();
    let peer = peers.remove(0);
    let writer = peer.writer.unwrap();
    for i in 0..count {
        writer.write(LogSide::Out, piece(1, i << 16, 1 << 16));
        writer.write(LogSide::Inbound, piece(9, i << 16, 1 << 15));
    }
    logs.finish();
    [peer.saved.out, peer.saved.inbound]
}

#[test]
fn real_files_are_found_again_and_are_nobody_elses() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("a/state");
    assert!(run(&state, owner(&[7]), 6).iter().all(Option::is_none));
    let [out, inbound] = run(&state, owner(&[7]), 0).map(Option::unwrap);
    check(&out);
    check(&inbound);
    assert_eq!((out.epoch, ranges(Some(&out))), (1, vec![(2 << 16, 6 << 16)]));
    assert_eq!(inbound.epoch, 9);
    assert_eq!(inbound.ranges.len(), 4);
    let directory = state.join("logs").join("07".repeat(32));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    for file in ["out.log", "out.idx", "in.log", "in.idx"] {
        assert_eq!(mode(&directory.join(file)), 0o600, "{file}");
    }
    assert_eq!([mode(&state), mode(&directory)], [0o700; 2]);
    assert_eq!(fs::read_dir(&directory).unwrap().count(), 4);
}

#[test]
fn file_readable_by_others_is_made_private() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), owner(&[7]), 1);
    let file = dir.path().join("logs").join("07".repeat(32)).join("out.log");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
    assert!(run(dir.path(), owner(&[7]), 0)[0].is_some());
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
}

#[test]
fn logs_follow_a_peer_to_its_next_key() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), owner(&[7]), 1);
    assert!(run(dir.path(), owner(&[8, 7]), 0).iter().all(Option::is_some));
    assert!(run(dir.path(), owner(&[8]), 0).iter().all(Option::is_some));
    assert!(run(dir.path(), owner(&[9]), 0).iter().all(Option::is_none));
}

#[test]
fn directory_in_use_is_refused_and_free_again_later() {
    let dir = tempfile::tempdir().unwrap();
    let (first, _) = open_in(dir.path(), &[owner(&[7])]).unwrap();
    assert_eq!(open_in(dir.path(), &[owner(&[7])]).err(), Some(StateInUse));
    drop(first);
    assert!(open_in(dir.path(), &[owner(&[7])]).is_ok());
}

#[test]
fn file_in_place_of_a_directory_costs_a_cold_start() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state");
    fs::write(&state, "a file").unwrap();
    let (logs, peers) = open_in(&state, &[owner(&[7]), owner(&[8])]).unwrap();
    let why = logs.not_kept().why().unwrap();
    assert!(why.contains("start cold"), "{why}");
    assert!(why.contains(&format!("{} is a file, not a directory; move it", state.display())), "{why}");
    assert!(peers.len() == 2 && peers.iter().all(|peer| peer.writer.is_none()));
    // One peer's directory only: the other's logs are persisted.
    let state = dir.path().join("other");
    fs::create_dir_all(state.join("logs")).unwrap();
    fs::write(state.join("logs").join("07".repeat(32)), "a file").unwrap();
    let (_logs, peers) = open_in(&state, &[owner(&[7]), owner(&[8])]).unwrap();
    assert!(peers[0].reader.is_none() && peers[1].reader.is_some());
    let unkept = peers.iter().map(|peer| peer.writer.as_ref().map(|writer| writer.unkept().count()));
    assert_eq!(
        unkept.collect::<Vec<_>>(),
        [Some(2), Some(0)],
        "status says that nothing of the first is kept"
    );
}

#[test]
fn directory_in_place_of_the_lock_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("lock");
    fs::create_dir(&lock).unwrap();
    let (logs, _) = open_in(dir.path(), &[owner(&[7])]).unwrap();
    let why = logs.not_kept().why().unwrap();
    assert!(why.contains(&format!("{} is a directory in the place of a lock file", lock.display())), "{why}");
}

#[test]
fn hanging_disk_costs_a_cold_start_and_bounded_time() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), owner(&[7]), 1);
    let hangs = dir.path().join(HANGS);
    fs::File::create(&hangs).unwrap();
    let patience =
        Patience { reading: Duration::from_millis(20), before_opening: hang, ..Patience::default() };
    in_runtime(async {
        let (logs, peers) = open(dir.path(), vec![owner(&[7]), owner(&[8])], patience).await.unwrap();
        assert!(peers.len() == 2 && peers.iter().all(|peer| peer.writer.is_none()));
        let why = logs.not_kept().why().unwrap();
        assert!(why.contains("logs start cold") && why.contains("takes longer than 20ms"), "{why}");
        assert!(matches!(take_state(dir.path()), Err(TryLockError::WouldBlock)), "it is in use");
        let further = logs.open_more(vec![owner(&[9])]).await;
        assert!(further.len() == 1 && further[0].writer.is_none());
        assert!(logs.not_kept().why().unwrap().contains("new peers"));
    });
    // After the disk's recovery the hung thread releases the directory, and nothing of it is lost.
    fs::remove_file(&hangs).unwrap();
    let free = || take_state(dir.path()).is_ok();
    while !free() {
        std::thread::yield_now();
    }
    assert!(run(dir.path(), owner(&[7]), 0).iter().all(Option::is_some));
}

#[test]
fn recovered_disk_starts_with_empty_logs() {
    let dir = tempfile::tempdir().unwrap();
    run(dir.path(), owner(&[7]), 6);
    let hangs = dir.path().join(HANGS);
    fs::File::create(&hangs).unwrap();
    let patience =
        Patience { reading: Duration::from_millis(20), before_opening: hang, ..Patience::default() };
    in_runtime(async {
        let (logs, peers) = open(dir.path(), vec![owner(&[7])], patience).await.unwrap();
        assert!(peers[0].later && logs.not_kept().why().unwrap().starts_with("until its disk answers"));
        fs::remove_file(&hangs).unwrap();
        logs.answered().await;
        let anew = logs.open_anew(vec![owner(&[7])]).await.unwrap();
        assert!(anew[0].saved.out.is_none() && anew[0].saved.inbound.is_none());
        // The link's epoch has the same number as the one on the disk.
        anew[0].writer.as_ref().unwrap().write(LogSide::Out, piece(1, 1 << 16, 1 << 16));
        let further = logs.open_more(vec![owner(&[8])]).await;
        assert!(further[0].writer.is_some());
        logs.finish();
    });
    let [out, inbound] = run(dir.path(), owner(&[7]), 0);
    assert_eq!(ranges(out.as_ref()), [(1 << 16, 2 << 16)]);
    assert!(inbound.is_none());
}
