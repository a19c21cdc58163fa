//! Settings of a link.

use std::fmt;
use std::time::Duration;

/// The properties of one direction of a link.
///
/// The default is a perfect link: no rate limit, no delay, no loss, an MTU of 1500.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkParams {
    /// Serialisation rate in bits per second, IP header included; `None` is without limit.
    pub rate_bits_per_s: Option<u64>,
    /// One-way propagation delay, at most one hour.
    pub delay: Duration,
    /// Largest deviation from `delay`, uniform both ways, at most `delay`. Jitter alone never reorders.
    pub jitter: Duration,
    /// Probability of a packet's loss, independently of others.
    pub loss: f64,
    /// Losses in bursts, besides `loss`.
    pub gilbert: Option<Gilbert>,
    /// Probability of half the delay, by which a packet overtakes earlier ones.
    pub reorder: f64,
    /// Probability of a packet's duplication.
    pub duplicate: f64,
    /// Limit of the queue before serialisation. Without a rate nothing ever waits.
    pub queue: Queue,
    /// Largest packet in bytes, IP header included; larger ones are dropped. 68 to 65,535 [RFC 791].
    pub mtu: u32,
    /// Seed of all decisions on loss, delay, reordering and duplication.
    pub seed: u64,
}

/// The limit of a link's queue; a packet beyond it is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// At most so many bytes wait; at least one MTU.
    Bytes(u64),
    /// A packet waits at most so long before its first bit is sent.
    Time(Duration),
}

/// A link in a good or a bad state; in the bad state it loses every packet [Gilbert 1960].
///
/// The share of lost packets is p13 / (p13 + p31); a burst is 1 / p31 packets long on average.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gilbert {
    /// Probability to turn from good to bad, decided for each packet.
    pub p13: f64,
    /// Probability to turn from bad to good, decided for each packet; above 0.
    pub p31: f64,
}

/// Why settings of a link were refused.
#[derive(Clone, Debug, PartialEq)]
pub enum ParamsError {
    /// A rate of 0 bits per second carries nothing.
    ZeroRate,
    /// A probability outside 0 to 1.
    NotAProbability {
        /// The setting's name.
        name: &'static str,
        /// The given value.
        value: f64,
    },
    /// A Gilbert model without a return to the good state.
    GilbertNeverRecovers,
    /// Delay above one hour.
    DelayTooLong(Duration),
    /// Jitter above the delay, so delivery before sending.
    JitterExceedsDelay {
        /// The jitter given.
        jitter: Duration,
        /// The delay given.
        delay: Duration,
    },
    /// A queue in bytes too small for one packet.
    QueueBelowMtu {
        /// The queue given.
        queue: u64,
        /// The MTU it has to hold.
        mtu: u32,
    },
    /// An MTU impossible in IPv4, or for the model on the link.
    MtuOutOfRange {
        /// The MTU given.
        mtu: u32,
        /// The least possible value.
        least: u32,
    },
}

impl Default for LinkParams {
    fn default() -> Self {
        Self {
            rate_bits_per_s: None,
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            gilbert: None,
            reorder: 0.0,
            duplicate: 0.0,
            queue: Queue::Time(Duration::from_millis(100)),
            mtu: 1500,
            seed: 0,
        }
    }
}

