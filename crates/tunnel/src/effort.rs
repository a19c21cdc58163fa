//! Busy and blocked times of a link's lanes, for the effort controller.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::coop::has_budget_remaining;

use oncewire_codec::Now;
use oncewire_host::clock::Clock;
use oncewire_link::Effort;

/// Accounts for the time of a link's lanes: busy, and blocked on sockets.
pub(super) struct EffortMeter {
    /// An unread meter asks no clock.
    enabled: bool,
    clock: Clock,
    tally: Mutex<Tally>,
    busy: Notify,
}

#[derive(Default)]
struct Tally {
    /// When the effort was last taken.
    taken: Now,
    /// End of the time accounted for below.
    until: Now,
    working: u32,
    blocked: u32,
    effort: Effort,
    processors: Option<Processors>,
    idle_permille: u32,
}

/// CPU time of the whole machine since boot, in clock ticks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Processors {
    idle: u64,
    all: u64,
}

impl Processors {
    /// Reads the first line of `/proc/stat`.
    fn read(stat: &str) -> Option<Self> {
        let numbers = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        // The fields behind these eight are guest time, already part of the first two.
        let ticks: Vec<u64> = numbers.take(8).map_while(|number| number.parse().ok()).collect();
        let (idle, waiting) = (*ticks.get(3)?, *ticks.get(4)?);
        Some(Self {
            idle: idle.saturating_add(waiting),
            all: ticks.iter().fold(0, |sum, t| sum.saturating_add(*t)),
        })
    }
}

/// A lane's activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    /// There is nothing to send.
    Nothing,
    /// It encodes, enciphers or writes, or waits for a CPU to do so.
    Work,
    /// It waits for its socket.
    Wait,
}

impl EffortMeter {
    pub(super) fn new(enabled: bool, clock: Clock) -> Self {
        Self { enabled, clock, tally: Mutex::default(), busy: Notify::new() }
    }

    /// Waits until some lane has data to send; forever if the meter is not enabled.
    pub(super) async fn busy(&self) {
        self.busy.notified().await;
    }

    /// Takes the effort since the last call if that is a while ago.
    pub(super) fn take_due(&self) -> Option<Effort> {
        let mut tally = self.tally.lock();
        let now = self.clock.now();
        (self.enabled && now.saturating_sub(tally.taken) >= PACING).then(|| tally.take(now))
    }

    /// Measures the idle share of the CPUs, for later efforts.
    pub(super) fn look_around(&self) {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        if let Some(ticks) = Processors::read(&stat) {
            self.tally.lock().look(ticks);
        }
    }

    /// Returns the effort since the last call.
    pub(super) fn take(&self) -> Effort {
        let mut tally = self.tally.lock();
        // Under the lock: the time must not lie behind the one added up by others.
        tally.take(self.clock.now())
    }
}

impl Tally {
    fn take(&mut self, now: Now) -> Effort {
        self.add_up(now);
        let span = now.saturating_sub(std::mem::replace(&mut self.taken, now));
        Effort { span, idle_permille: self.idle_permille, ..std::mem::take(&mut self.effort) }
    }

    fn look(&mut self, processors: Processors) {
        let Some(before) = self.processors.replace(processors) else { return };
        let all = processors.all.saturating_sub(before.all);
        if let Some(permille) = (1000 * processors.idle.saturating_sub(before.idle)).checked_div(all) {
            self.idle_permille = permille.min(1000) as u32;
        }
    }

    /// Changes a lane's activity; returns whether it is the first active lane.
    fn turn(&mut self, before: Doing, doing: Doing, now: Now) -> bool {
        self.add_up(now);
        let was_idle = self.working + self.blocked == 0;
        if let Some(count) = self.count(before) {
            *count -= 1;
        }
        if let Some(count) = self.count(doing) {
            *count += 1;
        }
        was_idle && doing != Doing::Nothing
    }

    fn add_up(&mut self, now: Now) {
        let time = now.saturating_sub(std::mem::replace(&mut self.until, now));
        if self.working + self.blocked > 0 {
            self.effort.active += time;
        }
        if self.working == 0 && self.blocked > 0 {
            self.effort.blocked += time;
        }
    }

    fn count(&mut self, doing: Doing) -> Option<&mut u32> {
        match doing {
            Doing::Nothing => None,
            Doing::Work => Some(&mut self.working),
            Doing::Wait => Some(&mut self.blocked),
        }
    }
}

/// One lane's part of a meter; a closed lane is idle.
pub(crate) struct LaneEffort {
    meter: Arc<EffortMeter>,
    /// Changed under the meter's lock only.
    doing: Mutex<Doing>,
}

impl LaneEffort {
    pub(super) fn new(meter: &Arc<EffortMeter>) -> Self {
        Self { meter: Arc::clone(meter), doing: Mutex::new(Doing::Nothing) }
    }

    /// The lane has something to send.
    pub(super) fn work(&self) {
        self.turn_to(Doing::Work);
    }

    /// Notes data to send; a lane waiting for its socket goes on waiting.
    pub(super) fn wake(&self) {
        if *self.doing.lock() == Doing::Nothing {
            self.turn_to(Doing::Work);
        }
    }

