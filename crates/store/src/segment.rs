//! Segments: files of containers, and their state in memory.
//!
//! A segment is filled from its front with groups of containers, each group padded with zeros to whole pages. When it is
//! sealed, a [footer](crate::footer) is put behind the last group and the file cut behind the footer.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::RwLock;

use crate::container::MAX_CONTAINER;
use crate::flaw::Flaw;
use crate::index::Class;
use crate::paged::Paged;
use crate::ring::ROUNDS_TO_GIVE_UP;
use crate::{Fault, is_of_the_process};

/// A segment with a file.
pub(crate) struct Segment {
    /// Counts segments; never used again within a store.
    pub(crate) number: u64,
    /// The number of its first container.
    pub(crate) first_container: u64,
    pub(crate) file: Paged,
    pub(crate) extent: RwLock<Extent>,
    /// The id of the store.
    store: u64,
    /// Refused reads since the last successful one.
    errors: AtomicU32,
    /// Rounds with refusals, since the last successful read.
    rounds: AtomicU32,
    /// Why it could not be read when the store was opened, if so; nothing is known to be in it then.
    pub(crate) closed: Option<&'static str>,
    /// The proof of its loss, if any.
    flaw: OnceLock<Flaw>,
    /// Whether the disk hid a part of it during the scan: an index does not know the content there.
    is_incomplete: AtomicBool,
    /// Bytes of its [summary](crate::summary), or of the rest of one; 0 if there is none.
    summary_bytes: AtomicU64,
}

/// The content of a segment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Number of its containers.
    pub(crate) containers: u32,
    /// Offsets of its containers; none once the footer has them and hardly anybody asks any more.
    pub(crate) starts: Vec<u32>,
    /// Whether the file has a footer.
    pub(crate) has_footer: bool,
    /// The end of the last container.
    pub(crate) end: u32,
    /// When its first block came; meaningless without containers.
    pub(crate) oldest_s: u64,
    /// When its last container was begun.
    pub(crate) newest_s: u64,
    /// Chunks and their bytes by level, as far as they were new.
    pub(crate) levels: [Level; LEVELS],
    /// Chunks from 512 bytes to 4 KiB, and smaller ones; not known of all.
    pub(crate) small: Option<[u32; 2]>,
    /// Bytes of the file.
    pub(crate) file_len: u64,
}

/// The content of one level in a store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Level {
    /// Number of chunks.
    pub chunks: u32,
    /// Their bytes; those of other levels are the same ones.
    pub bytes: u64,
}

/// A large chunk in a segment: its tag and offset.
pub(crate) type Coarse = (u64, u32);

impl Segment {
    pub(crate) fn new(store: u64, number: u64, first_container: u64, file: Paged, extent: Extent) -> Self {
        let (extent, errors, rounds) = (RwLock::new(extent), AtomicU32::new(0), AtomicU32::new(0));
        let (is_incomplete, summary_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        Self {
            number,
            first_container,
            file,
            extent,
            store,
            errors,
            rounds,
            closed: None,
            flaw: OnceLock::new(),
            is_incomplete,
            summary_bytes,
        }
    }

    /// Makes an unreadable one, to stay on the disk as it is until its turn to go.
    pub(crate) fn closed(self, why: &'static str) -> Self {
        Self { closed: Some(why), ..self }
    }

    /// Notes the proof of its loss; the first one holds.
    pub(crate) fn note_flaw(&self, flaw: Flaw) {
        let _ = self.flaw.set(flaw);
    }

    /// Returns the proof of its loss.
    pub(crate) fn flaw(&self) -> Option<Fault> {
        self.flaw.get().map(|flaw| flaw.of(self.file.name()))
    }

    /// Compares its footer with the check, and notes a mismatch.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn check_footer(&self) -> Result<(), Fault> {
        let (has_footer, file_len) = {
            let extent = self.extent.read();
            (extent.has_footer, extent.file_len)
        };
        if has_footer && self.footer(file_len)?.is_none() {
            self.note_flaw(Flaw { what: "its footer is damaged", gone: 0 });
        }
        Ok(())
    }

    /// Notes that the scan may have missed a part of it.
    pub(crate) fn found_in_part(&self) {
        self.is_incomplete.store(true, Ordering::Relaxed);
    }

