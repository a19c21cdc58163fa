//! A daemon's duties to its system: readiness, watchdog, privileges.
//!
//! The decisions stand in `docs/internals/lifecycle.md`.

pub mod access;
pub mod limits;
pub mod log_lines;
pub mod notify;
pub mod privileges;
pub mod watchdog;
