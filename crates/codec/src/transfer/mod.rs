//! Reliable transfer of blocks: sequence numbers, the retransmit buffer, parked blocks and refetches.

pub(crate) mod by_flow;
mod head;
pub(crate) mod lacked;
pub(crate) mod parking;
pub(crate) mod refetch;
mod retransmit;
pub(crate) mod timed;

pub(crate) use head::Head;
pub use retransmit::{Coded, Content, Item, Ledger, MAX_UNACKED, Repair};
