//! What the shell could not send: too much waits for the neighbour, or its link has just gone.

use oncewire_codec::Now;
use oncewire_codec::wire::GroupFrame;

use super::{Asked, MemberId, Neighbourhood};

impl Neighbourhood {
    /// A frame of [`Output::Send`](super::Output::Send) could not be sent. Its request goes to the next at once, as if
    /// never asked, and is nobody's failure; the receiver of a chunk is told it is not there.
    pub fn handle_unsent(&mut self, to: MemberId, frame: GroupFrame, now: Now) {
        match frame {
            GroupFrame::Get { request, .. } => {
                self.stats.asked -= 1;
                self.ask_another(to, request, now);
            }
            GroupFrame::Peek { request, .. } => self.ask_another(to, request, now),
            GroupFrame::Chunk { request, bytes: Some(_) } => {
                self.stats.served -= 1;
                self.send(to, GroupFrame::Chunk { request, bytes: None });
            }
            GroupFrame::Put { bytes, .. } => {
                self.stats.given -= 1;
                self.stats.given_bytes -= bytes.len() as u64;
                self.stats.not_offered += 1;
            }
            // Who waits for these has its patience, and the others are said again.
            GroupFrame::Chunk { bytes: None, .. }
            | GroupFrame::Have { .. }
            | GroupFrame::Wait { .. }
            | GroupFrame::Load(_)
            | GroupFrame::Pending { .. }
            | GroupFrame::Stored { .. } => {}
        }
    }

    fn ask_another(&mut self, than: MemberId, request: u64, now: Now) {
        let Some(waiting) = self.take(request) else { return };
        if let Asked::Offer { pieces, .. } = &waiting.asked {
            self.stats.not_offered += pieces.len() as u64;
        }
        self.go_on(waiting.asked, now);
        self.ask_more(than, now);
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::super::{Answer, MAX_ASKED, Output, Piece, Read};
    use super::*;
    use crate::responsible;
    use oncewire_codec::wanax::{Name, NameKey, Shape};

    const OTHERS: [MemberId; 2] = [MemberId(2), MemberId(3)];

    fn machine() -> Neighbourhood {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        OTHERS.into_iter().for_each(|id| _ = machine.handle_up(id));
        while machine.poll_output().is_some() {}
        machine
    }

    /// Carries everything out, but sends nothing; returns what was answered.
    fn send_nothing(machine: &mut Neighbourhood, now: Now) -> Vec<Output> {
        let mut others = Vec::new();
        while let Some(output) = machine.poll_output() {
            match output {
                Output::Send(to, frame) => machine.handle_unsent(to, frame, now),
                Output::Wait { .. } => {}
                output => others.push(output),
            }
        }
        others
    }

    #[test]
    fn unsendable_request_goes_to_the_next_then_nobody() {
        let (mut machine, now) = (machine(), Now::from_secs(1));
        let name = Name([1; 20]);
        let first = responsible(OTHERS, name.tag()).unwrap();
        machine.read(Read { ticket: 1, name, len: 2048, held: false }, now);
        let mut asked = Vec::new();
        while let Some(output) = machine.poll_output() {
            if let Output::Send(to, frame) = output {
                asked.push(to);
                machine.handle_unsent(to, frame, now);
            } else if let Output::Answer { answer, .. } = output {
                assert_eq!(answer, Answer::Absent);
            }
        }
        assert_eq!(asked.len(), 2);
        assert_eq!(asked[0], first);
        // Nor does the queue wait for requests never sent.
        for ticket in 0..MAX_ASKED as u64 + 10 {
            machine.read(Read { ticket, name, len: 2048, held: false }, now);
        }
        assert_eq!(send_nothing(&mut machine, now).len(), MAX_ASKED + 10);
        machine.read(Read { ticket: 1, name, len: 300, held: false }, now);
        machine.look_around(now);
        assert_eq!(send_nothing(&mut machine, now), [Output::Answer { ticket: 1, answer: Answer::Absent }]);
        assert!(machine.waiting.is_empty() && machine.deadlines.is_empty());
        assert!(OTHERS.iter().all(|id| machine.can_ask(*id, now)), "nobody has failed");
        let stats = machine.stats();
        assert_eq!((stats.asked, stats.absent, stats.late), (0, 0, 0));
    }

    #[test]
    fn undelivered_offer_was_not_given() {
        let (mut machine, now) = (machine(), Now::from_secs(1));
        let bytes = Bytes::from(vec![7; 2048]);
        let pieces: Vec<Piece> =
            (0..20).map(|tag| Piece { tag, bytes: bytes.clone(), at: 0, is_shared: true }).collect();
        let theirs: Vec<u64> = (0..20).filter(|tag| machine.responsible(*tag).is_some()).collect();
        machine.offer(Shape::default(), pieces.clone(), now);
        assert_eq!(send_nothing(&mut machine, now), []);
        theirs.iter().for_each(|tag| machine.promises.make(*tag, now));
        machine.offer(Shape::default(), pieces, now);
        assert_eq!(send_nothing(&mut machine, now), []);
        let stats = machine.stats();
        assert_eq!((machine.offered, stats.given, stats.given_bytes), (0, 0, 0));
        assert_eq!(stats.not_offered, 40, "all of them, twice");
        let (asker, name) = (OTHERS[0], machine.key.name(&bytes));
        machine.handle_served(asker, 7, (name, 2048), Some(bytes), now);
        let Some(Output::Send(to, frame)) = machine.poll_output() else { panic!() };
        machine.handle_unsent(to, frame, now);
        let no = GroupFrame::Chunk { request: 7, bytes: None };
        assert_eq!(machine.poll_output(), Some(Output::Send(asker, no)));
        assert_eq!(machine.stats().served, 0);
    }
}
