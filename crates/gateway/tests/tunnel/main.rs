//! Pairs of gateways in one process, with real sockets on loopback.

#![allow(clippy::unwrap_used, reason = "helpers of tests fail as tests do")]

mod codecs;
mod common;
mod conformance;
mod cuts;
mod destinations;
mod direct;
mod discovery;
mod draining;
mod http;
mod interim;
mod keepalive;
mod last_words;
mod late_hello;
mod liars;
mod logs;
mod neighbours;
mod old_origins;
mod outages;
mod peering;
mod policies;
#[path = "../../../link/tests/common/raw.rs"]
mod raw;
mod refused_uploads;
mod reload;
mod sharing;
mod shutdown;
mod sizes;
mod small;
mod socks5;
mod status;
mod strangers;
mod targets;
mod truth;
mod upgrades;
