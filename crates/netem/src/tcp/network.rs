//! Connections over a shared pair of links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;

use super::congestion::Policy;
use super::connection::{Connection, Outbox};
use super::packet::{HEADER_BYTES, Kind, MSS, Packet};
use super::sender::SendingReport;
use crate::{Link, LinkCounters, LinkParams, Now, ParamsError};

/// A path of two links with modelled TCP connections across it.
///
/// All connections share both links, and compete for the rate. The model moves counts, not bytes: its driver keeps
/// the bytes written on one side, and hands over as many as [`Event::Readable`] says on the other.
///
/// Call with times in order. After every call drain [`poll_event`](Self::poll_event); when
/// [`poll_timeout`](Self::poll_timeout) has passed call [`handle_timeout`](Self::handle_timeout). Calls for a closed
/// connection do nothing.
#[derive(Debug)]
pub struct Network {
    /// The outgoing links of the near and the far side.
    links: [Link<Packet>; 2],
    connections: BTreeMap<ConnectionId, Entry>,
    timers: BTreeSet<(Now, ConnectionId)>,
    events: VecDeque<Event>,
    traffic: BTreeMap<Account, [Traffic; 2]>,
    next_id: u64,
}

/// One end of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The end sending on the first link, `up`.
    Near,
    /// The end sending on the second link, `down`.
    Far,
}

/// Names a connection; never used twice in a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ConnectionId(u64);

/// A class of traffic, for separate counts on a shared path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Account(pub u32);

/// Events for the applications at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A connection reached the other side; it has to [`accept`](Network::accept) or [`refuse`](Network::refuse) it.
    Incoming(ConnectionId),
    /// The opener's connection is established.
    Connected(ConnectionId),
    /// The opener's connection came to nothing.
    Failed(ConnectionId, ConnectError),
    /// So many further bytes have arrived in order.
    Readable {
        /// The connection.
        connection: ConnectionId,
        /// The readable side.
        side: Side,
        /// How many bytes more.
        bytes: u64,
    },
    /// There is room to write again, after there was little.
    Writable {
        /// The connection.
        connection: ConnectionId,
        /// The writable side.
        side: Side,
    },
    /// The other side ended its stream; all its bytes were announced before.
    Finished {
        /// The connection.
        connection: ConnectionId,
        /// The side at the end of the stream.
        side: Side,
    },
    /// The other side reset, or the path was given up. Nothing follows for this side.
    Reset {
        /// The connection.
        connection: ConnectionId,
        /// The reset side.
        side: Side,
    },
    /// The connection is over for both sides. Nothing follows.
    Closed(ConnectionId),
}

/// Why a connection was not established.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectError {
    /// The other side refused it.
    Refused,
    /// No answer came in about a minute.
    TimedOut,
}

/// The network has [`MAX_CONNECTIONS`] already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyConnections;

/// The traffic of one side for one account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Payload bytes sent for the first time.
    pub payload: u64,
    /// Payload bytes sent again.
    pub repeated: u64,
    /// Segments sent for the first time, ends of streams included.
    pub segments: u64,
    /// Segments sent again.
    pub repeated_segments: u64,
    /// Packets without payload: acknowledgements, handshakes, probes.
    pub control: u64,
    /// All bytes of all packets, headers included, whether or not the path lost them.
    pub packets_bytes: u64,
}

#[derive(Debug)]
struct Entry {
    connection: Connection,
    /// Its time in `timers`; never later than its next timeout.
    armed_at: Option<Now>,
}

impl Network {
    /// Makes a path: `up` leads from the near to the far side, `down` back.
    ///
    /// # Errors
    ///
    /// Settings out of range, or an MTU below a full segment of the model.
    pub fn new(up: LinkParams, down: LinkParams) -> Result<Self, ParamsError> {
        for params in [&up, &down] {
            let least = MSS + HEADER_BYTES;
            if params.mtu < least {
                return Err(ParamsError::MtuOutOfRange { mtu: params.mtu, least });
            }
        }
        Ok(Self {
            links: [Link::new(up)?, Link::new(down)?],
            connections: BTreeMap::new(),
            timers: BTreeSet::new(),
            events: VecDeque::new(),
            traffic: BTreeMap::new(),
            next_id: 0,
        })
    }

