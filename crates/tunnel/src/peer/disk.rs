//! State of a peer's logs between memory and disk.

use std::sync::OnceLock;

use oncewire_logs::{LogReader, LogWriter, Settled};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

/// Writers and readers of both logs on disk.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) writer: LogWriter,
    pub(super) reader: LogReader,
    /// The count of skipped pieces when the disk last had everything; none before the first time.
    whole_at: Mutex<Option<u64>>,
    /// Serializes writing of missing pieces and release of memory.
    pub(super) turn: tokio::sync::Mutex<()>,
}

impl Kept {
    /// The disk has nothing yet.
    pub(super) fn new(writer: LogWriter, reader: LogReader) -> Self {
        Self { writer, reader, whole_at: Mutex::default(), turn: tokio::sync::Mutex::default() }
    }

    /// Notes a complete disk copy, but for pieces skipped from now on.
    pub(super) fn note_whole(&self) {
        self.note_whole_since(self.writer.skipped());
    }

    pub(super) fn note_whole_since(&self, skipped: u64) {
        *self.whole_at.lock() = Some(skipped);
    }

    /// Whether the disk copy is complete, and memory can be given back.
    pub(super) fn is_whole(&self) -> bool {
        *self.whole_at.lock() == Some(self.writer.skipped())
    }
}

/// Memory request of logs on disk only, out of the memory shared by all logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// Nothing.
    Idle,
    /// Some of it, before they are read.
    Asked,
    /// They are being read, and have it.
    Granted,
}

/// A peer's logs between memory and disk.
#[derive(Debug)]
pub struct DiskLogs {
    /// The logs on disk, if any.
    pub(super) kept: OnceLock<Kept>,
    /// Whether persistence may start later.
    may_keep: bool,
    /// Whether the logs are on disk only.
    pub(super) released: watch::Sender<bool>,
    /// The memory request of logs on disk only.
    pub(super) share: watch::Sender<Share>,
    /// Notified when logs need another look at their memory.
    filling: Notify,
}

impl DiskLogs {
    pub(super) fn new(kept: Option<(LogWriter, LogReader)>, may_keep: bool) -> Self {
        let kept = kept.map(|(writer, reader)| Kept::new(writer, reader));
        kept.iter().for_each(Kept::note_whole);
        Self {
            kept: kept.map(OnceLock::from).unwrap_or_default(),
            may_keep,
            released: watch::Sender::new(false),
            share: watch::Sender::new(Share::Idle),
            filling: Notify::new(),
        }
    }

    /// Has [`Self::fill`] return.
    pub(super) fn note_filled(&self) {
        self.filling.notify_one();
    }

    /// Waits until logs have grown by the amount of `Peer::tell_when_filled`.
    pub async fn fill(&self) {
        self.filling.notified().await;
    }

    /// Whether its logs are not persisted, but may be from now on.
    pub fn may_start(&self) -> bool {
        self.may_keep && self.kept.get().is_none()
    }

    /// Has the files of both logs closed, if they are kept; the result is the completion. Nothing more of
    /// them is kept then.
    pub fn close(&self) -> Option<Settled> {
        self.kept.get().map(|kept| kept.writer.close())
    }

    /// Asks for memory for logs on disk only.
    pub fn ask_for_share(&self) {
        self.share.send_replace(Share::Asked);
    }

    /// Whether logs on disk only count as claimants.
    pub fn wants_share(&self) -> bool {
        *self.share.borrow() != Share::Idle
    }

    /// Waits for a memory request by logs on disk only.
    pub async fn asked_for_share(&self) {
        // The sender is ours.
        let _ = self.share.subscribe().wait_for(|share| *share == Share::Asked).await;
    }

    /// Grants a memory request: the limits are set, and the logs are read.
    pub fn grant_share(&self) {
        self.share.send_if_modified(|share| {
            let asked = *share == Share::Asked;
            if asked {
                *share = Share::Granted;
            }
            asked
        });
    }

    /// The writer of its logs, if they are kept.
    pub fn writer(&self) -> Option<LogWriter> {
        self.kept.get().map(|kept| kept.writer.clone())
    }

    /// Whether the disk copy is complete.
    pub fn is_whole(&self) -> bool {
        self.kept.get().is_some_and(Kept::is_whole)
    }

    /// Whether the logs are on disk only.
    pub fn is_on_disk_only(&self) -> bool {
        *self.released.borrow()
    }
}
