//! What is remembered: how much of it, and until when.

use oncewire_codec::Now;

use super::{Link, LogLimits};

impl Link {
    /// Sets how much of each log this end has memory for. The peer is told; what either end lacks memory for is not
    /// referred to. Call it again now and then, also with the same limits: it is when the peer is told what the logs
    /// are worth.
    pub fn set_log_limits(&mut self, limits: LogLimits, now: Now) {
        self.sender.set_limit(limits.out, now);
        self.receiver.set_limit(limits.inbound);
        self.wake_control();
    }

    /// Forgets everything that both logs hold here. Nothing of it is referred to any more, by either end; what was
    /// sent and is not acknowledged is still kept until it is, and flows go on.
    pub fn clear_logs(&mut self, now: Now) {
        self.sender.clear_log();
        self.receiver.clear_log();
        self.drain_sender(now);
        self.wake_control();
    }
}
