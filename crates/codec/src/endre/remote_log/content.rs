//! What is kept of the log's bytes.

use crate::log::samples::Samples;
use crate::log::{Log, LogOffset};
use crate::verify::log_digest;
use crate::wire::Sample;

/// What is kept of the log's content.
pub(crate) enum Content {
    Bytes(Log),
    /// Enough to judge a peer's claim by, and no more.
    Samples(Samples),
}

impl Content {
    pub(crate) fn new(capacity: u64, keeps_bytes: bool) -> Self {
        match keeps_bytes {
            true => Self::Bytes(Log::new(capacity as usize)),
            false => Self::Samples(Samples::new(capacity)),
        }
    }

    pub(crate) fn write(&mut self, at: LogOffset, block: &[u8]) {
        match self {
            Self::Bytes(log) => log.write(at, block),
            Self::Samples(samples) => samples.note(at.0, block),
        }
    }

    /// The digest of the part of the log the sample is of, if it is known.
    pub(crate) fn digest(&self, sample: &Sample) -> Option<u64> {
        match self {
            Self::Bytes(log) => Some(log_digest(log, sample.start, sample.len as usize)),
            Self::Samples(samples) => samples.digest(sample.start, u64::from(sample.len)),
        }
    }

    pub(crate) fn memory(&self) -> u64 {
        match self {
            Self::Bytes(log) => log.memory(),
            Self::Samples(samples) => samples.memory() as u64,
        }
    }
}
