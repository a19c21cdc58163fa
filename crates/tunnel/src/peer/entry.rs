//! A flow's entry in the table of its peer.

use std::task::Waker;

use crate::accounts::Tally;

/// Waiters of a flow.
pub(crate) struct FlowEntry {
    pub(super) serial: u64,
    pub(crate) tally: Tally,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    pub(crate) writable: bool,
    /// This gateway ends the flow; the link has forgotten it.
    pub(crate) ended: bool,
}

impl FlowEntry {
    pub(super) fn new(serial: u64) -> Self {
        Self { serial, tally: Tally::default(), reader: None, writer: None, writable: true, ended: false }
    }
}
