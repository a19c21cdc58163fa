//! The system calls of oncewire that need `unsafe`, each behind a safe function.
//!
//! Every other system call goes through a library's safe wrapper. What is here has none; each block says why it
//! is sound.

#[cfg(target_os = "linux")]
pub mod connections;
pub mod heap;
#[cfg(target_os = "linux")]
pub mod namespaces;
#[cfg(target_os = "linux")]
pub mod packets;
mod pages;
#[cfg(target_os = "linux")]
pub mod signals;

pub use pages::{Pages, Plain};
