//! Persistent logs: files for a warm start after a restart.
//!
//! # Files
//! `[gateway] state` holds `lock`, locked by the running gateway, and a directory `logs` with one directory
//! for each peer, named by its public key in 64 hexadecimal digits: names in the configuration may change,
//! the key is its identity. In it lie `out.log` and `out.idx` (data sent to the peer), `in.log` and `in.idx`
//! (data received from it), `hints` (the knowledge of its chunk store, in the format of `hints.rs`), and for
//! a moment `*.new`. Directories have mode 0700, files 0600: they hold users' data.
//!
//! `*.log` is a ring of `log_memory` bytes: the byte of log offset *o* lies at *o* modulo `log_memory`. It
//! grows as it is filled, and may be shorter.
//!
//! `*.idx` is the index of the ring. Numbers are little-endian. It begins with a header of 32 bytes:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | `owlogidx` |
//! | 8 | 4 | version of the format: 1, or 2 if the log is encrypted |
//! | 12 | 4 | 0 for `out`, 1 for `in` |
//! | 16 | 8 | `log_memory` |
//! | 24 | 8 | XXH3-64 of the bytes before |
//!
//! Records of 32 bytes follow, each appended after its bytes were written to the ring:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | epoch |
//! | 8 | 8 | log offset of the first byte |
//! | 16 | 8 | XXH3-64 of the bytes |
//! | 24 | 4 | number of bytes, from 1 to 65 536 |
//! | 28 | 4 | low half of the XXH3-64 of the 28 bytes before |
//!
//! # Encrypted logs
//! With `[gateway] encrypt_key_file` the index is of version 2. Its header has 48 bytes: 16 bytes naming the
//! key (the first half of HMAC-SHA256 of `oncewire kept log: id` under it) stand before the check. Its
//! records have 56:
//!
//! | at | bytes | what |
//! |---:|---:|---|
//! | 0 | 8 | epoch |
//! | 8 | 8 | log offset of the first byte |
//! | 16 | 16 | salt, drawn at random for each record |
//! | 32 | 16 | tag |
//! | 48 | 4 | number of bytes, from 1 to 65 536 |
//! | 52 | 4 | low half of the XXH3-64 of the 52 bytes before |
//!
//! The ring holds the same number of bytes at the same places, sealed with AES-256-GCM. Each record has a key
//! of its own, the HMAC-SHA256 of its salt under the HMAC-SHA256 of `oncewire kept log: records` under the
//! file's key; that key seals once, with a nonce of zeros. The additional authenticated data: the side as in
//! the header and the number of bytes (4 bytes each), epoch and log offset (8 bytes each), all little-endian.
//! The record's key is new as long as no salt of 128 random bits comes twice: after 2⁴⁰ records (64 PiB of
//! the largest) the chance of a collision is below 2⁻⁴⁸. That needs no memory from run to run, and a state
//! directory copied, restored or used twice does no harm.
//!
//! Joined neighbours are sealed anew, in place; a crash between that and the index costs them, and a
//! concurrent reader has to read again, by the new index. A log of another form or key begins anew. One in
//! clear text, or of unknown form, is overwritten with zeros and synced first.
//!
//! # Valid records
//! A cut or wrong record ends the reading. The valid records are the last run of one epoch; among them later
//! ones win, and those starting more than a ring below the highest end are gone. When the index has grown to
//! four times the need of a full ring, and at every start, it is written anew under another name, synced and
//! renamed: only valid records, small neighbours joined.
//!
//! # Failures
//! Every byte is read and compared with its digest before anyone hears of it, so a crash, a full disk or
//! damage of any kind costs cached content and is never an error: holes, or a cold start. The remains are
//! then compared with the peer's, and the smaller claim wins.
//!
//! Nothing is synced for each block: a killed process loses nothing but its last pieces, since the system
//! keeps all writes. A power cut may lose the last half minute. The writing thread is fed by a bounded queue
//! and never holds up a tunnel.

mod at_rest;
mod directory;
mod disk;
mod health;
mod hints;
mod index;
mod kept;
#[cfg(test)]
mod memory_disk;
mod patience;
mod reading;
mod ring;
mod seal;
#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use oncewire_codec::wanax::Hints;
use oncewire_host::threads;
use oncewire_keys::{PublicKey, StorageKey};
use oncewire_link::{LogLimits, LogSide, SavedLog, SavedLogs};

