//! The stream codec: a block refers to the log, to named chunks, or to both, and passes the entropy stage.

mod buffers;
mod receiver;
mod sender;
#[cfg(test)]
mod tests;

pub use receiver::{Receiver, ReceiverConfig};
pub use sender::{PreparedLog, Sender, SenderConfig};
