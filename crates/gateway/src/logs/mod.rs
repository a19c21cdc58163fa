//! Logs that survive the process: each peer's two logs in files, so that a restarted gateway is warm.
//!
//! # Files
//! `[gateway] state` holds `lock`, locked by the gateway that runs, and a folder `logs` with one folder for each
//! peer, named by its public key in 64 hexadecimal digits: names in the configuration may change, the key is who
//! it is. In it lie `out.log` and `out.idx` (what was sent to the peer), `in.log` and `in.idx` (what was received
//! from it), `hints` (what is known of its chunk store, in the form that `hints.rs` describes), and for a moment `*.new`. Folders have mode 0700, files 0600: they hold what users sent.
//!
//! `*.log` is a ring of `log_memory` bytes: the byte of log offset *o* lies at *o* modulo `log_memory`. It grows as
//! it is filled, and may be shorter.
//!
//! `*.idx` says what is in the ring. Numbers are little-endian. It begins with a header of 32 bytes:
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
//! With `[gateway] encrypt_key_file` the index is of version 2. Its header has 48 bytes: 16 bytes that name the key
//! (the first half of HMAC-SHA256 of `oncewire kept log: id` under it) stand before the check. Its records have 56:
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
//! The ring holds the same number of bytes at the same places, sealed with AES-256-GCM. Each record has a key of its
//! own, the HMAC-SHA256 of its salt under the HMAC-SHA256 of `oncewire kept log: records` under the file's key; that
//! key seals once, with a nonce of zeros. What is authenticated beside the bytes: the side as in the header and the
//! number of bytes (4 bytes each), epoch and log offset (8 bytes each), all little-endian. The record's key is new as
//! long as no salt of 128 random bits comes twice: after 2⁴⁰ records, which are 64 PiB of the largest, the chance that
//! any two have met is below 2⁻⁴⁸. Nothing has to be remembered from run to run for that, and a state folder that is
//! copied, restored or used twice does no harm.
//!
//! Joined neighbours are sealed anew, in place; a crash between that and the index costs them. A log of another form
//! or key begins anew. One in clear text, or of which that is not known, is overwritten with zeros and synced first.
//!
//! # What counts
//! A record that is cut or wrong ends the reading. The records that count are the last run of one epoch; among
//! them later ones win, and those that start more than a ring below the highest end are gone. When the index has
//! grown to four times what a full ring needs, and at every start, it is written anew under another name, synced
//! and renamed: only what counts, small neighbours joined.
//!
//! # What may go wrong
//! Every byte is read and compared with its digest before anyone hears of it, so a crash, a full disk or damage of
//! any kind costs what was remembered and is never an error: holes, or a cold start. What is found is then compared
//! with what the peer found, and the smaller claim wins.
//!
//! Nothing is synced for each block: a killed process loses nothing but its last pieces, since the system keeps what
//! was written. A power cut may lose the last half minute. The writing thread is fed by a bounded queue and never
//! holds up a tunnel.

mod at_rest;
mod disk;
mod hints;
mod index;
mod kept;
#[cfg(test)]
mod memory_disk;
mod patience;
mod ring;
mod seal;
#[cfg(test)]
mod sealed_tests;
#[cfg(test)]
mod tests;
mod writer;

use std::fmt::Write as _;
use std::fs::{self, TryLockError};
use std::io;
use std::iter::repeat_with;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tokio::time::timeout_at;

use oncewire_link::{LogLimits, LogSide, SavedLog, SavedLogs};

pub use self::at_rest::{ClearError, clear_at_rest};
use self::disk::OsFolder;
pub(crate) use self::hints::HintFile;
use self::hints::Turns;
use self::kept::{KeptLog, Trouble};
use self::patience::within;
pub(crate) use self::patience::{NotKept, Patience};
use self::seal::Seal;
pub(crate) use self::writer::{Cleared, LogWriter, Settled};
use self::writer::{Closing, Keeper, Queue};
use crate::identity::PublicKey;
use crate::slow_disk::{DISK_LIMIT, READ_LIMIT};
use crate::storage_key::StorageKey;

/// What the logs of a peer begin with, and where they go on; nothing by default.
#[derive(Debug, Default)]
pub(crate) struct PeerLogs {
    pub(crate) saved: SavedLogs,
    /// None if logs do not outlive this process.
    pub(crate) writer: Option<LogWriter>,
    /// Where they can be read again while this process runs.
    pub(crate) reader: Option<LogReader>,
    /// What was known of the peer's chunk store.
    pub(crate) saved_hints: Option<Vec<u8>>,
    /// Where that is saved.
    pub(crate) hints: Option<HintFile>,
}

