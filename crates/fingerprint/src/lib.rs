//! Where to look in the bytes: markers, their fingerprints, and how far two runs of bytes agree.
//!
//! EndRE finds repeats in three steps [EndRE §5]: choose a few positions of a block by its content (*markers*),
//! hash the window that starts at each (*fingerprint*) to find an earlier occurrence, and compare bytes both
//! ways from there. This crate has the three inner loops and nothing else: no table, no cache, no state.
//!
//! Every loop has one definition that is meant to be obvious and one that is meant to be fast; one property
//! suite holds them to the same answers, and a vector version joins as one more file.

mod choice;
mod compare;
mod hash;
mod markers;
mod maxp;
#[allow(unsafe_code, reason = "prefetching takes a pointer")]
mod prefetch;

pub use choice::{MarkerKind, Selector, UnknownMarkers};
pub use compare::{common_prefix, common_suffix};
pub use hash::fingerprint;
pub use markers::Markers;
pub use maxp::Maxp;
pub use prefetch::{prefetch_read, prefetch_write};
