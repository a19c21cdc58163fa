//! The gateway's direct connections, for `flows`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use oncewire_report::{FlowReport, NotCodedCounter, Outcome, Reason};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The open ones. Interceptions bound their number.
#[derive(Debug, Default)]
pub struct DirectTable {
    entered: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Passing>>>,
}

/// One connection; it is open until this is dropped.
#[derive(Debug)]
pub struct Direct {
    table: Arc<DirectTable>,
    number: u64,
    passing: Arc<Passing>,
}

/// Direction of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Towards {
    /// From the intercepted application.
    Server,
    /// To it.
    Client,
}

#[derive(Debug)]
struct Passing {
    destination: String,
    source: SocketAddr,
    reason: Reason,
    since: Instant,
    sent: AtomicU64,
    received: AtomicU64,
    /// Counter shared with other connections.
    counter: Arc<NotCodedCounter>,
}

impl DirectTable {
    /// Returns how many are open.
    pub fn open(&self) -> u64 {
        self.open.lock().len() as u64
    }

    /// Lists the open ones.
    pub fn flows(&self) -> Vec<FlowReport> {
        self.open.lock().values().map(|passing| passing.report()).collect()
    }

    /// Enters a connection; its bytes go to `counter` too.
    pub(super) fn enter(
        self: &Arc<Self>,
        destination: &impl Display,
        source: SocketAddr,
        reason: Reason,
        counter: Arc<NotCodedCounter>,
    ) -> Direct {
        let passing = Arc::new(Passing {
            destination: destination.to_string(),
            source,
            reason,
            since: Instant::now(),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            counter,
        });
        let number = self.entered.fetch_add(1, Relaxed);
        self.open.lock().insert(number, Arc::clone(&passing));
        Direct { table: Arc::clone(self), number, passing }
    }
}

impl Direct {
    /// Counts bytes as they pass.
    pub fn add_bytes(&self, towards: Towards, bytes: usize) {
        let bytes = bytes as u64;
        match towards {
            Towards::Server => self.passing.sent.fetch_add(bytes, Relaxed),
            Towards::Client => self.passing.received.fetch_add(bytes, Relaxed),
        };
        self.passing.counter.add_bytes(bytes);
    }
}

impl Drop for Direct {
    fn drop(&mut self) {
        self.table.open.lock().remove(&self.number);
    }
}

impl Passing {
    fn report(&self) -> FlowReport {
        FlowReport {
            id: None,
            peer: None,
            destination: self.destination.clone(),
            source: Some(self.source.to_string()),
            opened_here: true,
            outcome: Outcome::Direct,
            reason: Some(self.reason),
            begins_after: None,
            priority: None,
            entropy: None,
            effort: None,
            age_s: self.since.elapsed().as_secs_f64(),
            sent: self.sent.load(Relaxed),
            received: self.received.load(Relaxed),
            wire_sent: None,
            wire_received: None,
            unacked: 0,
            waiting: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_connection_is_listed_with_its_bytes() {
        let table = Arc::new(DirectTable::default());
        let counter = Arc::new(NotCodedCounter::default());
        let enter = |port| {
            let source = SocketAddr::from(([10, 0, 0, 1], port));
            table.enter(&"10.0.0.5:22", source, Reason::Policy, Arc::clone(&counter))
        };
        let (first, second) = (enter(1), enter(2));
        first.add_bytes(Towards::Server, 5);
        first.add_bytes(Towards::Client, 7);
        second.add_bytes(Towards::Client, 11);
        let flows = table.flows();
        assert_eq!((flows.len(), table.open()), (2, 2));
        assert_eq!((flows[0].sent, flows[0].received, flows[1].received), (5, 7, 11));
        assert_eq!((flows[0].outcome, flows[0].reason), (Outcome::Direct, Some(Reason::Policy)));
        assert_eq!(flows[0].source.as_deref(), Some("10.0.0.1:1"));
        drop(first);
        assert_eq!(table.flows()[0].received, 11);
        drop(second);
        assert_eq!(table.open(), 0);
    }
}
