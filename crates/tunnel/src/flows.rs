//! Flows, seen by applications' sockets and proxies.

pub(crate) mod ahead;
mod early;
pub mod ends;
mod keepalive;
pub mod pump;
pub mod stream;

use std::future::{pending, poll_fn};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;

use oncewire_codec::Plan;
use oncewire_codec::wire::{Destination, FlowId, OpenFailure, ResetReason};
use oncewire_link::{FlowGone, OpenRefused, OpenRequest, Priority, Received};

use crate::peer::Peer;
use early::Early;

/// One flow of a link. Dropping it before both directions have ended resets it.
pub struct Flow {
    peer: Arc<Peer>,
    id: FlowId,
    /// Distinguishes it from an earlier flow of the same number.
    serial: u64,
    /// We finished or aborted.
    sent_end: AtomicBool,
    /// The far side finished, or the flow is over.
    received_end: AtomicBool,
    /// Present until the far side's answer, and after its refusal of new flows.
    early: Mutex<Option<Early>>,
    /// Its destination, if this side opened it.
    destination: Option<Destination>,
}

/// Opens a flow to a destination reached by the peer.
///
/// # Errors
/// If the link is down, full or this gateway is ending.
pub fn open(peer: &Arc<Peer>, request: OpenRequest) -> Result<Flow, OpenRefused> {
    let destination = request.destination.clone();
    let (id, serial) = peer.with(|core, now| {
        let id = core.link.open_flow(request, now)?;
        let serial = core.enter(id);
        peer.look(core, id);
        Ok((id, serial))
    })?;
    Ok(Flow::new(Arc::clone(peer), id, serial).keeping_early(destination))
}

impl Flow {
    /// Wraps a flow already in the peer's table.
    pub(crate) fn new(peer: Arc<Peer>, id: FlowId, serial: u64) -> Self {
        let (sent_end, received_end) = Default::default();
        Self { peer, id, serial, sent_end, received_end, early: Mutex::new(None), destination: None }
    }

    /// Keeps sent bytes until the far side has answered, for [`Flow::turned_back`]; for a flow opened by this
    /// side.
    pub(crate) fn keeping_early(mut self, destination: Destination) -> Self {
        *self.early.get_mut() = Some(Early::default());
        self.destination = Some(destination);
        self
    }

    pub(crate) fn id(&self) -> FlowId {
        self.id
    }

    /// Waits for the next event for our application, and reports another `consumed` bytes to the link.
    pub(crate) async fn received(&self, mut consumed: usize) -> Received {
        poll_fn(|cx| self.poll_received(cx, &mut consumed)).await
    }

    /// Polls as [`Flow::received`] waits; `consumed` is taken once.
    pub(crate) fn poll_received(&self, cx: &mut Context<'_>, consumed: &mut usize) -> Poll<Received> {
        let consumed = std::mem::take(consumed);
        let received = self.peer.with(|core, now| {
            if consumed > 0 {
                core.link.handle_consumed(self.id, consumed, now);
            }
            self.peer.look(core, self.id);
            let received = core.link.poll_payload(self.id, now);
            if matches!(received, Some(Received::Opened(Ok(_)))) {
                // The answer may have taken long, and has the peer's policy on the flow.
                self.peer.note_outcome(core, self.id);
            }
            match (received, core.flows.get_mut(&self.id)) {
                (None, Some(entry)) if entry.ended => Some(Received::Reset(ResetReason::Shutdown)),
                // The link forgets a flow reset behind the far end of stream.
                (None, Some(_)) if core.link.is_over(self.id) => {
                    Some(Received::Reset(ResetReason::Application))
                }
                (None, Some(entry)) => {
                    remember(&mut entry.reader, cx.waker());
                    None
                }
                (Some(Received::Data(bytes)), Some(entry)) => {
                    entry.tally.add(bytes.len());
                    Some(Received::Data(bytes))
                }
                (received, _) => received,
            }
        });
        match received {
            None => Poll::Pending,
            Some(received) => {
                match &received {
                    Received::Finished => self.received_end.store(true, Relaxed),
                    Received::Opened(Err(OpenFailure::Draining)) => {
                        self.is_over();
                        if let Some(early) = &mut *self.early.lock() {
                            early.turn_back();
                        }
                    }
                    Received::Reset(reason) => {
                        self.is_over();
                        // The peer may have connected; that is harmless to a server without any bytes.
                        if let Some(early) = &mut *self.early.lock()
                            && is_loss(*reason)
                            && early.is_empty()
                        {
                            early.turn_back();
                        }
                    }
                    Received::Opened(Err(failure)) => {
                        self.is_over();
                        if *failure == OpenFailure::NotAllowed
                            && let Some(destination) = &self.destination
                        {
                            self.peer.note_denied(destination);
                        }
                    }
                    Received::Opened(Ok(_)) => *self.early.lock() = None,
                    Received::Data(_) => {}
                }
                Poll::Ready(received)
            }
        }
    }

