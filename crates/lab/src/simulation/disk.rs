//! A disk with one arm: reads in the order of requests, writes in between.

use std::collections::VecDeque;
use std::time::Duration;

use oncewire_codec::Now;

/// The properties of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskParams {
    /// How long it takes to get to a chunk: half a turn and a mean move of the arm.
    pub seek: Duration,
    /// Bytes a second once it is there.
    pub bytes_per_s: u64,
}

impl Default for DiskParams {
    /// A disk of 7,200 turns a minute as the paper's: 8.5 ms to get to a chunk, 100 MB/s from there.
    fn default() -> Self {
        Self { seek: Duration::from_micros(8_500), bytes_per_s: 100_000_000 }
    }
}

/// A disk's treatment of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Health {
    /// It answers them.
    #[default]
    Well,
    /// It never answers again.
    Hangs,
    /// It takes its time and reports an error.
    Fails,
}

/// A disk, and its requests.
#[derive(Debug)]
pub(super) struct Disk<R> {
    params: DiskParams,
    pub(super) health: Health,
    reads: VecDeque<(u32, R)>,
    busy: Option<Job<R>>,
    /// Bytes to be written.
    unwritten: u64,
    /// The recent duration of a read, weighted to the last ones.
    service_time: Now,
    /// When it last was done with something, or began to have something to do.
    progress: Now,
}

#[derive(Debug)]
struct Job<R> {
    since: Now,
    /// Set for a read.
    read: Option<R>,
}

impl<R> Disk<R> {
    pub(super) fn new(params: DiskParams) -> Self {
        Self {
            params,
            health: Health::Well,
            reads: VecDeque::new(),
            busy: None,
            unwritten: 0,
            service_time: params.seek,
            progress: Now::ZERO,
        }
    }

    /// Queues a read of `len` bytes.
    pub(super) fn read(&mut self, len: u32, read: R, now: Now) {
        if self.queued() == 0 {
            self.progress = now;
        }
        self.reads.push_back((len, read));
    }

    /// Returns an unfinished read.
    pub(super) fn find(&mut self, is_it: impl Fn(&R) -> bool) -> Option<&mut R> {
        let busy = self.busy.iter_mut().filter_map(|job| job.read.as_mut());
        busy.chain(self.reads.iter_mut().map(|(_, read)| read)).find(|read| is_it(&**read))
    }

    /// Returns the unfinished reads.
    pub(super) fn reads(&self) -> impl Iterator<Item = &R> {
        let busy = self.busy.iter().filter_map(|job| job.read.as_ref());
        busy.chain(self.reads.iter().map(|(_, read)| read))
    }

    /// Queues bytes to be written, one behind the other and in large groups.
    pub(super) fn write(&mut self, bytes: u64) {
        self.unwritten += bytes;
    }

    /// Begins the next request, if it is idle; returns the time of its end.
    pub(super) fn begin(&mut self, now: Now) -> Option<Now> {
        if self.busy.is_some() || self.health == Health::Hangs {
            return None;
        }
        let (bytes, read) = match self.reads.pop_front() {
            Some((len, read)) => (u64::from(len), Some(read)),
            None if self.unwritten > 0 => (self.unwritten.min(GROUP), None),
            None => return None,
        };
        if read.is_none() {
            self.unwritten -= bytes;
        }
        self.busy = Some(Job { since: now, read });
        Some(now + self.params.time(bytes))
    }

    /// Notes the end of the current request, and returns the read, if it was one.
    pub(super) fn finish(&mut self, now: Now) -> Option<R> {
        let job = self.busy.take()?;
        self.progress = now;
        let read = job.read?;
        self.service_time = (7 * self.service_time + now.saturating_sub(job.since)) / 8;
        Some(read)
    }

    /// Returns the number of unanswered reads.
    pub(super) fn queued(&self) -> u32 {
        let busy = self.busy.as_ref().is_some_and(|job| job.read.is_some());
        self.reads.len() as u32 + u32::from(busy)
    }

    /// Returns the duration of a read, as far as known: no less than the age of the unfinished one.
    pub(super) fn service_time(&self, now: Now) -> Now {
        let waited = if self.queued() == 0 { Now::ZERO } else { now.saturating_sub(self.progress) };
        self.service_time.max(waited)
    }
}

impl DiskParams {
    fn time(&self, bytes: u64) -> Duration {
        self.seek + Duration::from_secs_f64(bytes as f64 / self.bytes_per_s as f64)
    }
}

/// The most bytes written at once, with reads waiting behind.
const GROUP: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Now = Now::from_millis(1);

    fn disk() -> Disk<u32> {
        Disk::new(DiskParams { seek: 10 * MS, bytes_per_s: 1_000_000 })
    }

    #[test]
    fn reads_are_served_one_after_the_other_and_before_writes() {
        let mut disk = disk();
        disk.write(2000);
        for ticket in [1, 2] {
            disk.read(1000, ticket, Now::ZERO);
        }
        assert_eq!(disk.begin(Now::ZERO), Some(11 * MS));
        assert_eq!((disk.begin(MS), disk.queued()), (None, 2));
        assert_eq!(disk.finish(11 * MS), Some(1));
        assert_eq!(disk.begin(11 * MS), Some(22 * MS));
        assert_eq!(disk.finish(22 * MS), Some(2));
        assert_eq!(disk.begin(22 * MS), Some(34 * MS), "now the writes");
        assert_eq!((disk.finish(34 * MS), disk.begin(34 * MS)), (None, None));
    }

    #[test]
    fn hanging_disk_answers_nothing() {
        let mut disk = disk();
        disk.health = Health::Hangs;
        disk.read(1000, 1, MS);
        assert_eq!((disk.begin(MS), disk.queued()), (None, 1));
        assert_eq!(disk.service_time(MS), 10 * MS, "as far as is known");
        assert_eq!(disk.service_time(60 * MS), 59 * MS);
    }
}
