//! The table of held and recently held SYNs.
//!
//! It knows no clock and no socket.

use std::collections::HashMap;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::syn::{Ends, Syn};

/// The kernel's number of a held packet.
pub(super) type Packet = u32;

/// Fate of a SYN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It goes on as without a gateway.
    AsItIs,
    /// It is taken in.
    TakeIn,
    /// It is answered with a reset.
    Refuse,
    /// It is answered with ICMP's "host unreachable".
    Unreachable,
    /// It is answered with ICMP's "administratively prohibited".
    Prohibited,
    /// It is lost: its client sends it again, or gives up.
    Drop,
}

/// Next step for a received SYN.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Todo {
    /// Connect, and call [`Table::decide`] with this number; the packet waits.
    Connect(u64),
    /// Let the packet go, since a newer one of the same connection waits in its place.
    Release(Packet),
    /// Answer the packet.
    Answer(Answer),
}

/// Held connections; `W` is a connection's way.
pub(super) struct Table<W> {
    entries: HashMap<Ends, Entry<W>>,
    count: u64,
}

struct Entry<W> {
    number: u64,
    sequence: u32,
    since: Instant,
    until: Instant,
    state: State<W>,
}

enum State<W> {
    /// The far connect is under way, as long as the sender lives.
    Asked(Packet, watch::Sender<()>),
    /// It succeeded; the client has not been accepted yet.
    Open(W),
    /// The client got this answer, and its packets may have crossed with it.
    Answered(Answer),
}

/// Remains of removed entries.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Removed<W> {
    /// To be dropped, and be sent again.
    pub(super) packets: Vec<Packet>,
    /// Connected for absent clients.
    pub(super) ways: Vec<W>,
}

impl<W> Default for Table<W> {
    fn default() -> Self {
        Self { entries: HashMap::new(), count: 0 }
    }
}

impl<W> Table<W> {
    /// Takes in a SYN held by the kernel. A repeated one gets the first one's answer, or waits in its place.
    pub(super) fn take(&mut self, syn: Syn, packet: Packet, now: Instant) -> Todo {
        if let Some(entry) = self.entries.get_mut(&syn.ends) {
            let again = std::mem::replace(&mut entry.sequence, syn.sequence) == syn.sequence;
            match &mut entry.state {
                State::Asked(held, _) => {
                    entry.until = patience(entry.since, now);
                    return Todo::Release(std::mem::replace(held, packet));
                }
                // It is unused, and serves a restarted client as well.
                State::Open(_) => return Todo::Answer(Answer::TakeIn),
                State::Answered(answer) if again => return Todo::Answer(*answer),
                State::Answered(_) => {}
            }
        } else if self.entries.len() >= MAX_HELD {
            return Todo::Answer(Answer::AsItIs);
        }
        self.count += 1;
        let (number, sequence) = (self.count, syn.sequence);
        let (since, until, state) = (now, patience(now, now), State::Asked(packet, watch::Sender::default()));
        self.entries.insert(syn.ends, Entry { number, sequence, since, until, state });
        Todo::Connect(number)
    }

    /// Returns a receiver failing once a connect has no waiter.
    pub(super) fn waiting(&self, ends: &Ends) -> Option<watch::Receiver<()>> {
        match &self.entries.get(ends)?.state {
            State::Asked(_, waiting) => Some(waiting.subscribe()),
            State::Open(_) | State::Answered(_) => None,
        }
    }

