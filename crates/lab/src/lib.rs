//! Measuring: what the codecs save on given bytes, how fast each half is, and how much memory it takes.
//!
//! There is no second copy of any codec here: [`pair::Pair`] drives the very halves that the daemon runs, in one
//! thread and without a link between them, and [`measure::Measurement`] sends files through it. [`driver::Driver`] adds
//! what a path and disks do to how long that takes, in virtual time.

pub mod chunks;
pub mod corpus;
pub mod cpu;
pub mod driver;
pub mod encoder;
pub mod frames;
pub mod measure;
pub mod oracle;
pub mod pair;
pub mod train;
