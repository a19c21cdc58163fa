//! Congestion control: the amount on the way, and its rate.
//!
//! Windows are counted in segments, as in Linux.

mod bbr;
mod cubic;
mod hystart;

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::Now;

pub use bbr::Bbr;
pub use cubic::Cubic;

/// One congestion control policy of one sender.
pub trait Congestion: fmt::Debug + Send {
    /// Takes an acknowledgement of new bytes.
    fn handle_ack(&mut self, sample: &AckSample);

    /// Reacts to loss, once for all losses of one window.
    fn handle_loss(&mut self, now: Now);

    /// Reacts to a retransmission timeout.
    fn handle_timeout(&mut self, now: Now);

    /// Reacts to sending again after an idle time, given the retransmission timeout.
    fn handle_idle(&mut self, idle: Duration, timeout: Duration);

    /// Returns how many segments may be on the way; at least 1.
    fn window(&self) -> u64;

    /// Returns the window in segments at the end of slow start; `None` if nothing has set one.
    fn slow_start_threshold(&self) -> Option<u64>;

    /// Returns segments per second if the policy spaces them out.
    fn pacing_segments_per_s(&self) -> Option<f64>;
}

/// An acknowledgement, as a sender reports it to its policy.
#[derive(Clone, Copy, Debug, Default)]
pub struct AckSample {
    /// When the acknowledgement arrived.
    pub now: Now,
    /// Segments newly delivered.
    pub segments: u64,
    /// Segments delivered since the connection began, these included.
    pub delivered: u64,
    /// Segments on the way after this acknowledgement.
    pub in_flight: u64,
    /// Round trip of the latest delivered segment; `None` if it was sent more than once.
    pub rtt: Option<Duration>,
    /// The smoothed round trip.
    pub smoothed_rtt: Option<Duration>,
    /// Whether a segment sent after the last round's end was delivered.
    pub round_start: bool,
    /// How fast segments are being delivered.
    pub rate: Option<RateSample>,
    /// Whether losses of one window are being repaired.
    pub in_recovery: bool,
    /// Whether the window, not the application, was the limit.
    pub window_limited: bool,
}

/// A delivery rate.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateSample {
    /// Segments per second.
    pub segments_per_s: f64,
    /// Whether the application had less to send, so the path may be faster than this.
    pub app_limited: bool,
}

/// Names a congestion control policy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Policy {
    /// [`Cubic`], the default of most systems.
    #[default]
    Cubic,
    /// [`Bbr`], for which single losses are no congestion.
    Bbr,
}

/// An unknown name of a congestion control policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(String);

impl Policy {
    /// Makes the policy's state for a new sender.
    pub fn start(self) -> Box<dyn Congestion> {
        match self {
            Self::Cubic => Box::new(Cubic::new()),
            Self::Bbr => Box::new(Bbr::new()),
        }
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cubic => "cubic",
            Self::Bbr => "bbr",
        })
    }
}

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(name: &str) -> Result<Self, UnknownPolicy> {
        match name {
            "cubic" => Ok(Self::Cubic),
            "bbr" => Ok(Self::Bbr),
            _ => Err(UnknownPolicy(name.to_owned())),
        }
    }
}

impl fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no congestion control named {:?}; there are cubic and bbr", self.0)
    }
}

impl std::error::Error for UnknownPolicy {}

/// Segments sent before the first acknowledgement [RFC 6928].
pub(crate) const INITIAL_WINDOW: f64 = 10.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_shown() {
        for policy in [Policy::Cubic, Policy::Bbr] {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let error = "vegas".parse::<Policy>().unwrap_err();
        assert_eq!(error.to_string(), "no congestion control named \"vegas\"; there are cubic and bbr");
    }
}
