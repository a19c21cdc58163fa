//! Measurements of the codecs: savings, speed and memory.
//!
//! There is no second copy of any codec here: [`pair::Pair`] drives the daemon's own halves, in one thread and
//! without a link between them, and [`measure::Measurement`] sends files through it. [`simulation::Simulation`] runs
//! any codec between modelled hosts, path and disks, in virtual time.

pub mod chunks;
pub mod corpus;
pub mod cpu;
pub mod encoder;
pub mod frames;
pub mod measure;
pub mod oracle;
pub mod pair;
pub mod simulation;
pub mod train;