pub use self::at_rest::{ClearError, clear_at_rest};
use self::directory::Writing;
pub use self::directory::{Logs, Taken};
use self::disk::OsDirectory;
pub use self::health::PersistError;
pub use self::hints::HintFile;
use self::hints::Turns;
use self::kept::{KeptLog, Trouble};
pub use self::patience::{Patience, PersistFailure};
use self::reading::Compactions;
use self::seal::Seal;
pub use self::writer::{Cleared, LogWriter, Settled};
use self::writer::{Keeper, Queue};

/// Initial content of a peer's logs, and their writer; nothing by default.
#[derive(Debug, Default)]
pub struct PeerLogs {
    /// The logs found on disk.
    pub saved: SavedLogs,
    /// None if logs do not outlive this process.
    pub writer: Option<LogWriter>,
    /// Reads them again while this process runs.
    pub reader: Option<LogReader>,
    /// Saved knowledge of the peer's chunk store.
    pub saved_hints: Option<Vec<u8>>,
    /// File of that knowledge.
    pub hints: Option<HintFile>,
    /// They are not persisted, but may be once the disk answers.
    pub later: bool,
}

/// Reads one peer's logs while they are written.
#[derive(Clone, Debug)]
pub struct LogReader {
    directory: OsDirectory,
    capacity: u64,
    seal: Seal,
    /// Of both logs.
    compactions: [Compactions; 2],
}

impl LogReader {
    /// Reads the last bytes of both logs, within the limits; call on a thread free to block.
    pub fn read(&self, limits: LogLimits) -> SavedLogs {
        let [out, inbound] = &self.compactions;
        let read = |compactions, side, held| {
            reading::read((&self.directory, compactions), side, self.capacity, held, &self.seal)
        };
        SavedLogs {
            out: read(out, LogSide::Out, limits.out),
            inbound: read(inbound, LogSide::Inbound, limits.inbound),
        }
    }
}

/// The owner of persisted logs.
#[derive(Clone, Debug)]
pub struct LogOwner {
    /// The peer's name.
    pub name: String,
    /// The first key names the directory; that of a former key is taken over.
    pub keys: Vec<PublicKey>,
    /// Bytes of each log.
    pub capacity: u64,
    /// Bytes of each with memory at first.
    pub held: LogLimits,
    /// Bytes of hints in memory.
    pub hints: u64,
    /// Old content is void: it has nothing to do with the link's present memory.
    pub anew: bool,
}

/// Place and form of persisted logs.
#[derive(Clone, Debug)]
pub struct Place {
    /// The state directory.
    pub state: PathBuf,
    /// Encryption key; none means clear text.
    pub key: Option<StorageKey>,
}

impl Place {
    /// Finds logs and starts to write them, under the lock of the directory; one entry for each owner, in
    /// order.
    ///
    /// # Errors
    /// If the writing thread cannot start.
    fn open(
        &self,
        owners: &[LogOwner],
        lock: Arc<fs::File>,
        turns: &Turns,
    ) -> io::Result<(Writing, Vec<PeerLogs>)> {
        let seal = Seal::new(self.key.as_ref());
        let (mut keeper, queue) = (Keeper::new(), Arc::new(Queue::default()));
        let open = |owner| open_peer((&self.state, turns), &seal, owner, &mut keeper, &queue);
        let logs = owners.iter().map(open).collect();
        let started = threads::start("oncewire-logs", {
            let queue = Arc::clone(&queue);
            // The lock is held as long as it writes.
            move || writer::run(&queue, keeper, lock)
        });
        started.map(|_| (Writing(queue), logs))
    }
}

