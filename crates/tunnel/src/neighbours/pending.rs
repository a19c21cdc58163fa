//! Pending bytes on the line shared by the gateways of a site.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use tokio::sync::Notify;

/// Bytes of awaited chunks.
#[derive(Debug, Default)]
pub(super) struct Pending {
    /// By the links of this gateway to other sites.
    pub(super) own: AtomicU64,
    /// By its neighbours.
    pub(super) theirs: AtomicU64,
}

/// One link's part of it, until its end.
#[derive(Debug)]
pub(crate) struct PendingShare {
    pending: Arc<Pending>,
    /// Has the task look.
    look: Arc<Notify>,
    bytes: u64,
}

impl PendingShare {
    pub(super) fn new(pending: Arc<Pending>, look: Arc<Notify>) -> Self {
        Self { pending, look, bytes: 0 }
    }

    /// Sets the link's present part.
    pub(crate) fn set(&mut self, bytes: u64) {
        if bytes == self.bytes {
            return;
        }
        // Modulo 2⁶⁴, as the sum is.
        let more = bytes.wrapping_sub(self.bytes);
        let before = self.pending.own.fetch_add(more, Relaxed);
        self.bytes = bytes;
        if before == 0 || before.wrapping_add(more) == 0 {
            // In between, the task looks by itself.
            self.look.notify_one();
        }
    }

    /// Returns the neighbours' part.
    pub(crate) fn of_neighbours(&self) -> u64 {
        self.pending.theirs.load(Relaxed)
    }
}

impl Drop for PendingShare {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    fn is_to_look(look: &Notify) -> bool {
        pin!(look.notified()).poll(&mut Context::from_waker(Waker::noop())).is_ready()
    }

    #[test]
    fn ended_link_takes_its_part_from_the_sum() {
        let (pending, look) = (Arc::<Pending>::default(), Arc::<Notify>::default());
        let mut shares = [(); 2].map(|()| PendingShare::new(Arc::clone(&pending), Arc::clone(&look)));
        shares[0].set(500);
        shares[1].set(70);
        shares[0].set(20);
        assert_eq!(pending.own.load(Relaxed), 90);
        assert!(is_to_look(&look), "there is some");
        shares[1].set(71);
        shares[1].set(70);
        assert!(!is_to_look(&look), "while there is some");
        let [first, second] = shares;
        drop(first);
        assert_eq!(pending.own.load(Relaxed), 70);
        drop(second);
        assert_eq!(pending.own.load(Relaxed), 0);
        assert!(is_to_look(&look), "there is none");
    }
}