    /// Waits for the far connect's outcome; first, and only on a flow opened by this side.
    ///
    /// # Errors
    /// The reason for the far side's failure.
    pub async fn opened(&self) -> Result<SocketAddr, OpenFailure> {
        match self.received(0).await {
            Received::Opened(outcome) => outcome,
            Received::Reset(reason) if is_loss(reason) => Err(OpenFailure::TimedOut),
            Received::Reset(_) | Received::Data(_) | Received::Finished => Err(OpenFailure::Other),
        }
    }

    /// Whether another way is open to it: the far side takes no flows, or it was lost before it answered
    /// and before it got a byte.
    pub fn is_turned_back(&self) -> bool {
        self.early.lock().as_ref().is_some_and(Early::is_turned_back)
    }

    /// Waits until the link has been away for [`GRACE`] without an answer of the far side, for a flow without
    /// any bytes: another way may then be taken.
    pub async fn lost_untouched(&self) {
        let is_untouched = || self.early.lock().as_ref().is_some_and(Early::is_empty);
        if is_untouched() {
            self.peer.reach.lost(GRACE).await;
            if is_untouched() {
                return;
            }
        }
        pending().await
    }

    /// Returns all sent bytes if it is [turned back](Self::is_turned_back). None after another answer, or
    /// with too many bytes to keep.
    fn turned_back(&self) -> Option<Bytes> {
        if self.early.lock().is_some() {
            // A sender may find the flow over before the answer is read.
            let _ = self.poll_received(&mut Context::from_waker(Waker::noop()), &mut 0);
        }
        self.early.lock().take()?.take()
    }

    /// Sets this side's policy for coding the sent direction, or against coding the flow; before the
    /// answer.
    pub(crate) fn plan(&self, plan: Option<Plan>) {
        self.peer.with(|core, _| {
            core.link.plan_flow(self.id, plan);
            self.peer.note_outcome(core, self.id);
        });
    }

    /// Sets this side's policy for the urgency of the sent direction; none: by the bytes sent.
    pub fn prioritize(&self, priority: Option<Priority>) {
        self.peer.with(|core, _| core.link.prioritize_flow(self.id, priority));
    }

    /// Reports the outcome of the onward connect to the far side.
    pub(crate) fn answer(&self, answer: Result<SocketAddr, OpenFailure>) {
        self.peer.with(|core, now| core.link.answer_flow(self.id, answer, now));
    }

    /// Waits until the flow is over, regardless of its received bytes.
    pub(crate) async fn over(&self) {
        poll_fn(|cx| {
            self.peer.with(|core, _| {
                let over = core.link.is_over(self.id);
                match core.flows.get_mut(&self.id) {
                    Some(entry) if !over && !entry.ended => {
                        remember(&mut entry.reader, cx.waker());
                        Poll::Pending
                    }
                    _ => Poll::Ready(()),
                }
            })
        })
        .await;
    }

