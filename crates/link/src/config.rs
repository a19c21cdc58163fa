//! How a link is set up.

use std::sync::Arc;

use oncewire_codec::adapt::Adapt;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::wanax::NamesConfig;
use oncewire_codec::wire::{CodecId, MAX_CODEC_PARAMETERS, MAX_CODECS};
use oncewire_codec::{Now, Plan};

use crate::codecs::{CodecFactory, Codecs, Endre};

/// Settings of one link; sizes in bytes.
#[derive(Clone, Debug)]
pub struct LinkConfig {
    /// Drawn at random when the process started.
    pub instance: u64,
    /// Drawn at random for this link: the seed of the digests of this side's blocks.
    pub secret: u64,
    /// Whether this side has the smaller public key: it opens flows with even numbers.
    pub first: bool,
    /// Whether this side dials lanes.
    pub dialer: bool,
    /// The codecs of this side, the preferred one first; each link uses one that the peer has too. Default [`Endre`].
    pub codecs: Vec<Arc<dyn CodecFactory>>,
    /// Log offered for each direction. Default 64 MiB; the smaller of both sides' offers is used.
    pub log_capacity: u64,
    /// Bound on unacknowledged log bytes. Default: a quarter of the log.
    pub max_in_flight: Option<u64>,
    /// The plan for this side's bytes on flows opened by the peer, unless told otherwise. Default: Max-Match, MAXP
    /// with a marker each 64 bytes, zstd level 3.
    pub plan: Plan,
    /// Other possible plans by rules: [`Link::handle_load`](crate::Link::handle_load) may lower them. Default none.
    pub other_plans: Vec<Plan>,
    /// The aim of lower effort while encoding is the bottleneck. Default: savings.
    pub adapt: Adapt,
    /// Streaming entropy contexts for each direction, about a megabyte each at both ends. Default 16.
    pub contexts: u32,
    /// The tables, and the bytes of a fingerprint.
    pub params: MatchParams,
    /// Whether the bytes of sent blocks are kept, as Max-Match needs them; without, every plan is carried out by
    /// Chunk-Match. Default yes.
    pub keeps_bytes: bool,
    /// The most bits a second of all lanes together, headers included. Default none: as much as sockets take.
    pub rate_limit: Option<u64>,
    /// A flow's sent bytes before it is [`Priority::Bulk`](crate::Priority::Bulk), unless rules set its priority.
    /// Default 1 MiB.
    pub bulk_after: u64,
    /// Flow lanes at most. Default 64.
    pub max_lanes: u32,
    /// Flow lanes kept warm beyond those in use. Default 2.
    pub spare_lanes: u32,
    /// A new flow's first credit in bytes. Default: [`Self::initial_credit_of`] the default of [`Self::flow_memory`],
    /// 256 KiB.
    pub initial_credit: u64,
    /// Credit of one flow at most. Default 16 MiB.
    pub max_credit: u64,
    /// Bound on the sum of all flows' windows beyond their initial credit. Default 256 MiB.
    pub flow_memory: u64,
    /// How long flows wait for a lost peer. Default 2 minutes.
    pub resume_window: Now,
    /// Whether [`crate::Link::poll_log_write`] is drained into a file, so logs outlive the process. Default no.
    pub persist: bool,
    /// The naming of chunks in this side's output, for plans with names; the peer's store decides on the named
    /// chunks. Default none.
    pub names: Option<NamesConfig>,
    /// The id of the store for this side's received content, a number unlike any other store's; its requests are
    /// drained with [`crate::Link::poll_chunk_store`]. Default none: there is no store.
    pub store: Option<u64>,
    /// Whether stored chunks are requested over the network if this is sooner [Wanax §3.4]; else only after the
    /// store's answer is late. Default yes.
    pub shed: bool,
    /// Silence after which a lane or peer is dead. Default: the largest of 10 s, 8 smoothed round trips, and
    /// twice the longest round trip of the last minute.
    pub dead_after: Option<Now>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            instance: 0,
            secret: 0,
            first: false,
            dialer: false,
            codecs: vec![Arc::new(Endre)],
            log_capacity: 64 << 20,
            max_in_flight: None,
            plan: Plan::default(),
            other_plans: Vec::new(),
            adapt: Adapt::default(),
            contexts: 16,
            params: MatchParams::default(),
            keeps_bytes: true,
            rate_limit: None,
            bulk_after: 1 << 20,
            max_lanes: 64,
            spare_lanes: 2,
            initial_credit: Self::initial_credit_of(FLOW_MEMORY),
            max_credit: 16 << 20,
            flow_memory: FLOW_MEMORY,
            resume_window: Now::from_secs(120),
            persist: false,
            names: None,
            store: None,
            shed: true,
            dead_after: None,
        }
    }
}

