//! Connections still shaking hands: few, and the least promising makes room.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::count::WireCounter;

/// A bounded table of handshakes.
///
/// When it is full, the oldest silent connection gives way, one of the same source first: a flood of silent
/// connections evicts itself, and a peer gets through, as it speaks at once.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    slots: BTreeMap<u64, Slot>,
    next: u64,
}

/// One handshake.
#[derive(Debug)]
struct Slot {
    source: IpAddr,
    heard: Arc<WireCounter>,
    /// Dropped to end the handshake.
    _alive: oneshot::Sender<()>,
}

impl Pending {
    /// Takes in a connection, at the cost of another if there is no room; returns whether one was evicted.
    ///
    /// The receiver ends with an error once this connection is evicted itself.
    pub(crate) fn admit(
        &mut self,
        source: IpAddr,
        heard: Arc<WireCounter>,
    ) -> (u64, oneshot::Receiver<()>, bool) {
        let source = network_of(source);
        let evicted = self.victim(source).and_then(|id| self.slots.remove(&id)).is_some();
        let id = self.next;
        self.next += 1;
        let (alive, evicted_later) = oneshot::channel();
        self.slots.insert(id, Slot { source, heard, _alive: alive });
        (id, evicted_later, evicted)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Removes an ended handshake.
    pub(crate) fn done(&mut self, id: u64) {
        self.slots.remove(&id);
    }

    /// Gives up one handshake, to free its file descriptor.
    pub(crate) fn evict_one(&mut self) -> bool {
        let victim = self.oldest(|slot| slot.heard.received() == 0).or_else(|| self.oldest(|_| true));
        victim.and_then(|id| self.slots.remove(&id)).is_some()
    }

    fn victim(&self, source: IpAddr) -> Option<u64> {
        let of_source = self.slots.values().filter(|slot| slot.source == source).count();
        if self.slots.len() < MAX_PENDING && of_source < MAX_PER_SOURCE {
            return None;
        }
        let silent = |slot: &Slot| slot.heard.received() == 0;
        let same = |slot: &Slot| slot.source == source;
        let own = self.oldest(|slot| same(slot) && silent(slot));
        if of_source >= MAX_PER_SOURCE {
            return own.or_else(|| self.oldest(same));
        }
        own.or_else(|| self.oldest(silent)).or_else(|| self.oldest(|_| true))
    }

    fn oldest(&self, fits: impl Fn(&Slot) -> bool) -> Option<u64> {
        self.slots.iter().find(|(_, slot)| fits(slot)).map(|(id, _)| *id)
    }
}

/// One customer's network is one source.
fn network_of(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6((u128::from(address) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}

/// Handshakes at once.
const MAX_PENDING: usize = 256;

/// Handshakes at once from one address, or one IPv6 /64.
const MAX_PER_SOURCE: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn flood_from_one_source_evicts_its_own_oldest() {
        let mut pending = Pending::default();
        let (_, mut other, _) = pending.admit(address(1), Arc::default());
        let mut flood = Vec::new();
        for _ in 0..10_000 {
            flood.push(pending.admit(address(2), Arc::default()).1);
        }
        assert_eq!(pending.slots.len(), 1 + MAX_PER_SOURCE);
        assert!(other.try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Empty));
        assert!(flood[0].try_recv().is_err_and(|e| e == oneshot::error::TryRecvError::Closed));
    }

    #[test]
    fn flood_from_many_sources_never_exceeds_the_bound() {
        let mut pending = Pending::default();
        for i in 0..10_000u32 {
            pending.admit(IpAddr::from((0xc000_0000 + i).to_be_bytes()), Arc::default());
        }
        assert_eq!(pending.slots.len(), MAX_PENDING);
    }

    #[test]
    fn addresses_of_one_ipv6_network_are_one_source() {
        let mut pending = Pending::default();
        for i in 0..1_000u128 {
            pending.admit(IpAddr::V6((0x2001_0db8_u128 << 96 | i).into()), Arc::default());
        }
        assert_eq!(pending.slots.len(), MAX_PER_SOURCE);
    }
}
