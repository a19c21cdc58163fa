//! Inner loops of deduplication: markers, fingerprints, and comparison of bytes.
//!
//! EndRE finds repeats in three steps [EndRE §5]: choose a few positions of a block by its content (*markers*), hash
//! the window at each (*fingerprint*) to find an earlier occurrence, and compare bytes both ways from there. This
//! crate has the three inner loops and nothing else: no table, no cache, no state.
//!
//! Every loop has one definition meant to be obvious, one for any processor, and if it pays one over vectors, with
//! AVX2 and NEON; one property suite holds them to the same answers. The feature `portable` leaves the vectors out of
//! a build.

#![warn(clippy::undocumented_unsafe_blocks)]
#![cfg_attr(
    any(feature = "portable", not(any(target_arch = "x86_64", target_arch = "aarch64"))),
    allow(dead_code, reason = "without vectors, what is written over them is not called")
)]

mod choice;
mod compare;
mod fixed;
mod hash;
mod levels;
mod markers;
mod maxp;
mod maxp_strict;
mod modp;
mod modp_rabin;
#[cfg(test)]
mod noise;
mod pairs;
mod peaks;
#[expect(unsafe_code, reason = "there is no safe way to prefetch")]
mod prefetch;
mod product;
mod sample;
mod samplebyte;
mod skip;
#[allow(unsafe_code, reason = "streaming stores are intrinsics that take pointers")]
mod stream;
#[cfg(test)]
mod suite;
mod vector;

pub use choice::{MarkerKind, Selector, UnknownMarkers};
pub use compare::{common_prefix, common_suffix, resync};
pub use fixed::Fixed;
pub use hash::fingerprint;
pub use levels::{Boundary, Levels, Roots};
pub use markers::Markers;
pub use maxp::Maxp;
pub use maxp_strict::MaxpStrict;
pub use modp::Modp;
pub use modp_rabin::ModpRabin;
pub use pairs::find_pair;
pub use prefetch::{prefetch_read, prefetch_write};
pub use sample::{Adaptation, SampleTable, SampleTableError};
pub use samplebyte::SampleByte;
pub use stream::copy_streaming;
pub use vector::Backend;
