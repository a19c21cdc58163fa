//! The redundancy-elimination codecs as sans-IO state machines, their caches and the wire format.
//!
//! Nothing here reads a clock, a random source, a file or a socket: time and seeds are parameters, so the
//! daemon, the measuring tools, a simulator and the fuzzer all run this very code.

pub mod adapt;
pub mod contract;
pub mod endre;
pub mod entropy;
pub mod log;
mod plan;
pub mod stream;
pub mod transfer;
mod verify;
pub mod wanax;
pub mod wire;

pub use oncewire_fingerprint::{MarkerKind, SampleTable};
pub(crate) use plan::FEW_SHARE;
pub use plan::{Layers, Matching, Plan, Quota, UnknownMatching};
pub use verify::StrongKind;

/// Time since an origin the caller chose; every core of the project takes it as a parameter.
pub type Now = std::time::Duration;
