//! The oncewire daemon as a library.

pub mod admin;
pub mod daemon;
pub mod lifecycle;
