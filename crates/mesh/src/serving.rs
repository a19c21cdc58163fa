//! Answers to neighbours' requests: with an own chunk, with another's, or with no.

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_codec::wanax::{LEAST_SHARED, Name};
use oncewire_codec::wire::GroupFrame;

use super::asking::MOST_ASKING;
use super::claims::{Verdict, Waiter};
use super::{MAX_ASKED, MAX_PUT_OFF, MemberId, Neighbourhood, Output, Piece};

impl Neighbourhood {
    pub(super) fn handle_get(&mut self, from: MemberId, request: u64, name: Name, len: u32) {
        let Some(member) = self.members.get_mut(&from) else { return };
        // A read without waiters keeps the disk from others.
        if member.serving >= MAX_ASKED || self.telling.own.load.wait() > MOST_ASKING {
            return self.send(from, GroupFrame::Chunk { request, bytes: None });
        }
        member.serving += 1;
        self.outputs.push_back(Output::Serve { from, request, name, len });
    }

    /// Answers [`Output::Serve`] of a name and length: the chunk, or none. A member lacking a chunk claimed by another
    /// is told to wait for it.
    pub fn handle_served(
        &mut self,
        from: MemberId,
        request: u64,
        (name, len): (Name, u32),
        bytes: Option<Bytes>,
        now: Now,
    ) {
        let tag = name.tag();
        let is_brought = len >= LEAST_SHARED && self.responsible(tag).is_none();
        let Some(member) = self.members.get_mut(&from) else { return };
        member.serving = member.serving.saturating_sub(1);
        if bytes.is_none() && is_brought && member.waits < MAX_PUT_OFF {
            let waiter = Waiter::Member { id: from, request, name };
            if let Verdict::Wait(time) = self.claims.join(tag, from, waiter, now) {
                member.waits += 1;
                let time_ms = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
                return self.send(from, GroupFrame::Wait { request, time_ms });
            }
        }
        self.serve(from, request, bytes);
    }

    fn serve(&mut self, to: MemberId, request: u64, bytes: Option<Bytes>) {
        self.stats.served += u64::from(bytes.is_some());
        self.send(to, GroupFrame::Chunk { request, bytes });
    }

    /// Answers a neighbour told to wait.
    fn end_wait(&mut self, to: MemberId, request: u64, bytes: Option<Bytes>) {
        let Some(member) = self.members.get_mut(&to) else { return };
        member.waits = member.waits.saturating_sub(1);
        self.serve(to, request, bytes);
    }

    /// A neighbour brought a chunk: who waits for it has it now.
    pub(super) fn handle_brought(&mut self, from: MemberId, bytes: &Bytes, now: Now) {
        if !self.claims.is_empty() && bytes.len() >= LEAST_SHARED as usize {
            let tag = self.key.tag(bytes);
            self.fill(tag, from, bytes, now);
            // What is there already is no news to the own store when it comes.
            self.claims.withdraw(tag, self.own);
        }
    }

    /// The own store was brought a chunk.
    pub(super) fn handle_own(&mut self, piece: &Piece, now: Now) {
        if !self.claims.is_empty() {
            self.fill(piece.tag, self.own, &piece.bytes, now);
        }
    }

    fn fill(&mut self, tag: u64, from: MemberId, bytes: &Bytes, now: Now) {
        for waiter in self.claims.fill(tag, from, now) {
            match waiter {
                Waiter::Member { id, request, name } => {
                    let right = self.key.matches(&name, bytes);
                    self.end_wait(id, request, right.then(|| bytes.clone()));
                }
                Waiter::Own(read) if self.answer_if_right(&read, bytes.clone()) => self.stats.spared += 1,
                Waiter::Own(read) => self.give_up(&read),
            }
        }
    }

    /// Lets those go who have waited long enough.
    pub(super) fn end_claims(&mut self, now: Now) {
        for waiter in self.claims.expire(now) {
            self.let_go(waiter);
        }
    }

    /// Ends the waits for a gone neighbour's claims.
    pub(super) fn lose_claims(&mut self, id: MemberId) {
        for waiter in self.claims.leave(id) {
            self.let_go(waiter);
        }
    }

    fn let_go(&mut self, waiter: Waiter) {
        match waiter {
            Waiter::Member { id, request, .. } => self.end_wait(id, request, None),
            Waiter::Own(read) => self.give_up(&read),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_codec::wanax::NameKey;
    use oncewire_codec::wire::Load;

    #[test]
    fn overly_busy_disk_is_asked_for_nothing_more() {
        let (mut machine, other, now) =
            (Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1), MemberId(2), Now::from_secs(1));
        machine.handle_up(other);
        let (name, len) = (Name([1; 20]), 2048);
        let mut asked = |queued, request| {
            machine.handle_busy(Load { queued, service_us: 10_000 }, 0, now);
            machine.handle_frame(other, GroupFrame::Get { request, name, len }, now);
            let is_heartbeat = |output: &Output| {
                matches!(output, Output::Send(_, GroupFrame::Load(_) | GroupFrame::Pending { .. }))
            };
            std::iter::from_fn(|| machine.poll_output()).find(|output| !is_heartbeat(output))
        };
        assert_eq!(asked(199, 7), Some(Output::Serve { from: other, request: 7, name, len }));
        let no = GroupFrame::Chunk { request: 8, bytes: None };
        assert_eq!(asked(200, 8), Some(Output::Send(other, no)));
        assert_eq!(asked(10, 9), Some(Output::Serve { from: other, request: 9, name, len }));
    }
}