fn open_peer(
    (state, turns): (&Path, &Turns),
    seal: &Seal,
    owner: &LogOwner,
    keeper: &mut Keeper<OsDirectory>,
    queue: &Arc<Queue>,
) -> PeerLogs {
    let directory = match peer_directory(state, &owner.keys).and_then(OsDirectory::create) {
        Ok(directory) => directory,
        Err(error) => {
            let why = format!("no directory for them in {}: {error}", state.join("logs").display());
            tracing::warn!(peer = owner.name, "logs start cold and are not kept: {why}");
            let logs = [LogSide::Out, LogSide::Inbound].map(|side| {
                let name = format!("{} of peer {}", kept::ring_name(side), owner.name);
                let place = keeper.add_unopened(name, &why);
                keeper.watched(place)
            });
            return PeerLogs { writer: Some(LogWriter::new(Arc::clone(queue), logs)), ..PeerLogs::default() };
        }
    };
    let mut open = |side| {
        let held = match side {
            LogSide::Out => owner.held.out,
            LogSide::Inbound => owner.held.inbound,
        };
        let opened = KeptLog::open(directory.clone(), side, owner.capacity, held, seal.clone());
        let name = directory.path().join(kept::ring_name(side)).display().to_string();
        let compactions = opened.log.as_ref().map(KeptLog::compactions).unwrap_or_default();
        if owner.anew {
            let log = opened.log.and_then(|log| begin_anew(&owner.name, log));
            return (keep(keeper, name, log, opened.trouble.as_ref()), None, compactions);
        }
        report(&owner.name, &name, opened.saved.as_ref(), opened.trouble.as_ref());
        (keep(keeper, name, opened.log, opened.trouble.as_ref()), opened.saved, compactions)
    };
    let (out, saved_out, compactions_out) = open(LogSide::Out);
    let (inbound, saved_inbound, compactions_inbound) = open(LogSide::Inbound);
    let compactions = [compactions_out, compactions_inbound];
    let hints = HintFile::new(directory.clone(), seal.clone(), turns);
    PeerLogs {
        saved: SavedLogs { out: saved_out, inbound: saved_inbound },
        writer: Some(LogWriter::new(Arc::clone(queue), [out, inbound].map(|place| keeper.watched(place)))),
        reader: Some(LogReader { directory, capacity: owner.capacity, seal: seal.clone(), compactions }),
        saved_hints: read_hints(owner, &hints),
        hints: Some(hints),
        later: false,
    }
}

/// Reads a peer's saved hints, if valid.
fn read_hints(owner: &LogOwner, hints: &HintFile) -> Option<Vec<u8>> {
    if owner.anew {
        return None;
    }
    let read = hints.read(Hints::most_saved(owner.hints));
    read.unwrap_or_else(|error| {
        tracing::warn!(peer = owner.name, "hints start cold: {error}");
        None
    })
}

/// Has an opened log written; `trouble` is the reason for a failed opening.
fn keep(
    keeper: &mut Keeper<OsDirectory>,
    name: String,
    log: Option<KeptLog<OsDirectory>>,
    trouble: Option<&Trouble>,
) -> usize {
    let is_open = log.is_some();
    let place = keeper.add(name, log);
    if !is_open {
        let why = trouble.map_or_else(|| "the one on disk cannot be cleared".to_owned(), Trouble::to_string);
        keeper.fail_to_open(place, &why);
    }
    place
}

/// Forgets a log on disk before the first write: its offsets and epochs may be assigned again.
fn begin_anew(peer: &str, mut log: KeptLog<OsDirectory>) -> Option<KeptLog<OsDirectory>> {
    match log.clear() {
        Ok(_) => Some(log),
        Err(error) => {
            tracing::warn!(peer, "a log is not kept, since the one on disk cannot be cleared: {error}");
            None
        }
    }
}

/// One line for each log found or damaged.
fn report(peer: &str, log: &str, saved: Option<&SavedLog>, trouble: Option<&Trouble>) {
    let bytes: u64 =
        saved.iter().flat_map(|saved| saved.ranges.iter()).map(|range| range.end - range.start).sum();
    match trouble {
        Some(trouble) => {
            tracing::warn!(peer, log, bytes, "only a part of a log is used, or nothing: {trouble}")
        }
        None if bytes > 0 => tracing::info!(peer, log, bytes, "found the log of an earlier run"),
        None => {}
    }
}

/// Returns the directory of a peer's logs; during a rotation of keys, the former key's directory is renamed.
fn peer_directory(state: &Path, keys: &[PublicKey]) -> io::Result<PathBuf> {
    let mut paths = keys.iter().map(|key| state.join("logs").join(hex(key)));
    let Some(path) = paths.next() else { return Err(io::ErrorKind::InvalidInput.into()) };
    if !path.try_exists()?
        && let Some(former) = paths.find(|path| path.is_dir())
    {
        fs::rename(former, &path)?;
    }
    Ok(path)
}

/// The files of a peer's directory.
const FILES: [&str; 5] = [
    kept::ring_name(LogSide::Out),
    kept::index_name(LogSide::Out),
    kept::ring_name(LogSide::Inbound),
    kept::index_name(LogSide::Inbound),
    hints::NAME,
];

fn hex(key: &PublicKey) -> String {
    let mut text = String::with_capacity(64);
    // Writing to a string does not fail.
    key.as_bytes().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}
