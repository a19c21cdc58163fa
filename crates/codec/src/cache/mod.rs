//! The log-addressed cache: the ring of remembered bytes and the rules that keep both ends in step.

mod log;

pub use log::{Log, LogOffset};
