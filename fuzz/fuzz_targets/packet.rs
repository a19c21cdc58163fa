//! See `packet` in `bodies/packet.rs`.
#![no_main]

#[allow(dead_code, reason = "each target uses one of the bodies")]
#[path = "../bodies/packet.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::packet(data));
