//! Tunnels: lanes between gateways, and the shell around each link.
//!
//! Nothing here knows the protocol: tasks move bytes between sockets and [`oncewire_link::Link`], under one
//! lock per peer, and carry out the events it emits.

pub(crate) mod clock;
pub(crate) mod count;
pub(crate) mod dialer;
pub(crate) mod effort;
mod happy_eyeballs;
pub(crate) mod lane;
pub(crate) mod listener;
pub(crate) mod lookup;
pub(crate) mod onward;
pub(crate) mod peer;
pub(crate) mod pending;
pub(crate) mod seldom;
pub(crate) mod tasks;
pub(crate) mod tls;
