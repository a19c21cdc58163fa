//! The logs: their size, and their lifetime.

use oncewire_codec::Now;

use oncewire_codec::wire::Hello;

use super::{Link, LoadedLogs, LogLimits, LogSide, Wanted};
use crate::event::Event;

impl Link {
    /// Sets this end's memory for each log. The peer is told; content beyond either end's memory is not referred to.
    /// Call it again now and then, also with the same limits: it is the occasion to tell the peer the logs' savings
    /// curve.
    pub fn set_log_limits(&mut self, limits: LogLimits, now: Now) {
        // The basis for the log's other memory.
        let capacity = self.config.log_capacity.max(1);
        let beside =
            u128::from(self.in_flight()) * u128::from(limits.out.min(capacity)) / u128::from(capacity);
        self.budget.set_beside(beside as u64);
        if let Some(log) = self.sender.log_mut() {
            log.set_limit(limits.out, now);
        }
        if let Some(log) = self.receiver.log_mut() {
            log.set_limit(limits.inbound);
        }
        self.wake_control();
    }

    /// Has [`Event::LogsFill`] come once, as soon as about so many more bytes of either log were remembered; 0 is never.
    pub fn tell_when_filled(&mut self, more: LogLimits) {
        self.until_told = more;
    }

    /// Counts remembered bytes.
    pub(super) fn note_filled(&mut self, side: LogSide, bytes: usize) {
        let left = match side {
            LogSide::Out => &mut self.until_told.out,
            LogSide::Inbound => &mut self.until_told.inbound,
        };
        let fills = *left > 0 && *left <= bytes as u64;
        *left = left.saturating_sub(bytes as u64);
        if fills {
            self.until_told = LogLimits { out: 0, inbound: 0 };
            self.events.push_back(Event::LogsFill);
        }
    }

    /// Gives back the memory of both logs, with their content on disk; [`Event::LogsWanted`] asks for them once there
    /// is traffic again. Until [`Self::restore_logs`] nothing older is referred to, and blocks with such references
    /// wait.
    ///
    /// Returns false, and changes nothing, while anything is under way.
    pub fn release_logs(&mut self) -> bool {
        let quiet = self.sender.stats().unacked == 0
            && self.receiver.log_mut().is_some_and(|log| log.release_log())
            && self.sender.log_mut().is_some_and(|log| log.release_log());
        if quiet {
            self.released.get_or_insert(Wanted::No);
        }
        quiet
    }

    /// Takes back the released logs, as far as they were found again.
    pub fn restore_logs(&mut self, loaded: LoadedLogs, now: Now) {
        self.released = None;
        if let Some(log) = self.sender.log_mut() {
            log.restore_log(loaded.out);
        }
        if let Some(log) = self.receiver.log_mut() {
            log.restore_log(loaded.inbound, now);
        }
        self.take_deliveries(now);
        self.wake_control();
    }

    /// Whether the logs are released and a lane with this hello is to wait until they are back: a new instance of the
    /// peer compares them with its own, and would find nothing.
    pub fn needs_logs_for(&self, peer: &Hello) -> bool {
        self.released.is_some() && self.peer.as_ref().is_none_or(|known| known.instance != peer.instance)
    }

    /// Whether the logs are released and there is no lane: if another instance of the peer comes, it needs them, and
    /// waits less if they are back before it takes the link for up.
    pub fn needs_logs_to_come_up(&self) -> bool {
        self.released.is_some() && self.lanes.is_empty()
    }

    /// Asks for released logs, once: [`Event::LogsWanted`].
    pub fn want_logs(&mut self) {
        if self.released == Some(Wanted::No) {
            self.released = Some(Wanted::Yes);
            self.events.push_back(Event::LogsWanted);
        }
    }

    /// Forgets the content of both logs here. Nothing of it is referred to any more, by either end; sent and
    /// unacknowledged blocks are still kept until they are acknowledged, and flows go on.
    pub fn clear_logs(&mut self, now: Now) {
        self.released = None;
        if let Some(log) = self.sender.log_mut() {
            log.clear_log();
        }
        if let Some(log) = self.receiver.log_mut() {
            log.clear_log();
        }
        self.drain_sender(now);
        self.wake_control();
    }
}
