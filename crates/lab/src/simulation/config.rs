//! The settings of a simulation.

use std::sync::Arc;
use std::time::Duration;

use oncewire_codec::Plan;
use oncewire_codec::wanax::Shape;
use oncewire_link::{CodecFactory, Endre};
use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::{LinkParams, Queue};

use super::disk::DiskParams;
use super::host::HostConfig;

/// The parameters of a simulation.
#[derive(Clone, Debug, Default)]
pub struct SimulationConfig {
    /// The path between both sides.
    pub path: PathConfig,
    /// The machines of both gateways, by side.
    pub hosts: [HostConfig; 2],
    /// The gateways; `None`: applications connect through.
    pub gateways: Option<GatewayConfig>,
}

/// A path with the same properties both ways.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Bits a second, headers included.
    pub rate_bits_per_s: u64,
    /// The time to the far side and back while nothing waits.
    pub round_trip: Duration,
    /// The longest queue at each end, as the time for its bytes.
    pub queue: Duration,
    /// The largest deviation from half the round trip; it alone never reorders.
    pub jitter: Duration,
    /// The share of lost packets.
    pub loss: f64,
    /// The share of packets with half the delay: they overtake others.
    pub reorder: f64,
    /// The share of packets with a second copy.
    pub duplicate: f64,
    /// The congestion control of all connections.
    pub policy: Policy,
    /// Seed of all the path's decisions.
    pub seed: u64,
}

/// The settings of both gateways.
#[derive(Clone, Debug)]
pub struct GatewayConfig {
    /// The codec of both ends.
    pub codec: Arc<dyn CodecFactory>,
    /// The plan of both codecs; `None`: flows are not coded.
    pub plan: Option<Plan>,
    /// The cut of chunks.
    pub shape: Shape,
    /// The log of each direction, in bytes.
    pub log_memory: u64,
    /// Bytes sent by a flow before its first are consumed; the daemon's default is 512 KiB.
    pub window: u64,
    /// Bits a second sent by either side at most, so queues form in the gateways and not on the path; `None`: no
    /// limit.
    pub rate_limit: Option<u64>,
    /// The near gateway's chunk store.
    pub store: Option<StoreConfig>,
}

/// A chunk store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// The properties of each disk.
    pub disk: DiskParams,
    /// How many there are, the own one and those of neighbours.
    pub disks: usize,
    /// The number of recently stored bytes still in the machine's memory, readable in no time.
    pub memory: u64,
    /// Whether chunks of less than 4 KiB lie with the block that brought them, as in the daemon's store, and one read
    /// brings all of them; else each chunk takes a read, as in the paper.
    pub containers: bool,
    /// Whether chunks are requested from the far side when this is sooner.
    pub shed: bool,
}

impl Default for PathConfig {
    /// 10 Mbit/s and 50 ms, with as long a queue, in order and without loss, CUBIC.
    fn default() -> Self {
        Self {
            rate_bits_per_s: 10_000_000,
            round_trip: Duration::from_millis(50),
            queue: Duration::from_millis(50),
            jitter: Duration::ZERO,
            loss: 0.0,
            reorder: 0.0,
            duplicate: 0.0,
            policy: Policy::Cubic,
            seed: 0,
        }
    }
}

impl PathConfig {
    /// Returns the settings of one side's outgoing link.
    pub(super) fn params(&self, side: u64) -> LinkParams {
        LinkParams {
            rate_bits_per_s: Some(self.rate_bits_per_s),
            delay: self.round_trip / 2,
            jitter: self.jitter,
            loss: self.loss,
            reorder: self.reorder,
            duplicate: self.duplicate,
            queue: Queue::Time(self.queue),
            seed: 2 * self.seed + side,
            ..LinkParams::default()
        }
    }
}

impl Default for GatewayConfig {
    /// EndRE with its default plan, a log of 16 MiB and the daemon's window; no store.
    fn default() -> Self {
        Self {
            codec: Arc::new(Endre),
            plan: Some(Plan::default()),
            shape: Shape::default(),
            log_memory: 16 << 20,
            window: 512 << 10,
            rate_limit: None,
            store: None,
        }
    }
}