    /// Says whether the next start is to look into it anew, since the disk did not let all of it be found.
    pub(crate) fn is_to_be_looked_through(&self) -> bool {
        self.closed.is_some() || self.is_incomplete.load(Ordering::Relaxed)
    }

    /// Notes how many bytes its summary has, 0 if there is none.
    pub(crate) fn note_summary(&self, bytes: u64) {
        self.summary_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn has_summary(&self) -> bool {
        self.summary_bytes.load(Ordering::Relaxed) > 0
    }

    /// Returns the bytes of its files.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.extent.read().file_len + self.summary_bytes.load(Ordering::Relaxed)
    }

    /// Says whether the disk is not asked for its content, after too many refusals.
    pub(crate) fn is_aside(&self) -> bool {
        let errors = self.errors.load(Ordering::Relaxed);
        self.closed.is_some() || self.is_given_up() || errors >= ERRORS_TO_SET_ASIDE
    }

    /// Says whether its content counts as lost.
    pub(crate) fn is_given_up(&self) -> bool {
        self.rounds.load(Ordering::Relaxed) >= ROUNDS_TO_GIVE_UP
    }

    /// Lets the next read ask the disk again; says whether it was set aside.
    pub(crate) fn ask_again(&self) -> bool {
        let one_left = |errors| (errors >= ERRORS_TO_SET_ASIDE).then_some(ERRORS_TO_SET_ASIDE - 1);
        self.errors.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_left).is_ok()
    }

    /// The same, once in a while; says whether it is given up from now on. A refusal in this round counts as `proof`
    /// or not.
    pub(crate) fn begin_round(&self, proof: bool) -> bool {
        if self.closed.is_some() || self.is_given_up() || !self.ask_again() {
            return false;
        }
        proof && self.rounds.fetch_add(1, Ordering::Relaxed) + 1 >= ROUNDS_TO_GIVE_UP
    }

    /// Reads bytes, unless it is set aside.
    pub(crate) fn read(&self, at: u64, len: usize) -> Result<Vec<u8>, Fault> {
        self.unless_aside(|| self.file.read(at, len))
    }

    fn unless_aside<T>(&self, read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
        let file = || self.file.name().to_owned();
        if self.is_given_up() {
            return Err(Fault::GivenUp { file: file() });
        }
        if self.is_aside() {
            let file = file();
            return Err(Fault::NotTried { file, why: "the disk refused it again and again" });
        }
        let outcome = read();
        match &outcome {
            Err(Fault::Io { source, .. }) if is_of_the_process(source) => {}
            Err(Fault::Io { .. }) => _ = self.errors.fetch_add(1, Ordering::Relaxed),
            _ => {
                self.errors.store(0, Ordering::Relaxed);
                self.rounds.store(0, Ordering::Relaxed);
            }
        }
        outcome
    }

    pub(crate) fn file_name(number: u64) -> String {
        format!("{number:016x}.seg")
    }

    pub(crate) fn number_of(file_name: &str) -> Option<u64> {
        let digits = file_name.strip_suffix(".seg").filter(|digits| digits.len() == 16)?;
        u64::from_str_radix(digits, 16).ok()
    }

    /// The seed of footers' checks.
    pub(crate) fn footer_seed(store: u64, number: u64) -> u64 {
        store.wrapping_add(number)
    }

    /// Returns the place of a container and an upper bound of its bytes, if it is there: the bytes up to the next
    /// known one. Asks the disk if the offsets are in the footer alone.
    pub(crate) fn container(&self, index: usize) -> Result<Option<(u32, usize)>, Fault> {
        self.with_offsets(|extent| {
            let start = *extent.starts.get(index)?;
            let end = extent.starts.get(index + 1).copied().unwrap_or(extent.end);
            Some((start, (end.saturating_sub(start) as usize).min(MAX_CONTAINER)))
        })
    }

    /// Returns the container at an offset. Asks the disk if the offsets are in the footer alone.
    pub(crate) fn container_at(&self, at: u32) -> Result<Option<usize>, Fault> {
        self.with_offsets(|extent| extent.starts.partition_point(|start| *start <= at).checked_sub(1))
    }

    fn with_offsets<T>(&self, ask: impl FnOnce(&Extent) -> T) -> Result<T, Fault> {
        let extent = self.extent.read();
        if !extent.is_shed() {
            return Ok(ask(&extent));
        }
        let (file_len, end) = (extent.file_len, extent.end);
        drop(extent);
        let (extent, _) = self
            .footer(file_len)?
            .ok_or_else(|| self.file.damaged(u64::from(end), "footer fails its check"))?;
        Ok(ask(&extent))
    }

    fn footer(&self, file_len: u64) -> Result<Option<(Extent, Vec<Coarse>)>, Fault> {
        let seed = Self::footer_seed(self.store, self.number);
        self.unless_aside(|| Extent::read(&self.file, file_len, seed))
    }

    /// Leaves the offsets of the containers to the footer.
    pub(crate) fn shed(&self) {
        let mut extent = self.extent.write();
        if extent.has_footer {
            extent.starts = Vec::new();
        }
    }

    /// Takes the offsets of the containers back into memory, for a pass through all of them; says whether they were
    /// shed. With a damaged footer, the containers are looked for.
    ///
    /// # Errors
    /// If the disk refuses.
    pub(crate) fn recall(&self) -> Result<bool, Fault> {
        let (is_shed, file_len, containers) = {
            let extent = self.extent.read();
            (extent.is_shed(), extent.file_len, extent.containers)
        };
        if !is_shed {
            return Ok(false);
        }
        let found = match self.footer(file_len)? {
            Some((found, _)) => found,
            None => {
                let scanned = Extent::scan(&self.file, file_len, self.store, self.number, &mut |_| {});
                let found = scanned.refused.map_or(Ok(scanned.extent), Err)?;
                let gone = containers.saturating_sub(found.containers);
                self.note_flaw(Flaw { what: "its footer is damaged", gone });
                found
            }
        };
        let mut extent = self.extent.write();
        extent.starts = found.starts;
        extent.containers = extent.starts.len() as u32;
        Ok(true)
    }
}

