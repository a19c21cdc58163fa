//! Savings on files, each sent as a verified flow through a real pair.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::wire::{FlowId, MAX_BLOCK};

use crate::pair::{Pair, PairConfig, PairError};

/// A run over files, in order; the content of one is there for the next.
pub struct Measurement {
    pair: Pair,
    files: Vec<FileReport>,
}

/// The cost of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileReport {
    /// The file as it was named.
    pub path: PathBuf,
    /// Its bytes.
    pub delivered: u64,
    /// Bytes of all frames for it, both ways, acknowledgements included.
    pub wire: u64,
}

/// The cost of a run; all of it was verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The files, in order; one named twice stands here twice.
    pub files: Vec<FileReport>,
    /// Bytes of all files.
    pub delivered: u64,
    /// Bytes of all frames, both ways.
    pub wire: u64,
    /// Processor time of the sending half.
    pub encoding: Duration,
    /// Processor time of the receiving half.
    pub decoding: Duration,
    /// The most memory of the sending half: log, tables, contexts and kept blocks.
    pub sender_memory: u64,
    /// The most memory of the receiving half: log, contexts and waiting blocks.
    pub receiver_memory: u64,
}

/// Why a file could not be measured.
#[derive(Debug, thiserror::Error)]
pub enum MeasureError {
    /// The file is not there, or may not be read, or reading failed.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A directory was named.
    #[error("{} is a directory; name files, or pack it first: tar -cf FILE.tar {}", path.display(), path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
    },
    /// The codec failed; no measured figure counts.
    #[error("{} did not cross unharmed, which is an error in oncewire, please report it", path.display())]
    Codec {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: PairError,
    },
}

impl Measurement {
    /// Starts with empty logs.
    pub fn new(config: PairConfig) -> Self {
        Self { pair: Pair::new(config), files: Vec::new() }
    }

    /// Sends a file; `progress` is told the bytes of each block as it has crossed.
    ///
    /// # Errors
    /// An unreadable file, and a byte changed on the way.
    pub fn send_file(&mut self, path: &Path, progress: impl FnMut(u64)) -> Result<(), MeasureError> {
        size(path)?;
        let file = File::open(path).map_err(|source| read_error(path, source))?;
        self.send(path, file, progress)
    }

    /// Sends the bytes of `source` as if it were the file at `path`.
    ///
    /// # Errors
    /// An unreadable source, and a byte changed on the way.
    pub fn send(
        &mut self,
        path: &Path,
        mut source: impl Read,
        mut progress: impl FnMut(u64),
    ) -> Result<(), MeasureError> {
        let codec_error = |source| MeasureError::Codec { path: path.to_owned(), source };
        let flow = FlowId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        let before = self.pair.totals();
        let (mut offset, mut waiting) = (0, Vec::new());
        loop {
            // The end must be known when the last block is sent.
            let at_end = !fill(&mut source, &mut waiting).map_err(|source| read_error(path, source))?;
            let cut = self.pair.cut(flow, &waiting, at_end);
            let rest = waiting.split_off(cut.len.min(waiting.len()));
            let block = Bytes::from(waiting);
            let (sent, fin) = (block.len() as u64, at_end && rest.is_empty());
            self.pair.send_parts(flow, offset, block, fin, cut.parts).map_err(codec_error)?;
            progress(sent);
            offset += sent;
            waiting = rest;
            if fin {
                break;
            }
        }
        self.pair.finish_flow(flow).map_err(codec_error)?;
        let wire = self.pair.totals().wire - before.wire;
        self.files.push(FileReport { path: path.to_owned(), delivered: offset, wire });
        Ok(())
    }

    /// Lets time pass between two files.
    pub fn pass(&mut self, time: Duration) {
        self.pair.pass(time);
    }

    /// Lets the chunk store lose everything, unnoticed, between two files.
    pub fn lose_store(&mut self) {
        self.pair.lose_store();
    }

    /// Ends the run.
    pub fn finish(self) -> Report {
        let totals = self.pair.totals();
        Report {
            files: self.files,
            delivered: totals.delivered,
            wire: totals.wire,
            encoding: totals.encoding,
            decoding: totals.decoding,
            sender_memory: totals.sender_memory,
            receiver_memory: totals.receiver_memory,
        }
    }
}

impl FileReport {
    /// Returns 1 − wire / delivered; `None` of an empty file.
    pub fn savings(&self) -> Option<f64> {
        savings(self.delivered, self.wire)
    }
}

impl Report {
    /// Returns 1 − wire / delivered; `None` if nothing was delivered.
    pub fn savings(&self) -> Option<f64> {
        savings(self.delivered, self.wire)
    }

    /// Returns 10⁹ bits of delivered bytes per second of the sending half's CPU time, entropy stage and
    /// digest included; `None` if there was too little to time.
    pub fn encode_gbps(&self) -> Option<f64> {
        gbps(self.delivered, self.encoding)
    }

    /// Returns the same of the receiving half.
    pub fn decode_gbps(&self) -> Option<f64> {
        gbps(self.delivered, self.decoding)
    }
}

/// Returns the size of a measurable file, as far as it is known before reading it: 0 for a pipe.
///
/// # Errors
/// A path to nothing, or to a directory.
pub fn size(path: &Path) -> Result<u64, MeasureError> {
    let metadata = std::fs::metadata(path).map_err(|source| read_error(path, source))?;
    if metadata.is_dir() {
        return Err(MeasureError::Directory { path: path.to_owned() });
    }
    Ok(metadata.len())
}

fn read_error(path: &Path, source: io::Error) -> MeasureError {
    MeasureError::Read { path: path.to_owned(), source }
}

/// Reads a whole block, or the rest. Reads on until there is more than a block; returns whether there is.
fn fill(source: &mut impl Read, waiting: &mut Vec<u8>) -> io::Result<bool> {
    let wanted = (MAX_BLOCK + 1).saturating_sub(waiting.len());
    let read = source.by_ref().take(wanted as u64).read_to_end(waiting)?;
    Ok(read == wanted)
}

fn savings(delivered: u64, wire: u64) -> Option<f64> {
    (delivered > 0).then(|| 1.0 - wire as f64 / delivered as f64)
}

fn gbps(delivered: u64, spent: Duration) -> Option<f64> {
    let bits = delivered as f64 * 8.0;
    (delivered > 0 && !spent.is_zero()).then(|| bits / spent.as_secs_f64() / 1e9)
}
