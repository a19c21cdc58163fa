//! Faults and their order, from a seed alone.

use std::fmt;
use std::time::Duration;

use oncewire_testnet::{Gilbert, LinkParams};

use super::super::data::Rng;
use super::super::network::Place;

/// A fault.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Fault {
    /// The line is of this kind from now on, up and down.
    Weather(Box<[LinkParams; 2]>),
    /// Total loss up, or down.
    Cut([bool; 2]),
    /// Lanes are reset, new ones refused.
    Reject,
    /// A gateway is killed and started again.
    Kill(Place),
    /// A gateway is held still.
    Stop(Place),
    /// A gateway is given another configuration.
    Reload(Place, Change),
    /// The branch gets another address on the line.
    Move,
    /// Bytes in the files of a gateway's chunk store change, by the number.
    Rot(Place, u64),
}

/// The difference of another configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Change {
    /// It is no configuration.
    Broken,
    /// A policy, for new flows only.
    Policy,
    /// The codec; the link starts anew.
    Link,
}

/// A fault, how long it lasts, and how long nothing else goes wrong before it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Step {
    pub(super) rest: Duration,
    pub(super) fault: Fault,
    pub(super) lasts: Duration,
}

/// Draws one round: every kind of fault, in an order drawn anew. `longest` bounds outages of the path; with a
/// `store`, its files are among the faults.
pub(super) fn round(rng: &mut Rng, longest: Duration, store: bool) -> Vec<Step> {
    let place = |rng: &mut Rng| Place::BOTH[rng.below(2)];
    let mut faults = vec![
        Fault::Cut([true, true]),
        Fault::Cut([true, false]),
        Fault::Cut([false, true]),
        Fault::Reject,
        Fault::Kill(Place::Branch),
        Fault::Kill(Place::Hub),
        Fault::Stop(Place::Branch),
        Fault::Stop(Place::Hub),
        Fault::Move,
    ];
    if store {
        faults.extend(Place::BOTH.map(|place| Fault::Rot(place, rng.next())));
    }
    faults.extend(
        [Change::Broken, Change::Policy, Change::Link].map(|change| Fault::Reload(place(rng), change)),
    );
    faults.extend((0..WEATHERS).map(|_| Fault::Weather(Box::new([weather(rng), weather(rng)]))));
    for last in (1..faults.len()).rev() {
        faults.swap(last, rng.below(last + 1));
    }
    faults
        .into_iter()
        .map(|fault| {
            let (least, most) = fault.length_ms(longest);
            Step { rest: between(rng, 100, 1000), lasts: between(rng, least, most), fault }
        })
        .collect()
}

impl Change {
    /// The addition to the configuration.
    pub(super) fn toml(self) -> &'static str {
        match self {
            Self::Broken => "",
            Self::Policy => "[[policy]]\nmatch = { ports = [8081] }\ncodec = \"none\"\n",
            Self::Link => "[codec]\nentropy = \"lz4\"\n",
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.fault {
            Fault::Weather(line) => write!(f, "after {:?} the line is {}", self.rest, describe(line)),
            fault => write!(f, "after {:?} {fault:?} for {:?}", self.rest, self.lasts),
        }
    }
}

/// A line's properties up / down.
fn describe(line: &[LinkParams; 2]) -> String {
    let each = line.each_ref().map(|way| {
        let burst = way.gilbert.map_or(0.0, |gilbert| gilbert.p13);
        format!(
            "{} Mbit/s, {:?} ± {:?}, lost {} and bursts {burst}, overtaking {}, twice {}",
            way.rate_bits_per_s.unwrap_or_default() / 1_000_000,
            way.delay,
            way.jitter,
            way.loss,
            way.reorder,
            way.duplicate
        )
    });
    each.join(" / ")
}

impl Fault {
    fn length_ms(&self, longest: Duration) -> (u64, u64) {
        let longest = u64::try_from(longest.as_millis()).unwrap();
        match self {
            Self::Weather(_) | Self::Reload(..) | Self::Rot(..) => (0, 0),
            Self::Cut([true, true]) => (longest / 4, longest),
            Self::Cut(_) => (500, longest.min(10_000)),
            Self::Reject => (100, longest.min(6000)),
            Self::Kill(_) => (0, 2000),
            Self::Stop(_) => (500, 2500),
            Self::Move => (0, 500),
        }
    }
}

/// Draws one direction's properties: fast enough for transfers to end, and bad in one way or several.
fn weather(rng: &mut Rng) -> LinkParams {
    let delay = Duration::from_millis(2 + rng.below(40) as u64);
    let mut chance = |one_in: usize, most: f64| match rng.below(one_in) {
        0 => most * rng.below(1000) as f64 / 1000.0,
        _ => 0.0,
    };
    let (loss, bursts) = (chance(2, 0.02), chance(3, 0.01));
    let (jitter, reorder, duplicate) = (chance(2, 0.5), chance(3, 0.05), chance(3, 0.05));
    LinkParams {
        rate_bits_per_s: Some([20, 50, 100, 200][rng.below(4)] * 1_000_000),
        delay,
        jitter: delay.mul_f64(jitter),
        loss,
        gilbert: (bursts > 0.0).then_some(Gilbert { p13: bursts, p31: 0.3 }),
        reorder,
        duplicate,
        ..LinkParams::default()
    }
}

fn between(rng: &mut Rng, least_ms: u64, most_ms: u64) -> Duration {
    let span = usize::try_from(most_ms - least_ms).unwrap() + 1;
    Duration::from_millis(least_ms + rng.below(span) as u64)
}

const WEATHERS: usize = 4;