impl Extent {
    /// Adds a container behind the others.
    pub(crate) fn add(&mut self, start: u32, end: u32, time_s: u64, parts: &[crate::Part]) {
        if self.containers == 0 {
            self.oldest_s = time_s;
        }
        self.newest_s = time_s;
        self.containers += 1;
        self.starts.push(start);
        self.end = end;
        for part in parts {
            let level = &mut self.levels[usize::from(part.level).min(LEVELS - 1)];
            level.chunks = level.chunks.saturating_add(1);
            level.bytes += u64::from(part.len);
        }
        let [medium, fine] = self.small.get_or_insert_default();
        for part in parts {
            match Class::of(part.len) {
                Class::Coarse => {}
                Class::Medium => *medium = medium.saturating_add(1),
                Class::Fine => *fine = fine.saturating_add(1),
            }
        }
    }

    /// Returns its number of chunks of the two classes of small ones. While that is unknown, the chunks of a level
    /// count by their mean length.
    pub(crate) fn small_chunks(&self) -> [u64; 2] {
        if let Some(small) = self.small {
            return small.map(u64::from);
        }
        let mut small = [0; 2];
        for level in self.levels.iter().filter(|level| level.chunks > 0) {
            let chunks = u64::from(level.chunks);
            match Class::of(u32::try_from(level.bytes / chunks).unwrap_or(u32::MAX)) {
                Class::Coarse => {}
                Class::Medium => small[0] += chunks,
                Class::Fine => small[1] += chunks,
            }
        }
        small
    }

    /// Says whether the offsets are in the footer alone.
    fn is_shed(&self) -> bool {
        self.starts.is_empty() && self.containers > 0
    }

    /// Forgets everything from an offset on.
    pub(crate) fn cut(&mut self, at: u32) {
        self.starts.retain(|start| *start < at);
        self.containers = self.starts.len() as u32;
        self.end = self.end.min(at);
    }
}

/// Refused reads in a row before a segment is set aside.
pub(crate) const ERRORS_TO_SET_ASIDE: u32 = 4;

/// Distinct levels; higher ones count as the last.
pub(crate) const LEVELS: usize = 16;
