//! The oncewire daemon as a library.
pub mod admin;
pub mod config;
pub mod daemon;
mod flows;
pub mod identity;
mod intercept;
mod ledger;
mod logs;
mod sockets;
pub mod telemetry;
mod tunnel;
