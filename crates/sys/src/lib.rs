//! System calls with `unsafe`, each behind a safe function.
//!
//! Every other system call goes through a library's safe wrapper. These have none; each block gives its
//! reason.

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
