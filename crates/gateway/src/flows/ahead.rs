//! Reads an application a little while there is no room for it: of a server that has written all and closed, the system
//! gives the connection up, and what it still has of it, when nobody has taken anything for some 200 s.

use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use oncewire_codec::wire::FlowId;
use oncewire_link::{Link, Now};

use super::Flow;
use super::pump::BLOCK;

/// Bytes that the flows of a peer have read ahead and that still wait.
#[derive(Debug, Default)]
pub(crate) struct AheadBytes {
    /// As the link had it last, and what was granted since.
    taken: usize,
    /// When the link was asked, which looks at all flows for it.
    asked: Now,
}

/// What one application's stream may read ahead.
pub(super) struct Ahead<'a> {
    stream: &'a TcpStream,
    flow: &'a Flow,
    /// How long there is no room before something is read anyway.
    after: Duration,
    /// What it may still read before it waits again.
    left: usize,
}

/// Half of the least time after which a system gives up.
pub(super) const AFTER: Duration = Duration::from_secs(60);
/// The most that the flows of a peer read ahead: readers that stop for good are not to be read to for ever.
const MOST: usize = 64 << 20;
/// How often the link is asked at most.
const ASK_EVERY: Duration = Duration::from_secs(1);

impl AheadBytes {
    /// Counts so many bytes more of a flow, unless it then had more than what is left for others: many may read a little
    /// each, and one that is alone half of all.
    pub(crate) fn take(&mut self, link: &Link, flow: FlowId, bytes: usize, now: Now) -> bool {
        if now >= self.asked + ASK_EVERY {
            *self = Self { taken: link.all_beyond_room(), asked: now };
        }
        let taken = self.taken.saturating_add(bytes);
        let fits = link.beyond_room(flow).saturating_add(bytes) <= MOST.saturating_sub(taken);
        if fits {
            self.taken = taken;
        }
        fits
    }
}

impl<'a> Ahead<'a> {
    pub(super) fn new(stream: &'a TcpStream, flow: &'a Flow, after: Duration) -> Self {
        Self { stream, flow, after, left: 0 }
    }

    /// So many bytes were queued, and there is no room for more: waits as [`Ahead::wait`].
    pub(super) async fn filled(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes);
        self.wait().await;
    }

    /// There is room.
    pub(super) fn has_room(&mut self) {
        self.left = 0;
    }

    /// Waits until there is room, or something is to be read without.
    pub(super) async fn wait(&mut self) {
        while self.left == 0 && timeout(self.after, self.flow.writable()).await.is_err() {
            self.left = self.take();
        }
    }

    /// Takes what makes the system tell the sender that there is room again: a sixteenth of its buffer must be free. The
    /// last block that is read may be longer than what is left then.
    fn take(&self) -> usize {
        let bytes = (SockRef::from(self.stream).recv_buffer_size().unwrap_or_default() / 16).max(1);
        if self.flow.may_read_ahead(bytes.saturating_add(BLOCK)) { bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tunnel::lane::testing::{Other, SMALLER, peer, request};

    const PART: usize = 1 << 20;

    #[tokio::test]
    async fn one_flow_reads_half_ahead_and_what_waits_counts_until_it_is_gone() {
        let (peer, mut other) = (peer(), Other::new(2, SMALLER));
        let begun = other.begin(&peer).await;
        let _lane = other.join(begun).await.unwrap();
        let flows = [(); 3].map(|()| peer.open(request()).unwrap());
        let [first, second, third] = flows.each_ref().map(Flow::id);
        peer.with(|core, _| {
            let mut now = Now::ZERO;
            let mut read = |flow: FlowId, is_queued: bool| {
                now += ASK_EVERY;
                let mut parts = 0;
                while core.read_ahead.take(&core.link, flow, PART, now) {
                    if is_queued {
                        core.link.handle_payload(flow, vec![7; PART].into(), now).unwrap();
                    }
                    parts += 1;
                    assert!(parts <= MOST / PART, "more than there is for all");
                }
                core.link.finish_flow(flow, now);
                parts
            };
            // What a flow queues before there is no room is not counted, nor is a block beyond that.
            assert_eq!(read(first, true), 32);
            // Though the first has ended.
            assert_eq!(read(second, true), 16);
            // Nothing of it is there when it is asked for again.
            assert_eq!([read(third, false), read(third, false)], [16, 16]);
        });
    }
}