    /// Queues bytes for the far application; the result is the remaining room. With `more` the caller calls
    /// this again at once, or [`Flow::expect_no_more`].
    ///
    /// # Errors
    /// If the flow is over.
    pub(crate) fn send(&self, bytes: Bytes, more: bool) -> Result<usize, FlowGone> {
        self.early.lock().take_if(|early| !early.keep(&bytes));
        self.peer.with(|core, now| {
            let sent = bytes.len();
            let room = core.link.handle_payload(self.id, bytes, now)?;
            if more {
                core.link.expect_payload(self.id, true);
            }
            self.peer.look(core, self.id);
            if let Some(entry) = core.flows.get_mut(&self.id) {
                entry.tally.add(sent);
                entry.writable = room > 0;
            }
            Ok(room)
        })
    }

    /// Returns the number of bytes to read of our application at once.
    pub(crate) fn read_size(&self) -> usize {
        self.peer.with(|core, _| core.link.read_size(self.id))
    }

    /// Withdraws the hint of more bytes at once.
    pub(crate) fn expect_no_more(&self) {
        self.peer.with(|core, _| core.link.expect_payload(self.id, false));
    }

    /// Reports the probing interval of our application's host to the far side, in seconds of silence.
    fn tell_keepalive(&self, seconds: u16) {
        self.peer.with(|core, _| core.link.tell_keepalive(self.id, seconds));
    }

    /// Returns the probing interval of the far application's host.
    fn far_keepalive(&self) -> Option<Duration> {
        let seconds = self.peer.with(|core, _| core.link.far_keepalive(self.id));
        seconds.map(|seconds| Duration::from_secs(seconds.into()))
    }

    /// Whether so many bytes may be read of our application without room for them; then they are counted.
    fn may_read_ahead(&self, bytes: usize) -> bool {
        // Unanswered bytes must be kept completely, or the flow could not be turned back.
        let is_unanswered = self.early.lock().is_some();
        !is_unanswered && self.peer.with(|core, now| core.read_ahead.take(&core.link, self.id, bytes, now))
    }

    /// Waits until there is room to queue bytes.
    pub(crate) async fn writable(&self) {
        poll_fn(|cx| self.poll_writable(cx)).await;
    }

    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.peer.with(|core, _| match core.flows.get_mut(&self.id) {
            Some(entry) if !entry.writable && !entry.ended => {
                remember(&mut entry.writer, cx.waker());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        })
    }

    /// Ends our application's stream in order.
    pub(crate) fn finish(&self) {
        if !self.sent_end.swap(true, Relaxed) {
            self.peer.with(|core, now| core.link.finish_flow(self.id, now));
        }
    }

    /// Resets the flow.
    pub(crate) fn abort(&self, reason: ResetReason) {
        let over = self.sent_end.swap(true, Relaxed) & self.received_end.swap(true, Relaxed);
        if !over {
            self.peer.with(|core, now| core.link.abort_flow(self.id, reason, now));
        }
    }

    /// Whether our side has finished and the far one has not.
    pub(crate) fn waits_for_far_end(&self) -> bool {
        self.sent_end.load(Relaxed) && !self.received_end.load(Relaxed)
    }

    fn is_over(&self) {
        self.sent_end.store(true, Relaxed);
        self.received_end.store(true, Relaxed);
    }
}

impl Drop for Flow {
    fn drop(&mut self) {
        let reason = if self.peer.is_draining() { ResetReason::Shutdown } else { ResetReason::Application };
        self.abort(reason);
        self.peer.forget(self.id, self.serial);
    }
}

/// How long new flows wait for a link, from its loss or its peer's announced end of new flows.
pub const GRACE: Duration = Duration::from_secs(1);

/// Whether a flow ended with its link; a retry may find another.
fn is_loss(reason: ResetReason) -> bool {
    matches!(reason, ResetReason::PeerLost | ResetReason::PeerRestarted | ResetReason::Shutdown)
}

/// Keeps the waker of the last caller.
fn remember(slot: &mut Option<Waker>, waker: &Waker) {
    match slot {
        Some(kept) if kept.will_wake(waker) => {}
        _ => *slot = Some(waker.clone()),
    }
}
