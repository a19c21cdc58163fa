//! A sans-IO emulator of network links, with a model of TCP.
//!
//! [`Link`] carries packets one way and treats them as a wide-area link does: it queues, serialises at a rate, loses,
//! delays, reorders and duplicates. [`tcp::Network`] joins two links into a path and runs modelled TCP connections
//! over it, all competing for the same rate. Neither knows a clock, a socket or a random source: time is a parameter
//! and every decision follows from [`LinkParams::seed`], so the same calls give the same result in a test, a
//! simulation and a demonstration.
//!
//! The shell around them sleeps until the time of `poll_timeout` or `next_due`, and calls back with the current time.
//! A late call does not blur the model: each event has the time at which it was due.

mod chance;
mod counters;
mod link;
mod params;
pub mod tcp;

pub use counters::LinkCounters;
pub use link::{Fate, Link, MAX_PACKETS_HELD};
pub use params::{Gilbert, LinkParams, ParamsError, Queue};

/// Time since an arbitrary origin, the same for all calls to one object.
pub type Now = std::time::Duration;
