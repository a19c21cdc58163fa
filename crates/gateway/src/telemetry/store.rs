//! The chunk store in `status`, and as `oncewire store` prints it.

use serde::{Deserialize, Serialize};

/// A chunk store; counters are since the start of the gateway, and 0 for one at rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Its folder.
    pub path: String,
    /// What tells it from any other store, in 16 hexadecimal digits; unknown if it could not be opened.
    pub id: Option<String>,
    /// How it stands.
    pub state: StoreCondition,
    /// Why it is not `open`, as a sentence.
    pub reason: Option<String>,
    /// How much of it was looked through, in percent, while it is being opened.
    pub opened_percent: Option<u64>,
    /// The bytes of disk that it may take, `store_disk`; of one at rest, those that it takes.
    pub size: u64,
    /// The bytes of disk that it takes.
    pub used: u64,
    /// Whether it is encrypted; unknown if it could not be opened.
    pub encrypted: Option<bool>,
    /// Its files.
    pub segments: u64,
    /// Of those, the ones that are set aside since the disk refuses to read them; they are tried again.
    pub set_aside: u64,
    /// Of those, the ones that are given up, since the disk refused them for minutes and read others.
    #[serde(default)]
    pub given_up: u64,
    /// The bytes of a file that is full.
    pub segment_bytes: u64,
    /// Its chunks by level, the largest first; at most 16.
    pub levels: Vec<LevelReport>,
    /// Chunks that the index knows: of 4 KiB and more, of 512 bytes and more, smaller ones.
    pub indexed: Vec<u64>,
    /// The bytes of memory that the index takes.
    pub index_memory: u64,
    /// The age of its oldest chunk in seconds; unknown if it is empty.
    pub oldest_secs: Option<u64>,
    /// The age of its newest chunk in seconds.
    pub newest_secs: Option<u64>,
    /// Reads that wait or are being served.
    pub queue: u64,
    /// How long a read takes once it is its turn, in microseconds; 0 before the first.
    pub service_time_us: u64,
    /// For how long the read has been going on that is oldest, in milliseconds; 0 if none is.
    pub oldest_read_ms: u64,
    /// Bytes that wait to be put.
    pub waiting_bytes: u64,
    /// Chunks that links asked for.
    pub reads: u64,
    /// Of those, the ones that were found.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Of those that links asked for, the ones that were not there.
    #[serde(default)]
    pub absent: u64,
    /// Of them, the ones that were not looked for, since too many waited, the disk hangs or the store is not open.
    pub turned_away: u64,
    /// Of them, the ones that were damaged, or whose file is given up.
    pub damaged: u64,
    /// Of them, the ones that the disk refused to read; they are not forgotten.
    pub unreadable: u64,
    /// Blocks that links put.
    pub puts: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Of those, the ones that were there already.
    pub known: u64,
    /// Of those, the ones that were there, and were stored again since the disk refuses to read a chunk of them.
    #[serde(default)]
    pub replaced: u64,
    /// Blocks that were not taken: too many waited, or the disk failed.
    pub dropped: u64,
    /// Bytes written to the disk, whatever they are.
    pub written: u64,
    /// Writes that failed.
    pub write_errors: u64,
}

/// How a chunk store stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreCondition {
    /// It is read and written.
    Open,
    /// Its files are looked through; until that is done the gateway runs without.
    Opening,
    /// The disk lets nobody go who reads or writes; until it does the gateway runs without.
    Hanging,
    /// It is being cleared, and takes nothing until its files are removed.
    Clearing,
    /// It is read, and takes nothing since the disk failed, has no room, or the process may open no more files.
    ReadOnly,
    /// It could not be opened; the gateway runs without.
    #[default]
    Failed,
}

impl StoreCondition {
    /// Returns the name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Opening => "opening",
            Self::Hanging => "hanging",
            Self::Clearing => "clearing",
            Self::ReadOnly => "read_only",
            Self::Failed => "failed",
        }
    }
}

/// The chunks of one level of a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LevelReport {
    /// The level; 0 is that of the largest chunks.
    pub level: u64,
    /// Chunks on disk.
    pub chunks: u64,
    /// Their bytes; those of other levels are the same ones.
    pub bytes: u64,
}

/// What `oncewire store verify` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Containers that were read: a few blocks and the list of their chunks, the unit that is checked.
    pub containers: u64,
    /// Bytes of blocks that are sound.
    pub bytes: u64,
    /// What is damaged, at most 100 of them.
    pub damaged: Vec<String>,
    /// How many there are beyond.
    pub damaged_left_out: u64,
    /// What the disk did not let be read, at most 100 of them; it may be sound.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub unreadable_left_out: u64,
    /// What was found when the store was opened, and what cannot be told; at most 100 lines.
    pub notes: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub notes_left_out: u64,
}

/// What `oncewire store compact` prints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactReport {
    /// Containers that were written again.
    pub kept: u64,
    /// Containers of which everything is found elsewhere, or nowhere any more.
    pub superseded: u64,
    /// Containers that went unread, the oldest first, for the size that was asked for.
    #[serde(default)]
    pub let_go: u64,
    /// Containers and files that were damaged, and are gone.
    pub damaged: u64,
    /// Which those are; at most 100 of them.
    #[serde(default)]
    pub dropped: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub dropped_left_out: u64,
    /// Containers that the disk refused although it read others of their files, and that are gone; at most 100 of them.
    #[serde(default)]
    pub lost: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub lost_left_out: u64,
    /// Files of which nothing can be read now, and what else has the name of one; it stays. At most 100 of them.
    #[serde(default)]
    pub left: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub left_left_out: u64,
    /// Bytes of disk before.
    pub before: u64,
    /// Bytes of disk now.
    pub after: u64,
}