    /// Takes in a connect's outcome; returns the waiting packet and its answer.
    ///
    /// # Errors
    /// The way, if it has no waiter.
    pub(super) fn decide(
        &mut self,
        ends: &Ends,
        number: u64,
        outcome: Result<W, Answer>,
        now: Instant,
    ) -> Result<(Packet, Answer), Option<W>> {
        let waits = |entry: &&mut Entry<W>| entry.number == number;
        let Some(entry) = self.entries.get_mut(ends).filter(waits) else { return Err(outcome.ok()) };
        let State::Asked(packet, _) = &entry.state else { return Err(outcome.ok()) };
        let packet = *packet;
        let answer = outcome.as_ref().err().copied().unwrap_or(Answer::TakeIn);
        (entry.state, entry.until) = match outcome {
            Ok(way) => (State::Open(way), now + HANDSHAKE_LIMIT),
            Err(answer) => (State::Answered(answer), now + REPEATS),
        };
        if answer == Answer::Drop {
            // A repeated SYN is a new question.
            self.entries.remove(ends);
        }
        Ok((packet, answer))
    }

    /// Hands over the way of an accepted client.
    pub(super) fn claim(&mut self, ends: &Ends, now: Instant) -> Option<W> {
        let entry = self.entries.get_mut(ends)?;
        let answered = State::Answered(Answer::TakeIn);
        match std::mem::replace(&mut entry.state, answered) {
            State::Open(way) => {
                entry.until = now + REPEATS;
                Some(way)
            }
            other => {
                entry.state = other;
                None
            }
        }
    }

    /// Forgets connections still waiting for their answer.
    pub(super) fn forget_asked(&mut self) -> Removed<W> {
        self.remove(|entry| matches!(entry.state, State::Asked(..)))
    }

    /// Forgets expired entries.
    pub(super) fn expire(&mut self, now: Instant) -> Removed<W> {
        self.remove(|entry| entry.until <= now)
    }

    /// Forgets everything.
    pub(super) fn clear(&mut self) -> Removed<W> {
        self.remove(|_| true)
    }

    fn remove(&mut self, which: impl Fn(&Entry<W>) -> bool) -> Removed<W> {
        let mut removed = Removed { packets: Vec::new(), ways: Vec::new() };
        for (_, entry) in self.entries.extract_if(|_, entry| which(entry)) {
            match entry.state {
                State::Asked(packet, _) => removed.packets.push(packet),
                State::Open(way) => removed.ways.push(way),
                State::Answered(_) => {}
            }
        }
        removed
    }
}

/// Connections held at once or a moment ago; further ones are taken in without asking the server.
pub(super) const MAX_HELD: usize = 4096;

/// Returns the deadline for a client with a SYN just now and its first one some time ago.
///
/// Systems repeat it after a second at first and double the wait each time: the next wait is as long as the
/// whole attempt so far and a second more. A client silent for twice that and two seconds has given up.
fn patience(since: Instant, now: Instant) -> Instant {
    now + 2 * (now.duration_since(since) + Duration::from_secs(1)) + Duration::from_secs(2)
}

