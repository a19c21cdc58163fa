//! What a daemon owes the system that it runs on: it says when it is ready, is ended when it hangs, and gives up the
//! privileges that it does not need. The decisions stand in `docs/internals/lifecycle.md`.

pub mod access;
pub(crate) mod connects;
pub mod limits;
pub mod log_lines;
pub mod notify;
pub mod privileges;
pub mod threads;
pub mod watchdog;
