//! Reliable transfer of blocks: sequence numbers, the retransmit buffer, parked blocks and refetches.

pub(crate) mod acks;
pub(crate) mod by_flow;
mod chunk_queue;
pub(crate) mod coming;
mod head;
mod incoming;
mod outgoing;
pub(crate) mod parking;
mod refetch;
mod retransmit;
pub(crate) mod timed;

pub(crate) use head::Head;
pub(crate) use incoming::Incoming;
pub(crate) use outgoing::Outgoing;
pub use retransmit::{Coded, Content, Item, MAX_UNACKED, Repair, RetransmitBuffer};
