//! The report of a log's savings by its size, for the receiving half.

use crate::Now;
use crate::log::Curve;
use crate::wire::SavingsCurve;

/// When the savings curve is reported, and with which limit.
pub(crate) struct SavingsReport {
    /// The bytes of log this end has memory for.
    limit: u64,
    serial: u64,
    due: bool,
    /// The plain bytes encoded by the last report.
    plain: u64,
    reported_at: Now,
    halved_at: Now,
}

/// The interval of reports during traffic.
const EVERY: Now = Now::from_secs(2);
/// Fewer new bytes are reported at a longer interval.
const STEP: u64 = 64 << 10;
const LONG_INTERVAL: Now = Now::from_secs(60);

/// After this time earlier savings weigh half.
const HALF_LIFE: Now = Now::from_secs(300);

impl SavingsReport {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, serial: 0, due: false, plain: 0, reported_at: Now::ZERO, halved_at: Now::ZERO }
    }

    /// Sets the limit after `plain` encoded bytes; a changed one is reported.
    pub(crate) fn set_limit(&mut self, limit: u64, plain: u64, curve: &mut Curve, now: Now) {
        if now >= self.halved_at + HALF_LIFE {
            self.halved_at = now;
            curve.halve();
        }
        let before = std::mem::replace(&mut self.limit, limit);
        let more = plain - self.plain;
        let interval = if more >= STEP { EVERY } else { LONG_INTERVAL };
        let has_news = more > 0 && now >= self.reported_at + interval;
        // A receiving half without a report holds as much as it can.
        if limit != before || has_news {
            self.reported_at = now;
            self.report(plain);
        }
    }

    /// Has the curve reported with the next control frames.
    fn report(&mut self, plain: u64) {
        self.serial += 1;
        self.plain = plain;
        self.due = true;
    }

    /// Has the last report sent again, if there was any.
    pub(crate) fn resend(&mut self, plain: u64) {
        if self.serial > 0 {
            self.report(plain);
        }
    }

    /// Takes the report to be sent, if one is due.
    pub(crate) fn poll(&mut self, curve: &Curve) -> Option<SavingsCurve> {
        std::mem::take(&mut self.due).then(|| SavingsCurve {
            serial: self.serial,
            limit: self.limit,
            curve: curve.values().to_vec(),
        })
    }
}