    /// Opens a connection from `opener`, with one congestion control for both directions.
    ///
    /// # Errors
    ///
    /// [`TooManyConnections`] at [`MAX_CONNECTIONS`].
    pub fn connect(
        &mut self,
        opener: Side,
        policy: Policy,
        account: Account,
        now: Now,
    ) -> Result<ConnectionId, TooManyConnections> {
        self.handle_timeout(now);
        if self.connections.len() >= MAX_CONNECTIONS {
            return Err(TooManyConnections);
        }
        let id = ConnectionId(self.next_id);
        self.next_id += 1;
        let mut out = Outbox::default();
        let connection = Connection::open(id, account, opener, policy, now, &mut out);
        self.connections.insert(id, Entry { connection, armed_at: None });
        self.settle(id, out, now);
        Ok(id)
    }

    /// Accepts an [`Event::Incoming`].
    pub fn accept(&mut self, id: ConnectionId, now: Now) {
        self.change(id, now, |connection, out| connection.accept(now, out));
    }

    /// Refuses an [`Event::Incoming`].
    pub fn refuse(&mut self, id: ConnectionId, now: Now) {
        self.change(id, now, |connection, out| connection.refuse(out));
    }

    /// Returns how many bytes a side may write now. A fresh connection has room for 128 KiB.
    pub fn room(&self, id: ConnectionId, side: Side) -> u64 {
        self.connections.get(&id).map_or(0, |entry| entry.connection.room(side))
    }

    /// Limits the bytes of a side waiting for its window, as `TCP_NOTSENT_LOWAT` does; by default only the buffer
    /// limits them.
    pub fn limit_unsent(&mut self, id: ConnectionId, side: Side, bytes: u64, now: Now) {
        self.change(id, now, |connection, _| connection.limit_unsent(side, bytes));
    }

    /// Returns the kernel's view of a side's sending half; `None` if the connection is over.
    pub fn report(&self, id: ConnectionId, side: Side) -> Option<SendingReport> {
        self.connections.get(&id).map(|entry| entry.connection.report(side))
    }

    /// Queues bytes written by a side, at most [`room`](Self::room); returns their number.
    ///
    /// When it leaves little room, an [`Event::Writable`] follows. Room may have shrunk again by the time that event
    /// is handled; a writer still without room calls this with 0 bytes for another event.
    pub fn handle_written(&mut self, id: ConnectionId, side: Side, bytes: u64, now: Now) -> u64 {
        self.change(id, now, |connection, _| connection.handle_written(side, bytes)).unwrap_or(0)
    }

    /// Ends a side's stream behind all it wrote.
    pub fn finish(&mut self, id: ConnectionId, side: Side, now: Now) {
        self.change(id, now, |connection, _| connection.finish(side));
    }

    /// Resets: the other side learns of it behind earlier bytes; nothing more comes for this side.
    pub fn reset(&mut self, id: ConnectionId, side: Side, now: Now) {
        self.change(id, now, |connection, out| connection.reset(side, out));
    }

    /// Notes bytes taken by a side's application; this opens the window again.
    pub fn handle_consumed(&mut self, id: ConnectionId, side: Side, bytes: u64, now: Now) {
        self.change(id, now, |connection, out| connection.handle_consumed(side, bytes, out));
    }

    /// Returns when something happens next by itself; `None` while all is still.
    pub fn poll_timeout(&self) -> Option<Now> {
        let [up, down] = self.links.each_ref().map(Link::next_due);
        [up, down, self.timers.first().map(|(at, _)| *at)].into_iter().flatten().min()
    }

    /// Handles all events due by `now`, each at the time it was due.
    pub fn handle_timeout(&mut self, now: Now) {
        while let Some(due) = self.poll_timeout().filter(|due| *due <= now) {
            for side in [Side::Near, Side::Far] {
                while let Some(packet) = self.link_mut(side).poll(due) {
                    self.deliver(packet, due);
                }
            }
            while let Some((at, id)) = self.timers.first().copied().filter(|(at, _)| *at <= due) {
                self.timers.remove(&(at, id));
                self.expire(id, due);
            }
        }
    }

    /// Returns the next event, in order.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Returns the traffic of a side for an account.
    pub fn traffic(&self, account: Account, side: Side) -> Traffic {
        self.traffic.get(&account).map(|sides| *side.pick(sides)).unwrap_or_default()
    }

