//! See `neighbourhood` in `bodies/mesh.rs`.
#![no_main]

#[path = "../bodies/mesh.rs"]
mod bodies;

libfuzzer_sys::fuzz_target!(|data: &[u8]| bodies::neighbourhood(data));
