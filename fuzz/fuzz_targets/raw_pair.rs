//! See `raw_pair` in `bodies/link.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies/link.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::raw_pair(data));