/// Reads one peer's logs while they are written.
#[derive(Clone, Debug)]
pub(crate) struct LogReader {
    folder: OsFolder,
    capacity: u64,
    seal: Seal,
}

impl LogReader {
    /// Reads the last bytes of both logs, no more than the limits; not on a thread that others wait for.
    pub(crate) fn read(&self, limits: LogLimits) -> SavedLogs {
        let read = |side, held| KeptLog::read(&self.folder, side, self.capacity, held, &self.seal);
        SavedLogs { out: read(LogSide::Out, limits.out), inbound: read(LogSide::Inbound, limits.inbound) }
    }
}

/// Whose logs are to be kept.
#[derive(Clone, Debug)]
pub(crate) struct LogOwner {
    pub(crate) name: String,
    /// The folder has the first key's name; that of a former key is taken over.
    pub(crate) keys: Vec<PublicKey>,
    /// Bytes of each log.
    pub(crate) capacity: u64,
    /// Bytes of each that there is memory for at first.
    pub(crate) held: LogLimits,
}

/// Where logs are kept, and how.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The state folder.
    pub(crate) state: PathBuf,
    /// What they are encrypted with; none leaves them in clear text.
    pub(crate) key: Option<StorageKey>,
}

impl Place {
    /// Finds logs and starts to write them, with what says that nobody else may; one entry for each owner, in order.
    ///
    /// # Errors
    /// If nobody could write them.
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
        let thread = thread::Builder::new().name("oncewire-logs".to_owned());
        let started = thread.spawn({
            let queue = Arc::clone(&queue);
            // The lock is held as long as it writes.
            move || writer::run(&queue, keeper, lock)
        });
        started.map(|_| (Writing(queue), logs))
    }
}

/// The logs of all peers of this process. Dropped, it writes what still waits.
#[derive(Debug)]
pub(crate) struct Logs {
    place: Place,
    /// One for those who were there at the start, and one for those of each reload that brought new ones, as long as
    /// any of them is there.
    queues: Vec<Writing>,
    /// None if the folder could not be taken: nothing is kept then.
    lock: Option<Arc<fs::File>>,
    /// Of all hints, also those of peers that have ended.
    turns: Turns,
    /// The disk was waited for in vain, and may yet touch files: no more are opened.
    hangs: bool,
    not_kept: NotKept,
}

/// A thread that writes logs; dropped, it writes what still waits.
#[derive(Debug)]
struct Writing(Arc<Queue>);

impl Drop for Writing {
    fn drop(&mut self) {
        if self.0.close(Closing::Leave) {
            self.0.wait_for_end(Instant::now() + DISK_LIMIT);
        }
    }
}

impl Logs {
    /// Finds the peers' logs and starts to write them; one entry for each owner, in order. Whatever fails, or takes
    /// longer than there is patience for, is logged and costs a cold start.
    ///
    /// # Errors
    /// If another gateway uses the folder, which is a mistake of the configuration and no damage.
    pub(crate) async fn open(
        place: Place,
        owners: Vec<LogOwner>,
        patience: Patience,
    ) -> Result<(Self, Vec<PeerLogs>), StateInUse> {
        let state = place.state.clone();
        let (queues, turns, not_kept) = (Vec::new(), Turns::default(), NotKept::default());
        let mut logs = Self { place, queues, lock: None, turns, hangs: false, not_kept };
        let opened = match within(patience.taking, "state-take", move || take_state(&state)).await {
            Ok(Ok(lock)) => {
                logs.lock = Some(Arc::new(lock));
                logs.find(&owners, patience.reading).await
            }
            Ok(Err(TryLockError::WouldBlock)) => return Err(StateInUse),
            Ok(Err(TryLockError::Error(error))) => Err(error.to_string()),
            Err(why) => Err(why),
        };
        let opened =
            opened.unwrap_or_else(|why| logs.give_up("logs start cold and are not kept", &why, owners.len()));
        Ok((logs, opened))
    }

    /// Finds and writes the logs of further peers, as [`Logs::open`]; one entry for each owner, in order. Whoever
    /// wrote any of them before has closed it ([`Logs::closed`]).
    pub(crate) async fn open_more(&mut self, owners: Vec<LogOwner>) -> Vec<PeerLogs> {
        self.queues.retain(|writing| !writing.0.has_ended());
        let opened = self.find(&owners, READ_LIMIT).await;
        opened.unwrap_or_else(|why| self.give_up("the logs of new peers are not kept", &why, owners.len()))
    }

