//! Keep-alive: the far end probes as often as the application's own host.

use oncewire_codec::wire::{FlowId, Frame, KeepAlive};

use super::Link;
use super::networks::OPTIONAL_SINCE;

impl Link {
    /// Tells the peer that the host of our application probes a flow's connection after each silence of so many
    /// seconds, at most [`MAX_KEEPALIVE`](oncewire_codec::wire::MAX_KEEPALIVE), or with 0 that it probes no more. A
    /// peer of version 1 only is not told.
    pub fn tell_keepalive(&mut self, id: FlowId, seconds: u16) {
        if let Some(flow) = self.flows.get_mut(&id).filter(|flow| flow.over.is_none())
            && flow.keepalive.ours.replace(seconds) != Some(seconds)
            && self.takes_optional_frames()
        {
            self.control.retain(|frame| !matches!(frame, Frame::KeepAlive(said) if said.flow == id));
            self.control.push_back(Frame::KeepAlive(KeepAlive { flow: id, seconds }));
            self.wake_control();
        }
    }

    /// Returns how often the host of the far application probes, in seconds of silence; none if it is not known to.
    pub fn far_keepalive(&self, id: FlowId) -> Option<u16> {
        self.flows.get(&id).and_then(|flow| flow.keepalive.far)
    }

    /// Says all of it again.
    pub(super) fn restate_keepalives(&mut self) {
        if !self.takes_optional_frames() {
            return;
        }
        self.control.retain(|frame| !matches!(frame, Frame::KeepAlive(_)));
        let open = self.flows.values().filter(|flow| flow.over.is_none());
        let said = open.filter_map(|flow| {
            let seconds = flow.keepalive.ours?;
            Some(Frame::KeepAlive(KeepAlive { flow: flow.id, seconds }))
        });
        self.control.extend(said);
    }

    pub(super) fn handle_keepalive(&mut self, said: KeepAlive) {
        if let Some(flow) = self.flows.get_mut(&said.flow) {
            flow.keepalive.far = Some(said.seconds).filter(|seconds| *seconds > 0);
        }
    }

    fn takes_optional_frames(&self) -> bool {
        !self.lanes.is_empty() && self.peer.as_ref().is_some_and(|peer| peer.version >= OPTIONAL_SINCE)
    }
}