impl LinkParams {
    /// Checks the settings' ranges.
    ///
    /// # Errors
    ///
    /// The first setting out of range; nothing is clamped.
    pub fn validate(&self) -> Result<(), ParamsError> {
        if self.rate_bits_per_s == Some(0) {
            return Err(ParamsError::ZeroRate);
        }
        probability("loss", self.loss)?;
        probability("reorder", self.reorder)?;
        probability("duplicate", self.duplicate)?;
        if let Some(gilbert) = self.gilbert {
            probability("gilbert p13", gilbert.p13)?;
            probability("gilbert p31", gilbert.p31)?;
            if gilbert.p31 == 0.0 {
                return Err(ParamsError::GilbertNeverRecovers);
            }
        }
        if self.delay > MAX_DELAY {
            return Err(ParamsError::DelayTooLong(self.delay));
        }
        if self.jitter > self.delay {
            return Err(ParamsError::JitterExceedsDelay { jitter: self.jitter, delay: self.delay });
        }
        if !(MIN_MTU..=MAX_MTU).contains(&self.mtu) {
            return Err(ParamsError::MtuOutOfRange { mtu: self.mtu, least: MIN_MTU });
        }
        match self.queue {
            Queue::Bytes(queue) if queue < u64::from(self.mtu) => {
                Err(ParamsError::QueueBelowMtu { queue, mtu: self.mtu })
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for ParamsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ZeroRate => write!(f, "the rate must be above 0 bit/s (leave it out for no limit)"),
            Self::NotAProbability { name, value } => {
                write!(f, "{name} is a probability and must lie between 0 and 1, not {value}")
            }
            Self::GilbertNeverRecovers => {
                write!(f, "gilbert p31 must be above 0, or the link never recovers from its first loss")
            }
            Self::DelayTooLong(delay) => write!(f, "the delay must be at most one hour, not {delay:?}"),
            Self::JitterExceedsDelay { jitter, delay } => {
                write!(f, "the jitter ({jitter:?}) must not exceed the delay ({delay:?})")
            }
            Self::QueueBelowMtu { queue, mtu } => {
                write!(f, "a queue of {queue} bytes does not hold one packet of {mtu} bytes")
            }
            Self::MtuOutOfRange { mtu, least } => {
                write!(f, "the MTU must lie between {least} and {MAX_MTU} bytes, not {mtu}")
            }
        }
    }
}

impl std::error::Error for ParamsError {}

fn probability(name: &'static str, value: f64) -> Result<(), ParamsError> {
    // A NaN fails this test too.
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(ParamsError::NotAProbability { name, value }) }
}

const MAX_DELAY: Duration = Duration::from_secs(3600);
const MIN_MTU: u32 = 68;
const MAX_MTU: u32 = 65_535;

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(change: impl FnOnce(&mut LinkParams)) -> ParamsError {
        let mut params = LinkParams::default();
        change(&mut params);
        params.validate().unwrap_err()
    }

    #[test]
    fn the_default_is_valid() {
        assert_eq!(LinkParams::default().validate(), Ok(()));
    }

    #[test]
    fn each_impossible_setting_is_named() {
        let ms = Duration::from_millis;
        assert_eq!(refused(|p| p.rate_bits_per_s = Some(0)), ParamsError::ZeroRate);
        assert_eq!(refused(|p| p.loss = 1.5), ParamsError::NotAProbability { name: "loss", value: 1.5 });
        assert!(matches!(
            refused(|p| p.reorder = f64::NAN),
            ParamsError::NotAProbability { name: "reorder", .. }
        ));
        assert_eq!(
            refused(|p| p.duplicate = -0.1),
            ParamsError::NotAProbability { name: "duplicate", value: -0.1 }
        );
        assert_eq!(
            refused(|p| p.gilbert = Some(Gilbert { p13: 0.1, p31: 0.0 })),
            ParamsError::GilbertNeverRecovers
        );
        assert_eq!(refused(|p| p.delay = ms(3_600_001)), ParamsError::DelayTooLong(ms(3_600_001)));
        assert_eq!(
            refused(|p| p.jitter = ms(1)),
            ParamsError::JitterExceedsDelay { jitter: ms(1), delay: Duration::ZERO }
        );
        assert_eq!(
            refused(|p| p.queue = Queue::Bytes(1000)),
            ParamsError::QueueBelowMtu { queue: 1000, mtu: 1500 }
        );
        assert_eq!(refused(|p| p.mtu = 67), ParamsError::MtuOutOfRange { mtu: 67, least: 68 });
    }

    #[test]
    fn messages_state_the_allowed_range() {
        let text = refused(|p| p.loss = 7.0).to_string();
        assert_eq!(text, "loss is a probability and must lie between 0 and 1, not 7");
    }
}
