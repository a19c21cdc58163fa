//! The file of a peer's hints.

use std::io;
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;

use oncewire_logs::HintFile;
use tokio::sync::oneshot;

/// The file of the knowledge of a peer's chunk store.
#[derive(Debug, Default)]
pub(super) struct SavedHints {
    /// None until it can be saved.
    pub(super) file: OnceLock<HintFile>,
    /// Whether the last save failed.
    pub(super) fails: AtomicBool,
}

impl SavedHints {
    pub(super) fn new(file: Option<HintFile>) -> Self {
        Self { file: file.map(OnceLock::from).unwrap_or_default(), fails: AtomicBool::new(false) }
    }
}

/// Result of a save: the number of bytes, or the error.
pub type HintsSaved = oneshot::Receiver<io::Result<u64>>;