    /// The lane has nothing to send.
    pub(super) fn rest(&self) {
        self.turn_to(Doing::Nothing);
    }

    /// Writes to the lane's socket; the lane counts as waiting while the write is blocked.
    pub(super) async fn write<F: Future>(&self, write: F) -> F::Output {
        let mut write = pin!(write);
        poll_fn(|context| {
            self.turn_to(Doing::Work);
            let poll = write.as_mut().poll(context);
            // A task out of budget yields to others; it is not waiting for its socket.
            if poll.is_pending() && has_budget_remaining() {
                self.turn_to(Doing::Wait);
            }
            poll
        })
        .await
    }

    fn turn_to(&self, doing: Doing) {
        if !self.meter.enabled {
            return;
        }
        let mut tally = self.meter.tally.lock();
        let before = std::mem::replace(&mut *self.doing.lock(), doing);
        if before == doing {
            return;
        }
        let begins = tally.turn(before, doing, self.meter.clock.now());
        drop(tally);
        if begins {
            self.meter.busy.notify_one();
        }
    }
}

impl Drop for LaneEffort {
    fn drop(&mut self) {
        self.rest();
    }
}

impl std::fmt::Debug for LaneEffort {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("LaneEffort").field(&*self.doing.lock()).finish()
    }
}

/// Interval of reports to the link.
pub(super) const PACING: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use std::task::Poll;

    use tokio::sync::oneshot;

    use super::*;

    fn meter(enabled: bool) -> Arc<EffortMeter> {
        Arc::new(EffortMeter::new(enabled, Clock::start()))
    }

    #[test]
    fn link_waits_only_while_every_busy_lane_waits() {
        let at = Duration::from_millis;
        let mut tally = Tally::default();
        assert!(tally.turn(Doing::Nothing, Doing::Work, at(10)));
        tally.turn(Doing::Work, Doing::Wait, at(20));
        assert!(!tally.turn(Doing::Nothing, Doing::Work, at(25)));
        tally.turn(Doing::Work, Doing::Nothing, at(40));
        assert!(!tally.turn(Doing::Wait, Doing::Nothing, at(70)));
        let effort = tally.take(at(100));
        assert_eq!((effort.span, effort.active, effort.blocked), (at(100), at(60), at(35)));
        assert_eq!(tally.take(at(100)), Effort::default());
    }

    #[tokio::test]
    async fn instant_write_is_work_and_blocked_write_is_waiting() {
        let lane = LaneEffort::new(&meter(true));
        let (go_on, stopped) = oneshot::channel::<()>();
        {
            let mut write = pin!(lane.write(stopped));
            assert!(tokio::time::timeout(Duration::ZERO, &mut write).await.is_err());
            assert_eq!(*lane.doing.lock(), Doing::Wait);
            lane.wake();
            assert_eq!(*lane.doing.lock(), Doing::Wait);
            go_on.send(()).unwrap();
            write.await.unwrap();
        }
        assert_eq!(*lane.doing.lock(), Doing::Work);
    }

    #[tokio::test]
    async fn write_yielding_to_other_tasks_is_work() {
        let lane = LaneEffort::new(&meter(true));
        let used_up = poll_fn(|context| {
            while has_budget_remaining() {
                let Poll::Ready(turn) = tokio::task::coop::poll_proceed(context) else { break };
                turn.made_progress();
            }
            Poll::<()>::Pending
        });
        let mut write = pin!(lane.write(used_up));
        poll_fn(|context| {
            assert!(write.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        assert_eq!(*lane.doing.lock(), Doing::Work);
    }

    #[tokio::test]
    async fn waiter_hears_of_earlier_work() {
        let meter = meter(true);
        LaneEffort::new(&meter).wake();
        meter.busy().await;
    }

    #[test]
    fn closed_lane_is_idle() {
        let meter = meter(true);
        let lane = LaneEffort::new(&meter);
        lane.work();
        assert_eq!(meter.tally.lock().working, 1);
        drop(lane);
        assert_eq!(meter.tally.lock().working, 0);
    }

    #[test]
    fn idle_cpus_differ_from_busy_ones() {
        let stat = "cpu  10 5 20 100 50 3 2 1 9 9\ncpu0 1 2 3\n";
        let first = Processors::read(stat).unwrap();
        assert_eq!(first, Processors { idle: 150, all: 191 });
        assert_eq!(
            [Processors::read(""), Processors::read("cpu 1 2 3"), Processors::read("intr 5")],
            [None; 3]
        );
        let mut tally = Tally::default();
        tally.look(first);
        tally.look(Processors { idle: 175, all: 291 });
        assert_eq!(tally.take(Now::ZERO).idle_permille, 250);
        tally.look(first);
        assert_eq!(tally.take(Now::ZERO).idle_permille, 250);
    }

    #[test]
    fn disabled_meter_counts_nothing() {
        let meter = meter(false);
        let lane = LaneEffort::new(&meter);
        lane.work();
        assert_eq!(meter.take().active, Duration::ZERO);
    }
}
