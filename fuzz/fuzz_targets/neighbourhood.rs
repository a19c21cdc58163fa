//! See `neighbourhood` in `bodies/neighbours.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies/codec.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::neighbours::neighbourhood(data));