    /// Returns the counters of a side's outgoing link.
    pub fn link_counters(&self, side: Side) -> LinkCounters {
        side.pick(&self.links).counters()
    }

    /// Returns how many connections are not over.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    fn deliver(&mut self, packet: Packet, now: Now) {
        let at = packet.from.other();
        let id = packet.connection;
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let mut out = Outbox::default();
        entry.connection.handle_packet(at, packet.kind, now, &mut out);
        self.settle(id, out, now);
    }

    fn expire(&mut self, id: ConnectionId, now: Now) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        entry.armed_at = None;
        let mut out = Outbox::default();
        if entry.connection.next_timeout().is_some_and(|at| at <= now) {
            entry.connection.handle_timeout(now, &mut out);
        }
        self.settle(id, out, now);
    }

    fn change<T>(
        &mut self,
        id: ConnectionId,
        now: Now,
        change: impl FnOnce(&mut Connection, &mut Outbox) -> T,
    ) -> Option<T> {
        // Earlier events come first, or a late caller would change their order.
        self.handle_timeout(now);
        let entry = self.connections.get_mut(&id)?;
        let mut out = Outbox::default();
        let result = change(&mut entry.connection, &mut out);
        self.settle(id, out, now);
        Some(result)
    }

    /// Drains a connection after something happened to it.
    fn settle(&mut self, id: ConnectionId, mut out: Outbox, now: Now) {
        let Some(entry) = self.connections.get_mut(&id) else { return };
        let account = entry.connection.account;
        if !entry.connection.is_over() {
            entry.connection.transmit(now, &mut out);
        }
        let over = entry.connection.is_over();
        if over {
            if let Some(at) = entry.armed_at.take() {
                self.timers.remove(&(at, id));
            }
            self.connections.remove(&id);
        } else {
            arm(entry, &mut self.timers);
        }
        self.events.extend(out.events);
        self.events.extend(over.then_some(Event::Closed(id)));
        for (from, kind) in out.packets {
            let traffic = self.traffic.entry(account).or_default();
            from.pick_mut(traffic).count(&kind);
            self.link_mut(from).send(now, kind.wire_len(), Packet { connection: id, from, kind });
        }
    }

    fn link_mut(&mut self, side: Side) -> &mut Link<Packet> {
        side.pick_mut(&mut self.links)
    }
}

/// Moves a timer only if it has to fire earlier: a late deadline is looked at again when the timer fires.
fn arm(entry: &mut Entry, timers: &mut BTreeSet<(Now, ConnectionId)>) {
    let Some(at) = entry.connection.next_timeout() else { return };
    if entry.armed_at.is_some_and(|armed_at| armed_at <= at) {
        return;
    }
    let id = entry.connection.id;
    if let Some(before) = entry.armed_at.replace(at) {
        timers.remove(&(before, id));
    }
    timers.insert((at, id));
}

impl Side {
    /// Returns the opposite side.
    pub fn other(self) -> Self {
        match self {
            Self::Near => Self::Far,
            Self::Far => Self::Near,
        }
    }

    fn pick<T>(self, both: &[T; 2]) -> &T {
        let [near, far] = both;
        match self {
            Self::Near => near,
            Self::Far => far,
        }
    }

    fn pick_mut<T>(self, both: &mut [T; 2]) -> &mut T {
        let [near, far] = both;
        match self {
            Self::Near => near,
            Self::Far => far,
        }
    }
}

impl Traffic {
    fn count(&mut self, kind: &Kind) {
        self.packets_bytes += u64::from(kind.wire_len());
        match kind {
            Kind::Data(segment) if segment.repeated => {
                self.repeated += u64::from(segment.content.payload());
                self.repeated_segments += 1;
            }
            Kind::Data(segment) => {
                self.payload += u64::from(segment.content.payload());
                self.segments += 1;
            }
            _ => self.control += 1,
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Refused => "the other side refused the connection",
            Self::TimedOut => "the other side did not answer",
        })
    }
}

impl std::error::Error for ConnectError {}

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the emulated path carries {MAX_CONNECTIONS} connections already")
    }
}

impl std::error::Error for TooManyConnections {}

/// The most connections of a network at once.
pub const MAX_CONNECTIONS: usize = 16_384;

#[cfg(test)]
mod tests;
