//! The chunk store in `status` and `oncewire store`.

use serde::{Deserialize, Serialize};

/// A chunk store; counters are since the start of the gateway, and 0 for one at rest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreReport {
    /// Its directory.
    pub path: String,
    /// Its unique id in 16 hexadecimal digits; unknown if it could not be opened.
    pub id: Option<String>,
    /// How it stands.
    pub state: StoreCondition,
    /// Why it is not `open`, as a sentence.
    pub reason: Option<String>,
    /// Scanned part of it, in percent, while it is being opened.
    pub opened_percent: Option<u64>,
    /// Its bytes of disk, `store_disk`; at rest, its present size.
    pub size: u64,
    /// Its used bytes of disk.
    pub used: u64,
    /// Whether it is encrypted; unknown if it could not be opened.
    pub encrypted: Option<bool>,
    /// Its files.
    pub segments: u64,
    /// Of those, files set aside, since the disk refuses to read them; they are tried again.
    pub set_aside: u64,
    /// Of those set aside, files given up: the disk refused them for minutes and read others.
    #[serde(default)]
    pub given_up: u64,
    /// The bytes of a full file.
    pub segment_bytes: u64,
    /// Its chunks by level, the largest first; at most 16.
    pub levels: Vec<LevelReport>,
    /// Indexed chunks: of 4 KiB and more, of 512 bytes and more, smaller ones.
    pub indexed: Vec<u64>,
    /// The index's bytes of memory.
    pub index_memory: u64,
    /// The age of its oldest chunk in seconds; unknown if it is empty.
    pub oldest_secs: Option<u64>,
    /// The age of its newest chunk in seconds.
    pub newest_secs: Option<u64>,
    /// Reads waiting or being served.
    pub queue: u64,
    /// Service time of a read in microseconds; 0 until the first.
    pub service_time_us: u64,
    /// Age of the oldest running read in milliseconds; 0 without one.
    pub oldest_read_ms: u64,
    /// Bytes waiting to be put.
    pub waiting_bytes: u64,
    /// Chunks requested by links.
    pub reads: u64,
    /// Of those, found ones.
    pub found: u64,
    /// Their bytes.
    pub found_bytes: u64,
    /// Of the ones requested by links, absent ones.
    #[serde(default)]
    pub absent: u64,
    /// Of them, refused ones: too many waited, the disk hangs or the store is not open.
    pub turned_away: u64,
    /// Of them, chunks damaged or in a file given up.
    pub damaged: u64,
    /// Of them, chunks refused by the disk; they are not forgotten.
    pub unreadable: u64,
    /// Blocks put by links.
    pub puts: u64,
    /// Their bytes.
    pub put_bytes: u64,
    /// Of those, known ones.
    pub known: u64,
    /// Of those, known ones stored again because the disk refuses one of their chunks.
    #[serde(default)]
    pub replaced: u64,
    /// Dropped blocks: too many waited, or the disk failed.
    pub dropped: u64,
    /// All bytes written to the disk.
    pub written: u64,
    /// Failed writes.
    pub write_errors: u64,
}

/// How a chunk store stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoreCondition {
    /// It is read and written.
    Open,
    /// Its files are being scanned; the gateway runs without it meanwhile.
    Opening,
    /// Disk I/O is stalled; the gateway runs without it meanwhile.
    Hanging,
    /// It is being cleared, and takes nothing until its files are removed.
    Clearing,
    /// It is read, and takes nothing: the disk failed, has no room, or the process is out of files.
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
    /// The level; 0 is the largest chunks'.
    pub level: u64,
    /// Chunks on disk.
    pub chunks: u64,
    /// Their bytes; other levels have the same ones.
    pub bytes: u64,
}

/// The output of `oncewire store verify`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct VerifyReport {
    /// Containers read: a few blocks and the list of their chunks, the unit of checks.
    pub containers: u64,
    /// Bytes of sound blocks.
    pub bytes: u64,
    /// Damaged items, at most 100 of them.
    pub damaged: Vec<String>,
    /// How many there are beyond.
    pub damaged_left_out: u64,
    /// Unreadable items, at most 100 of them; they may be sound.
    #[serde(default)]
    pub unreadable: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub unreadable_left_out: u64,
    /// Findings on opening the store, and unknowns; at most 100 lines.
    pub notes: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub notes_left_out: u64,
}

/// The output of `oncewire store compact`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompactReport {
    /// Containers written again.
    pub kept: u64,
    /// Containers with nothing found in them alone: everything is elsewhere, or nowhere.
    pub superseded: u64,
    /// Containers left unread for the requested size, the oldest first.
    #[serde(default)]
    pub let_go: u64,
    /// Damaged containers and files, now gone.
    pub damaged: u64,
    /// Their names; at most 100 of them.
    #[serde(default)]
    pub dropped: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub dropped_left_out: u64,
    /// Containers refused by the disk in spite of others read from their files, and gone; at most 100 of
    /// them.
    #[serde(default)]
    pub lost: Vec<String>,
    /// How many there are beyond.
    #[serde(default)]
    pub lost_left_out: u64,
    /// Completely unreadable files, and anything else of such a name; they stay. At most 100 of them.
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
