//! See `bodies/steps.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies/codec.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::steps::steps(data));
