//! The oncewire daemon as a library.
pub mod config;
pub mod identity;
