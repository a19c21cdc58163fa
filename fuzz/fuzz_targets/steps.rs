//! See `bodies/steps.rs`.
#![no_main]

#[allow(dead_code, reason = "each user has use for a part of it")]
#[path = "../bodies/steps.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::steps(data));