/// How long a connected server waits for its client to complete the handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// How long packets crossing with an answer get the same one.
const REPEATS: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;

    fn syn(port: u16, sequence: u32) -> Syn {
        let end = |host, port| ([198, 18, host, 2], port).into();
        Syn { ends: Ends::new(end(1, port), end(2, 80)), sequence }
    }

    fn asked(table: &mut Table<&'static str>, syn: Syn, packet: Packet, now: Instant) -> u64 {
        match table.take(syn, packet, now) {
            Todo::Connect(number) => number,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn repeated_syn_waits_in_place_of_the_first() {
        let (mut table, now, first) = (Table::default(), Instant::now(), syn(1, 7));
        let number = asked(&mut table, first, 100, now);
        assert_eq!(table.take(first, 101, now), Todo::Release(100));
        assert_eq!(table.decide(&first.ends, number, Ok("way"), now), Ok((101, Answer::TakeIn)));
        // Its answer may have been lost.
        assert_eq!(table.take(first, 102, now), Todo::Answer(Answer::TakeIn));
        assert_eq!(table.claim(&first.ends, now), Some("way"));
        assert_eq!(table.take(first, 103, now), Todo::Answer(Answer::TakeIn));
        assert_eq!(table.claim(&first.ends, now), None);
    }

    #[test]
    fn another_connection_of_the_same_ends_is_asked_for_again() {
        let (mut table, now) = (Table::default(), Instant::now());
        for sequence in 0..3 {
            let number = asked(&mut table, syn(1, sequence), sequence, now);
            let ends = syn(1, sequence).ends;
            assert_eq!(table.decide(&ends, number, Err(Answer::Refuse), now), Ok((sequence, Answer::Refuse)));
            assert_eq!(table.take(syn(1, sequence), 99, now), Todo::Answer(Answer::Refuse));
        }
    }

    #[test]
    fn lost_connect_is_retried_with_the_client() {
        let (mut table, now, first) = (Table::default(), Instant::now(), syn(1, 7));
        let number = asked(&mut table, first, 100, now);
        assert_eq!(table.decide(&first.ends, number, Err(Answer::Drop), now), Ok((100, Answer::Drop)));
        let again = asked(&mut table, first, 101, now);
        assert_eq!(table.decide(&first.ends, number, Ok("late"), now), Err(Some("late")));
        assert_eq!(table.decide(&first.ends, again, Ok("way"), now), Ok((101, Answer::TakeIn)));
    }

    #[test]
    fn absent_client_costs_its_server_ten_seconds() {
        let (mut table, now, first) = (Table::default(), Instant::now(), syn(1, 7));
        let number = asked(&mut table, first, 100, now);
        assert!(table.decide(&first.ends, number, Ok("way"), now).is_ok());
        let nothing = Removed { packets: vec![], ways: vec![] };
        assert_eq!(table.expire(now + HANDSHAKE_LIMIT - Duration::from_millis(1)), nothing);
        assert_eq!(table.expire(now + HANDSHAKE_LIMIT).ways, ["way"]);
        assert_eq!(table.claim(&first.ends, now), None);
    }

    #[test]
    fn silent_client_has_given_up() {
        let (mut table, start, first) = (Table::<&str>::default(), Instant::now(), syn(1, 7));
        asked(&mut table, first, 0, start);
        let waiting = table.waiting(&first.ends).unwrap();
        // Linux's intervals until it gives up, after 127 seconds; some are late.
        for (packet, second) in [(1, 1), (2, 4), (3, 7), (4, 16), (5, 31), (6, 63)] {
            let now = start + Duration::from_secs(second);
            assert!(table.expire(now).packets.is_empty(), "after {second} s");
            assert_eq!(table.take(first, packet, now), Todo::Release(packet - 1));
        }
        assert!(table.expire(start + Duration::from_secs(190)).packets.is_empty());
        assert!(waiting.has_changed().is_ok());
        assert_eq!(table.expire(start + Duration::from_secs(193)).packets, [6]);
        assert!(waiting.has_changed().is_err());
    }

    #[test]
    fn only_waiting_entries_are_forgotten() {
        let (mut table, now) = (Table::default(), Instant::now());
        asked(&mut table, syn(1, 7), 100, now);
        let open = asked(&mut table, syn(2, 7), 101, now);
        assert!(table.decide(&syn(2, 7).ends, open, Ok("way"), now).is_ok());
        assert_eq!(table.forget_asked(), Removed { packets: vec![100], ways: vec![] });
        assert_eq!(table.claim(&syn(2, 7).ends, now), Some("way"));
    }

    #[test]
    fn beyond_the_bound_nothing_is_held() {
        let (mut table, now) = (Table::<&str>::default(), Instant::now());
        for number in 0..MAX_HELD {
            asked(&mut table, syn(number as u16, 0), number as u32, now);
        }
        let beyond = syn(MAX_HELD as u16, 0);
        assert_eq!(table.take(beyond, 9999, now), Todo::Answer(Answer::AsItIs));
        assert_eq!(table.expire(patience(now, now)).packets.len(), MAX_HELD);
        asked(&mut table, beyond, 9999, now);
    }
}
