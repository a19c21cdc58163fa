//! The oncewire daemon as a library.
pub mod identity;