/// A setting unfit for any link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The log is too small to remember a few blocks.
    #[error("log_memory must be at least {min} bytes, not {0}", min = LinkConfig::MIN_LOG)]
    LogTooSmall(u64),
    /// More in flight than the log holds, or not even one block.
    #[error("max_in_flight must be between 65536 bytes and log_memory, not {0}")]
    InFlight(u64),
    /// No list for a hello.
    #[error(
        "a link needs 1 to {MAX_CODECS} codecs, each once, with at most {MAX_CODEC_PARAMETERS} bytes of parameters"
    )]
    Codecs,
    /// A codec for packets, or for many receivers.
    #[error("codec {0} is none for a link: it carries packets, or has many receivers")]
    CodecOfOtherService(CodecId),
}

impl LinkConfig {
    /// The smallest log: one block in flight is a quarter of it.
    pub const MIN_LOG: u64 = 256 << 10;

    /// The longest wait of a link for a silent lane if [`Self::dead_after`] does not set it: 8 round trips of a
    /// minute, and none counts for more.
    pub const LONGEST_SILENCE: Now = Now::from_secs(480);

    /// Returns the initial credit for so much [`Self::flow_memory`], from 64 KiB to 1 MiB: so many flows with
    /// applications that do not read fit into it, small answers need no more, and a larger one costs fewer round
    /// trips at the start of each transfer.
    pub fn initial_credit_of(flow_memory: u64) -> u64 {
        (flow_memory / FLOWS_AT_ONCE).clamp(LEAST_CREDIT, MOST_CREDIT)
    }

    /// Returns the bound on unacknowledged log bytes.
    pub(crate) fn in_flight(&self) -> u64 {
        self.max_in_flight.unwrap_or(self.log_capacity / 4)
    }

    /// Checks constraints beyond the types.
    ///
    /// # Errors
    /// The first setting in contradiction to others.
    pub fn check(&self) -> Result<(), ConfigError> {
        if self.log_capacity < Self::MIN_LOG {
            return Err(ConfigError::LogTooSmall(self.log_capacity));
        }
        match self.max_in_flight {
            Some(bytes) if bytes < 64 << 10 || bytes > self.log_capacity => Err(ConfigError::InFlight(bytes)),
            _ => Codecs::check(self),
        }
    }
}

/// The default of [`LinkConfig::flow_memory`].
const FLOW_MEMORY: u64 = 256 << 20;
/// The flows that fit into the memory for them with what they may send at first.
const FLOWS_AT_ONCE: u64 = 1024;
const LEAST_CREDIT: u64 = 64 << 10;
const MOST_CREDIT: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn initial_credit_follows_the_flow_memory() {
        let credits = [0, 16 << 20, 512 << 20, u64::MAX].map(LinkConfig::initial_credit_of);
        assert_eq!(credits, [64 << 10, 64 << 10, 512 << 10, 1 << 20]);
        assert_eq!(LinkConfig::default().initial_credit, 256 << 10);
    }
}
