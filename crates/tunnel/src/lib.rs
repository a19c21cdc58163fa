//! Tunnels: peers, their lanes and flows, and the shell around the state machine of each link.
//!
//! Nothing here knows the protocol: tasks move bytes between sockets and [`oncewire_link::Link`], under one lock
//! per peer, and carry out the events it emits.

pub mod accounts;
pub mod chunks;
mod count;
pub mod dialer;
mod effort;
pub mod flows;
mod happy_eyeballs;
pub mod lane;
pub mod listener;
mod lookups;
pub mod neighbours;
pub mod onward;
pub mod peer;
pub mod peering;
mod pending;
pub mod serve;
