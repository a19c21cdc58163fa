//! Whether load shedding shortens anything, by how the blocks come to be complete of which something was shed.
//!
//! The plan is a forecast: it makes one block complete sooner, by the known disk and path. Its benefit for a transfer
//! shows afterwards. If the disk was idle, while a block waited for its shed chunks, for as long as it would have taken
//! to read just them, then shedding cost bytes and gained nothing. So each block with shed chunks is compared with the
//! same block without shedding. If nearly all shed in vain, nothing is shed for a while.

use crate::Now;

/// What was seen of shedding over one disk.
#[derive(Clone, Debug, Default)]
pub struct Gain {
    /// Since when the disk has nothing to do, or something.
    state: Option<(bool, Now)>,
    /// For how long it had nothing to do before that.
    idle: Now,
    /// Whether the last blocks were shed of something in vain, the newest in the lowest bit.
    vain: u16,
    seen: u32,
    held: Option<Held>,
    /// How long the next hold takes.
    next: Option<Now>,
}

/// Nothing is shed.
#[derive(Clone, Copy, Debug)]
struct Held {
    until: Now,
    /// How long a read took when it began.
    service_time: Now,
}

/// A block of which something was shed, from when it was planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// For how long the disk had had nothing to do.
    idle: Now,
    /// How long it would have been at what was shed.
    cost: Now,
}

impl Trial {
    /// Adds what is shed of the same block later.
    pub fn and(self, later: Self) -> Self {
        Self { idle: self.idle.min(later.idle), cost: self.cost.saturating_add(later.cost) }
    }
}

impl Gain {
    /// Takes whether the disk has nothing to do, with every change. `now` never decreases.
    pub fn handle_disk(&mut self, is_idle: bool, now: Now) {
        match self.state {
            Some((before, _)) if before == is_idle => {}
            before => {
                if let Some((true, since)) = before {
                    self.idle = self.idle.saturating_add(now.saturating_sub(since));
                }
                self.state = Some((is_idle, now));
            }
        }
    }

    /// So many reads of a block are shed of the disk, each of which would take it so long.
    pub fn begin(&self, reads: u32, service_time: Now, now: Now) -> Trial {
        Trial { idle: self.idle_by(now), cost: service_time.saturating_mul(reads) }
    }

    /// The block is complete, by a disk taking so long for a read.
    pub fn end(&mut self, trial: Trial, service_time: Now, now: Now) {
        let is_vain = self.idle_by(now).saturating_sub(trial.idle) >= trial.cost;
        self.vain = self.vain << 1 | u16::from(is_vain);
        self.seen = self.seen.saturating_add(1);
        let in_vain = self.vain.count_ones();
        if in_vain <= FEW {
            self.next = None;
        }
        if in_vain >= NEARLY_ALL && self.seen >= u16::BITS && self.held.is_none() {
            let time = self.next.unwrap_or(HOLD);
            self.next = Some(time.saturating_mul(2).min(LONGEST_HOLD));
            self.held = Some(Held { until: now.saturating_add(time), service_time });
        }
    }

    /// Says whether something may be shed of the disk, taking so long for a read. A disk without pause for half a
    /// second, or one slower by half or more, is the bottleneck of transfers, despite earlier evidence.
    pub fn sheds(&mut self, service_time: Now, now: Now) -> bool {
        let Some(held) = self.held else { return true };
        let is_busy =
            self.state.is_some_and(|(is_idle, since)| !is_idle && since.saturating_add(BUSY) <= now);
        let is_slower = service_time.saturating_mul(2) >= held.service_time.saturating_mul(3);
        if !is_busy && !is_slower && now < held.until {
            return false;
        }
        self.held = None;
        // A few more blocks of which something is shed in vain say nothing has changed.
        self.vain = if is_busy || is_slower { 0 } else { AFTER_HOLD };
        true
    }

    fn idle_by(&self, now: Now) -> Now {
        match self.state {
            Some((true, since)) => self.idle.saturating_add(now.saturating_sub(since)),
            _ => self.idle,
        }
    }
}

/// Of sixteen blocks.
const NEARLY_ALL: u32 = 14;
const FEW: u32 = 8;
/// After a hold the oldest four count as shed with gain.
const AFTER_HOLD: u16 = 0x0fff;
/// How long nothing is shed at first, and at most.
const HOLD: Now = Now::from_secs(10);
const LONGEST_HOLD: Now = Now::from_secs(80);
/// A disk that has had something to do for so long, without a pause, is behind.
const BUSY: Now = Now::from_millis(500);

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Now = Now::from_millis(1);
    const READ: Now = Now::from_millis(2);

    /// A block for which the disk is busy for some time and then idle until the network has brought two reads' chunks.
    fn block(gain: &mut Gain, now: &mut Now, busy: Now, idle: Now) {
        gain.handle_disk(false, *now);
        let trial = gain.begin(2, READ, *now);
        *now += busy;
        gain.handle_disk(true, *now);
        *now += idle;
        gain.end(trial, READ, *now);
    }

    #[test]
    fn disk_with_time_for_shed_reads_is_shed_no_more() {
        let (mut gain, mut now) = (Gain::default(), Now::from_secs(1));
        for _ in 0..15 {
            block(&mut gain, &mut now, MS, 4 * MS);
            assert!(gain.sheds(READ, now));
        }
        block(&mut gain, &mut now, MS, 4 * MS);
        assert!(!gain.sheds(READ, now) && !gain.sheds(READ, now + Now::from_secs(9)));
        // Two blocks show nothing has changed, and the next hold takes longer.
        now += HOLD;
        assert!(gain.sheds(READ, now));
        block(&mut gain, &mut now, MS, 4 * MS);
        assert!(gain.sheds(READ, now));
        block(&mut gain, &mut now, MS, 4 * MS);
        assert!(!gain.sheds(READ, now + HOLD + Now::from_secs(9)) && gain.sheds(READ, now + 2 * HOLD));
    }

    #[test]
    fn disk_without_time_for_shed_reads_is_shed_on() {
        let (mut gain, mut now) = (Gain::default(), Now::from_secs(1));
        for _ in 0..100 {
            block(&mut gain, &mut now, 10 * MS, 3 * MS);
            assert!(gain.sheds(READ, now));
        }
        // Some in vain do not count.
        for at in 0..100 {
            block(&mut gain, &mut now, MS, if at % 4 == 0 { 3 * MS } else { 4 * MS });
            assert!(gain.sheds(READ, now), "{at}");
        }
    }

    #[test]
    fn disk_falling_behind_is_shed_at_once() {
        let (mut gain, mut now) = (Gain::default(), Now::from_secs(1));
        let hold = |gain: &mut Gain, now: &mut Now| {
            (0..16).for_each(|_| block(gain, now, MS, 4 * MS));
            assert!(!gain.sheds(READ, *now));
        };
        hold(&mut gain, &mut now);
        gain.handle_disk(false, now);
        assert!(!gain.sheds(READ, now + BUSY - MS) && gain.sheds(READ, now + BUSY));
        now += BUSY;
        hold(&mut gain, &mut now);
        assert!(gain.sheds(READ * 2, now), "it hangs");
    }

    #[test]
    fn later_shedding_belongs_to_the_blocks_trial() {
        let mut gain = Gain::default();
        gain.handle_disk(true, Now::ZERO);
        let first = gain.begin(1, READ, 10 * MS);
        let both = first.and(gain.begin(3, READ, 20 * MS));
        assert_eq!(both, Trial { idle: 10 * MS, cost: 8 * MS });
    }
}
