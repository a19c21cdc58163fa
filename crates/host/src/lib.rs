//! The machine under a gateway: sockets, names, threads, tasks and their limits.

pub mod clock;
pub mod connects;
pub mod limits;
pub mod log_throttle;
pub mod names;
pub mod scope;
pub mod slow_disk;
pub mod sockets;
pub mod tasks;
pub mod threads;
