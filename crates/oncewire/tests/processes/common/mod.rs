//! The bench of these tests: a pair of gateways with a relay between them, origins, seeded data and waiting.
//!
//! The example `pair` measures on the same bench.

pub(crate) mod clients;
pub(crate) mod data;
pub(crate) mod gateway;
pub(crate) mod origin;
pub(crate) mod pair;
pub(crate) mod relay;
pub(crate) mod wait;
