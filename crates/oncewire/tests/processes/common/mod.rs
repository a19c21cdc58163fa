//! The bench of these tests: gateways, relays, networks, origins, data and waiting.
//!
//! The example `pair` measures on the same bench.

pub(crate) mod clients;
pub(crate) mod connections;
pub(crate) mod data;
pub(crate) mod gateway;
pub(crate) mod leaks;
pub(crate) mod lost;
pub(crate) mod network;
pub(crate) mod origin;
pub(crate) mod outage;
pub(crate) mod pair;
pub(crate) mod programs;
pub(crate) mod relay;
pub(crate) mod site;
pub(crate) mod soak;
pub(crate) mod sshd;
pub(crate) mod wait;
