//! The oncewire daemon as a library.
pub mod admin;
pub mod chunks;
pub mod config;
pub mod daemon;
mod flows;
pub mod identity;
mod intercept;
pub use intercept::rules;
mod key_file;
mod ledger;
pub mod lifecycle;
pub mod logs;
mod peering;
mod sockets;
pub mod storage_key;
pub mod telemetry;
mod tunnel;
