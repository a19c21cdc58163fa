//! The sans-IO state machine of a link between two gateways.
//!
//! A [`Link`] knows no socket, clock or random source. The shell moves bytes between it and lanes, and between
//! it and applications; time and secrets are parameters. The grammar is the same everywhere: `handle_*` takes
//! what happened, commands (`open_flow`, `finish_flow`, `abort_flow`, `answer_flow`) take decisions, `poll_*`
//! give the work that follows. After every mutating call drain [`Link::poll_event`].

mod announce;
mod arrivals;
mod brought;
mod budget;
mod classify;
mod codecs;
mod config;
mod credit;
mod dead;
mod event;
mod flow;
mod flows;
mod group;
mod halves;
mod hello;
mod lane_budget;
mod lanes;
mod learned;
mod limit;
mod link;
mod liveness;
mod pacing;
mod path;
mod pieces;
mod pulse;
mod reassembly;
mod records;
mod renewal;
mod resets;
mod rotation;
mod round_trip;
mod scheduler;
mod sharing;
mod stats;
mod supply;
mod timing;
mod toll;
mod unsent;
mod wear;
mod windows;

pub use classify::Cipher;
pub use codecs::{CodecFactory, DefaultCodec, Endre};
pub use config::{ConfigError, LinkConfig};
pub use event::{CloseReason, Event, FlowGone, LaneRefused, Note, OpenRefused, OpenRequest, Received};
pub use halves::{LoadedLogs, LogLimits, LogSide, SavedLogs};
pub use link::Link;
pub use oncewire_codec::Now;
pub use oncewire_codec::adapt::{Adapt, AdaptStats, Reason as AdaptReason};
pub use oncewire_codec::contract::{
    Capabilities, ChunkPlace, LogStart, LogStarts, LogWrite, PeerFault as ProtocolError, Purpose, SavedLog,
    Service, StoreReply, StoreRequest, StoreState,
};
pub use oncewire_codec::log::{Log, LogOffset, RangeSet};
pub use oncewire_codec::wanax::NamesConfig;
pub use oncewire_codec::wire::{
    CodecId, Destination, FlowId, Hello, HelloError, Host, LaneId, LaneRole, MAX_NETWORKS, Network,
    OpenFailure, ResetReason,
};
pub use pacing::Effort;
pub use pieces::Pieces;
pub use records::{MAX_RECORD, records};
pub use renewal::LaneReport;
pub use sharing::Priority;
pub use stats::{FlowOutcome, FlowStats, FlowTally, LinkStats};
pub use toll::Turn;
pub use unsent::most_unsent;

/// The most flows that a link carries at once.
pub const MAX_FLOWS: usize = 16 * 1024;
/// The most lanes that a link accepts, whatever the peer dials: `max_lanes` is at most 1024, and some are spare.
pub const MAX_LANES: usize = 1088;