    /// Reads all that is there of these owners' logs; an error says why nothing is kept of them.
    async fn find(&mut self, owners: &[LogOwner], limit: Duration) -> Result<Vec<PeerLogs>, String> {
        let Some(lock) = self.lock.clone().filter(|_| !self.hangs) else {
            return Err("its disk failed or took too long before".to_owned());
        };
        let (place, owners, turns) = (self.place.clone(), owners.to_vec(), self.turns.clone());
        let opened = within(limit, "logs-open", move || place.open(&owners, lock, &turns)).await;
        let (writing, logs) =
            opened.inspect_err(|_| self.hangs = true)?.map_err(|error| error.to_string())?;
        self.queues.push(writing);
        Ok(logs)
    }

    /// Says what is not kept, in the log and to whoever asks, and returns logs of nothing.
    fn give_up(&self, what: &str, why: &str, count: usize) -> Vec<PeerLogs> {
        let why = format!("until the next start, {what}: {}: {why}", self.place.state.display());
        tracing::warn!("{why}");
        self.not_kept.say(why);
        repeat_with(PeerLogs::default).take(count).collect()
    }

    /// Returns where it is said why logs are not kept.
    pub(crate) fn not_kept(&self) -> NotKept {
        self.not_kept.clone()
    }

    /// Waits until logs are closed ([`LogWriter::close`]), but not for a disk that hangs.
    pub(crate) async fn closed(&mut self, logs: impl IntoIterator<Item = Settled>) {
        let end = tokio::time::Instant::now() + DISK_LIMIT;
        for closed in logs {
            // An answer that cannot come means that the writing has ended by itself.
            self.hangs |= timeout_at(end, closed).await.is_err();
        }
    }

    /// Writes what still waits and has the disk keep it; takes as long as the disk does, within limits.
    pub(crate) fn finish(self) {
        let end = Instant::now() + DISK_LIMIT;
        self.queues.iter().for_each(|writing| {
            writing.0.close(Closing::Sync);
        });
        if !self.queues.iter().all(|writing| writing.0.wait_for_end(end)) {
            tracing::warn!("the disk takes too long to write the last of the logs; it is left to it");
        }
    }
}

/// The state folder is another process's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("another oncewire uses the folder")]
pub(crate) struct StateInUse;

/// Makes the state folder this process's own, as long as the returned file is open.
fn take_state(state: &Path) -> Result<fs::File, TryLockError> {
    let lock =
        OsFolder::create(state.to_owned()).and_then(|_| disk::open_private(&state.join("lock"), false));
    let lock = lock.map_err(TryLockError::Error)?;
    lock.try_lock()?;
    Ok(lock)
}

fn open_peer(
    (state, turns): (&Path, &Turns),
    seal: &Seal,
    owner: &LogOwner,
    keeper: &mut Keeper<OsFolder>,
    queue: &Arc<Queue>,
) -> PeerLogs {
    let folder = match peer_folder(state, &owner.keys).and_then(OsFolder::create) {
        Ok(folder) => folder,
        Err(error) => {
            tracing::warn!(peer = owner.name, "logs start cold and are not kept: {error}");
            return PeerLogs::default();
        }
    };
    let mut open = |side| {
        let held = match side {
            LogSide::Out => owner.held.out,
            LogSide::Inbound => owner.held.inbound,
        };
        let opened = KeptLog::open(folder.clone(), side, owner.capacity, held, seal.clone());
        let name = folder.path().join(kept::ring_name(side)).display().to_string();
        report(&owner.name, &name, opened.saved.as_ref(), opened.trouble.as_ref());
        (keeper.add(name, opened.log), opened.saved)
    };
    let (out, saved_out) = open(LogSide::Out);
    let (inbound, saved_inbound) = open(LogSide::Inbound);
    let hints = HintFile::new(folder.clone(), seal.clone(), turns);
    PeerLogs {
        saved: SavedLogs { out: saved_out, inbound: saved_inbound },
        writer: Some(LogWriter::new(Arc::clone(queue), [out, inbound])),
        reader: Some(LogReader { folder, capacity: owner.capacity, seal: seal.clone() }),
        saved_hints: hints.read(),
        hints: Some(hints),
    }
}

/// One line for each log that was there, or is not as it was.
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

/// Returns the folder of a peer's logs; while its keys rotate, the one of its former key becomes it.
fn peer_folder(state: &Path, keys: &[PublicKey]) -> io::Result<PathBuf> {
    let mut paths = keys.iter().map(|key| state.join("logs").join(hex(key)));
    let Some(path) = paths.next() else { return Err(io::ErrorKind::InvalidInput.into()) };
    if !path.try_exists()?
        && let Some(former) = paths.find(|path| path.is_dir())
    {
        fs::rename(former, &path)?;
    }
    Ok(path)
}

fn hex(key: &PublicKey) -> String {
    let mut text = String::with_capacity(64);
    // Writing to a string does not fail.
    key.as_bytes().iter().for_each(|byte| _ = write!(text, "{byte:02x}"));
    text
}
