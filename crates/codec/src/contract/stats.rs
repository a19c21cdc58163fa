//! The counters of the two halves.

use crate::Now;
use crate::log::Curve;
use crate::wire::NameEntry;

/// How many chunks were named, and what they stand for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Chunks.
    pub count: u64,
    /// Their plain bytes.
    pub bytes: u64,
    /// Their plain bytes by level, the largest chunks first; what is beyond the last level is counted there.
    pub by_level: [u64; MAX_LEVELS],
}

/// The levels counted apart: as many as any [`Shape`](crate::wanax::Shape) has.
pub const MAX_LEVELS: usize = 12;

impl NameCounts {
    /// Counts a named chunk.
    pub(crate) fn count(&mut self, entry: &NameEntry) {
        self.count += 1;
        self.bytes += u64::from(entry.len);
        if let Some(level) = self.by_level.get_mut(usize::from(entry.level).min(MAX_LEVELS - 1)) {
            *level += u64::from(entry.len);
        }
    }
}

/// What became of a log when either end was another process, or when one of them gave it up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogStart {
    /// It goes on with what is remembered.
    Resumed {
        /// Bytes of earlier connections usable as sources. The receiving half knows the upper bound, its claim; the
        /// sending half may have lost some of that.
        bytes: u64,
    },
    /// It starts over: nothing is referred to that was remembered.
    Anew {
        /// Why.
        reason: &'static str,
    },
}

/// How often a log went on or started over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStarts {
    /// Times it went on.
    pub resumed: u64,
    /// Times it started over.
    pub anew: u64,
    /// What became of it last; `None` if it is the first one.
    pub last: Option<LogStart>,
}

impl LogStarts {
    /// Counts a start.
    pub(crate) fn count(&mut self, start: LogStart) {
        match start {
            LogStart::Resumed { .. } => self.resumed += 1,
            LogStart::Anew { .. } => self.anew += 1,
        }
        self.last = Some(start);
    }
}

/// Counters of a sending half since its start; sizes as they are now. Bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SendStats {
    /// Blocks encoded.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes replaced by copies.
    pub copied: u64,
    /// Plain bytes of flows that are not coded.
    pub uncoded: u64,
    /// Named chunks.
    pub names: NameCounts,
    /// Named chunks the peer's store did not have.
    pub absent: u64,
    /// Named chunks the peer asked for.
    pub chunks_sent: u64,
    /// Their plain bytes.
    pub chunk_bytes_sent: u64,
    /// Whether chunks can be named: the peer has a store, and this end was told how.
    pub store: bool,
    /// Chunks thought to be in the peer's store; outdated ones are counted too.
    pub hints: u64,
    /// Changes of what is thought of the peer's store, by this process.
    pub hint_changes: u64,
    /// Plain bytes that took a range of the log.
    pub remembered: u64,
    /// Plain bytes not remembered because too much was in flight, or their class had its quota of the log.
    pub not_remembered: u64,
    /// Plain bytes not remembered because they were noise for which the log had no room.
    pub noise_left_out: u64,
    /// Blocks and messages sent again.
    pub resent: u64,
    /// Mismatches the peer reported.
    pub mismatches: u64,
    /// The log's epoch.
    pub epoch: u64,
    /// How often the log went on or started over.
    pub log_starts: LogStarts,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The bytes of log that are in use at most, by this end's limit and the peer's.
    pub log_limit: u64,
    /// Log bytes that can be referred to.
    pub log_used: u64,
    /// Whether the log's bytes are on disk only.
    pub released: bool,
    /// What the log saves or would save, by its size.
    pub curve: Curve,
    /// Plain bytes kept until they are acknowledged.
    pub kept: u64,
    /// Items that are not acknowledged.
    pub unacked: u64,
    /// Memory of log, tables, contexts and kept blocks.
    pub memory: u64,
    /// Steps of work caused by the peer's feedback: bounded by its size.
    pub steps: u64,
}

/// Counters of a receiving half since its start; sizes as they are now. Bytes unless named otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReceiveStats {
    /// Blocks delivered.
    pub blocks: u64,
    /// Plain bytes of them.
    pub plain: u64,
    /// Plain bytes rebuilt from the log.
    pub copied: u64,
    /// Blocks that came twice.
    pub duplicates: u64,
    /// Blocks that had to wait for a range.
    pub waited: u64,
    /// Blocks asked for again because something they need was missing.
    pub refetched: u64,
    /// Blocks requested again because their sources were given up here, unknown to the peer.
    pub given_up: u64,
    /// Blocks that referred to offsets overwritten: the peer broke the rules of the cache.
    pub overwritten: u64,
    /// Rebuilt blocks that did not match their digest.
    pub mismatches: u64,
    /// The log's epoch.
    pub epoch: u64,
    /// How often the log went on or started over.
    pub log_starts: LogStarts,
    /// The log's capacity.
    pub log_capacity: u64,
    /// The bytes of log held at most, by this end's limit and the peer's.
    pub log_limit: u64,
    /// Log bytes that can be referred to.
    pub log_used: u64,
    /// Whether the log's bytes are on disk only.
    pub released: bool,
    /// What the log saves or would save, by its size, as the peer told.
    pub curve: Curve,
    /// What became of named chunks.
    pub chunks: ChunkStats,
    /// Memory of log, contexts and waiting blocks.
    pub memory: u64,
    /// Steps of work caused by the peer's frames: bounded by their size.
    pub steps: u64,
}

/// Outcomes of named chunks, since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkStats {
    /// Chunks named.
    pub names: NameCounts,
    /// Those the store had, in time.
    pub hits: NameCounts,
    /// Chunks named before the blocks bringing them were there.
    pub waited: u64,
    /// Chunks the store did not have.
    pub absent: u64,
    /// Chunks damaged.
    pub failed: u64,
    /// Chunks the store may have and did not read: too many waited, or the disk refused.
    pub busy: u64,
    /// Chunks asked for over the network at once, since the disk had too much to do.
    pub shed: u64,
    /// Chunks that took too long to read, and were asked for as well.
    pub late: u64,
    /// Bytes of all chunks asked for over the network.
    pub requested_bytes: u64,
    /// Bytes of chunks that were asked for over the network and have not come.
    pub pending_bytes: u64,
    /// Bytes a second the path is taken to carry; 0 while that is not known, and nothing is shed.
    pub path_bytes_per_s: u64,
    /// The wait of network requests at the far side, beyond round trip and rate.
    pub path_wait: Now,
    /// Blocks put into the store.
    pub put: u64,
    /// Blocks that were to be put and were not: the store takes nothing, or not as fast.
    pub not_put: u64,
}
