//! Two gateways, a path and disks in virtual time.
//!
//! The links, codecs and names are those of the daemon. Modelled are the path (`oncewire-netem`: rate, delay, queue,
//! loss, and TCP with slow start, common to all lanes and all direct connections), the disks of the near gateway's
//! chunk store ([`DiskParams`]) and the applications: clients at the near side ask for files with a short request,
//! servers at the far side send them. Lanes write records as the daemon's, and TLS hands out whole ones. Not
//! modelled: CPU time, the bytes of TLS's handshake (its round trip is), and the networks behind the gateways; they
//! cost no time.
//!
//! Time passes from event to event, so the same configuration gives the same times and bytes on every machine.

mod clients;
mod disk;
mod gateway;
mod queue;
mod store;
mod wires;

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::wanax::Shape;
use oncewire_codec::{Now, Plan};
use oncewire_link::{FlowId, LaneRefused, LinkStats, OpenRefused, ProtocolError};
use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::tcp::{Account, ConnectionId, Event, TooManyConnections, Traffic};
use oncewire_netem::{LinkParams, ParamsError, Queue as LinkQueue};

pub use clients::Fetch;
use clients::REQUEST_BYTES;
pub use disk::{DiskParams, Health};
use gateway::Gateway;
use queue::Queue;
pub use store::StoreCounts;
use wires::{Wires, network_side, side_index};

/// The parameters of a simulation.
#[derive(Clone, Debug)]
pub struct SimulationConfig {
    /// The path between both sides.
    pub path: PathConfig,
    /// The gateways; `None`: clients connect through.
    pub gateways: Option<GatewayConfig>,
}

/// A path with the same rate and delay both ways.
#[derive(Clone, Copy, Debug)]
pub struct PathConfig {
    /// Bits a second, headers included.
    pub rate_bits_per_s: u64,
    /// The time to the far side and back while nothing waits.
    pub round_trip: Duration,
    /// The longest queue at each end, as the time for its bytes.
    pub queue: Duration,
    /// The share of lost packets.
    pub loss: f64,
    /// The congestion control of all connections.
    pub policy: Policy,
    /// Seed of packet losses.
    pub seed: u64,
}

/// How both gateways are set up.
#[derive(Clone, Copy, Debug)]
pub struct GatewayConfig {
    /// The plan of both codecs.
    pub plan: Plan,
    /// How chunks are cut.
    pub shape: Shape,
    /// The log of each direction, in bytes.
    pub log_memory: u64,
    /// Bytes sent by a flow before its first are consumed; the daemon's default is 512 KiB.
    pub window: u64,
    /// Bits a second sent by either side at most, so queues form in the gateways and not on the path; `None`: no
    /// limit.
    pub rate_limit: Option<u64>,
    /// The near gateway's chunk store.
    pub store: Option<StoreConfig>,
}

/// A chunk store.
#[derive(Clone, Copy, Debug)]
pub struct StoreConfig {
    /// The properties of each disk.
    pub disk: DiskParams,
    /// How many there are, the own one and those of neighbours.
    pub disks: usize,
    /// The number of recently stored bytes still in the machine's memory, readable in no time.
    pub memory: u64,
    /// Whether chunks of less than 4 KiB lie with the block that brought them, as in the daemon's store, and one read
    /// brings all of them; else each chunk takes a read, as in the paper.
    pub containers: bool,
    /// Whether chunks are requested from the far side when this is sooner.
    pub shed: bool,
}

/// A simulation, and its results so far.
pub struct Simulation {
    config: SimulationConfig,
    now: Now,
    due: Queue<Due>,
    wires: Wires,
    gateways: Option<[Gateway; 2]>,
    fetches: Vec<Fetch>,
    flows: BTreeMap<FlowId, usize>,
    direct: BTreeMap<ConnectionId, usize>,
}

/// Why a simulation did not go on; always a mistake in the code or in the configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// There is no such path.
    #[error(transparent)]
    Path(#[from] ParamsError),
    /// More connections than the model takes.
    #[error("the model of the network takes no more connections")]
    Connections,
    /// A gateway refused a frame of the other.
    #[error("a gateway refused what the other said: {0}")]
    Refused(#[from] ProtocolError),
    /// A gateway refused a lane.
    #[error("a gateway refused a lane: {0}")]
    Lane(#[from] LaneRefused),
    /// A gateway did not open a flow.
    #[error("a flow was not opened: {0}")]
    Open(#[from] OpenRefused),
    /// A client was given other bytes than the server sent.
    #[error("fetch {fetch} came changed at byte {offset}")]
    Changed {
        /// The index of the fetch.
        fetch: usize,
        /// The offset of the first difference.
        offset: usize,
    },
    /// A client's stream ended otherwise than in order.
    #[error("fetch {fetch} was broken off")]
    Broken {
        /// The index of the fetch.
        fetch: usize,
    },
    /// Not all was fetched in the time given.
    #[error("fetch {fetch} did not end in time")]
    Stuck {
        /// The first stuck one.
        fetch: usize,
    },
}

/// Events with a time of their own.
enum Due {
    /// A client asks.
    Ask(usize),
    /// Both ends of a lane have each other's hello.
    LaneUp(ConnectionId),
    /// A disk is done with its current request.
    DiskDone(usize),
}

impl Simulation {
    /// Starts both gateways and lets them meet.
    ///
    /// # Errors
    /// An impossible path.
    pub fn new(config: SimulationConfig) -> Result<Self, SimulationError> {
        let now = Now::from_secs(100);
        let mut simulation = Self {
            now,
            due: Queue::default(),
            wires: Wires::new(config.path)?,
            gateways: config.gateways.map(|config| gateway::pair(config, now)),
            fetches: Vec::new(),
            flows: BTreeMap::new(),
            direct: BTreeMap::new(),
            config,
        };
        // Lanes are dialled one after the other, and the round trip is learnt from pings.
        simulation.pass(MEETING.max(20 * simulation.config.path.round_trip))?;
        Ok(simulation)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Lets a client ask for `file` after some time; returns the number of the fetch.
    pub fn fetch(&mut self, file: Bytes, after: Duration) -> usize {
        self.fetch_with_header(Bytes::new(), file, after)
    }

    /// The same for a server with a header before the file.
    pub fn fetch_with_header(&mut self, header: Bytes, file: Bytes, after: Duration) -> usize {
        let fetch = self.fetches.len();
        self.fetches.push(Fetch::new(header, file, self.now + after));
        self.due.push(self.now + after, Due::Ask(fetch));
        fetch
    }

    /// Returns all fetches, by number.
    pub fn fetches(&self) -> &[Fetch] {
        &self.fetches
    }

    /// Goes on until everything is fetched, or given up by clients without gateways.
    ///
    /// # Errors
    /// An impossible event, or [`SimulationError::Stuck`] if it takes longer than `limit`.
    pub fn run(&mut self, limit: Duration) -> Result<(), SimulationError> {
        let end = self.now + limit;
        loop {
            match self.fetches.iter().position(|fetch| !fetch.is_over()) {
                None => return Ok(()),
                Some(fetch) if !self.step(end)? => return Err(SimulationError::Stuck { fetch }),
                Some(_) => {}
            }
        }
    }

    /// Lets time pass.
    ///
    /// # Errors
    /// An impossible event.
    pub fn pass(&mut self, time: Duration) -> Result<(), SimulationError> {
        let end = self.now + time;
        while self.step(end)? {}
        self.now = end;
        Ok(())
    }

    /// Returns a side's bytes on the path, headers included: [`NEAR`] or [`FAR`].
    pub fn wire_bytes(&self, side: usize) -> u64 {
        self.wires.network.link_counters(network_side(side)).carried_bytes
    }

    /// Returns the traffic of a side's lanes.
    pub fn traffic(&self, side: usize) -> Traffic {
        self.wires.network.traffic(wires::LANES, network_side(side))
    }

    /// Returns a gateway's counters.
    pub fn link_stats(&self, side: usize) -> Option<LinkStats> {
        Some(self.gateways.as_ref()?.get(side)?.link.stats())
    }

    /// Returns the counts of requests to the store.
    pub fn store_counts(&self) -> StoreCounts {
        let near = self.gateways.as_ref().and_then(|[near, _]| near.store.as_ref());
        near.map(|store| store.counts()).unwrap_or_default()
    }

    /// Changes the disks' treatment of reads from now on.
    pub fn set_disk_health(&mut self, health: Health) {
        if let Some([near, _]) = &mut self.gateways
            && let Some(store) = &mut near.store
        {
            store.set_health(health);
        }
    }

    /// Empties the store; nobody is told.
    pub fn lose_store(&mut self) {
        if let Some([near, _]) = &mut self.gateways
            && let Some(store) = &mut near.store
        {
            store.lose();
        }
    }

    /// Handles the next event; returns false if it is not due by `end`.
    fn step(&mut self, end: Now) -> Result<bool, SimulationError> {
        self.settle()?;
        let links = self.gateways.iter().flatten().filter_map(|gateway| gateway.link.poll_timeout());
        let others = [self.due.next_due(), self.wires.network.poll_timeout()];
        let Some(next) = links.chain(others.into_iter().flatten()).min().filter(|next| *next <= end) else {
            return Ok(false);
        };
        self.now = next.max(self.now);
        self.wires.network.handle_timeout(self.now);
        for gateway in self.gateways.iter_mut().flatten() {
            if gateway.link.poll_timeout().is_some_and(|at| at <= self.now) {
                gateway.link.handle_timeout(self.now);
            }
        }
        while let Some(due) = self.due.pop_due(self.now) {
            match due {
                Due::Ask(fetch) => self.ask(fetch)?,
                Due::LaneUp(connection) => self.raise_lane(connection)?,
                Due::DiskDone(disk) => self.finish_read(disk),
            }
        }
        Ok(true)
    }

    /// Moves everything movable without passing time.
    fn settle(&mut self) -> Result<(), SimulationError> {
        loop {
            let mut any = false;
            while let Some(event) = self.wires.network.poll_event() {
                self.handle_network(event)?;
                any = true;
            }
            for side in [NEAR, FAR] {
                any |= self.handle_link_events(side)?;
                self.serve_store(side);
                any |= self.write_lanes(side);
            }
            if !any {
                return Ok(());
            }
        }
    }

    fn handle_network(&mut self, event: Event) -> Result<(), SimulationError> {
        match event {
            Event::Incoming(connection) => self.wires.network.accept(connection, self.now),
            Event::Connected(connection) => self.handle_connected(connection),
            Event::Failed(connection, _) => self.handle_lost(connection, NEAR),
            Event::Readable { connection, side, bytes } => {
                self.handle_readable(connection, side_index(side), bytes)?;
            }
            Event::Writable { connection, side } => self.handle_writable(connection, side_index(side)),
            Event::Finished { connection, .. } => self.finish_direct(connection),
            Event::Reset { connection, side } => self.handle_lost(connection, side_index(side)),
            Event::Closed(connection) => self.wires.forget(connection),
        }
        Ok(())
    }

    fn handle_connected(&mut self, connection: ConnectionId) {
        if self.wires.lane(connection).is_some() {
            // TLS, and the hellos behind it.
            self.due.push(self.now + self.config.path.round_trip, Due::LaneUp(connection));
        } else {
            let (side, request) = (network_side(NEAR), REQUEST_BYTES as u64);
            self.wires.network.handle_written(connection, side, request, self.now);
        }
    }

    fn handle_readable(
        &mut self,
        connection: ConnectionId,
        side: usize,
        bytes: u64,
    ) -> Result<(), SimulationError> {
        if let Some(fetch) = self.direct.get(&connection).copied() {
            self.wires.network.handle_consumed(connection, network_side(side), bytes, self.now);
            let Some(fetch) = self.fetches.get_mut(fetch) else { return Ok(()) };
            if side == NEAR {
                fetch.receive_count(bytes as usize, self.now);
            } else {
                fetch.asked += bytes as usize;
                self.serve_direct(connection);
            }
            return Ok(());
        }
        let Some((lane, _)) = self.wires.lane(connection) else { return Ok(()) };
        let Some(input) = self.wires.arrive(connection, side, bytes, self.now) else { return Ok(()) };
        if let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) {
            gateway.link.handle_input(lane, input, self.now)?;
        }
        Ok(())
    }

    fn handle_writable(&mut self, connection: ConnectionId, side: usize) {
        if self.direct.contains_key(&connection) {
            self.serve_direct(connection);
        } else if let Some((lane, _)) = self.wires.lane(connection)
            && let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side))
        {
            gateway.ready.insert(lane);
        }
    }

    fn handle_lost(&mut self, connection: ConnectionId, side: usize) {
        if let Some(fetch) = self.direct.get(&connection).and_then(|fetch| self.fetches.get_mut(*fetch)) {
            fetch.is_given_up = true;
        } else if let Some((lane, _)) = self.wires.lane(connection)
            && let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side))
        {
            gateway.link.handle_lane_ended(lane, self.now);
        }
    }

    fn ask(&mut self, fetch: usize) -> Result<(), SimulationError> {
        let Some([near, _]) = &mut self.gateways else {
            let connection = self.wires.connect(DIRECT, self.now)?;
            self.direct.insert(connection, fetch);
            return Ok(());
        };
        let flow = near.ask(self.config.gateways.map(|config| config.plan), self.now)?;
        self.flows.insert(flow, fetch);
        Ok(())
    }

    fn serve_direct(&mut self, connection: ConnectionId) {
        let Some(fetch) = self.direct.get(&connection).and_then(|fetch| self.fetches.get_mut(*fetch)) else {
            return;
        };
        if fetch.asked < REQUEST_BYTES {
            return;
        }
        let far = network_side(FAR);
        let room = self.wires.network.room(connection, far);
        let len = fetch.serve(room as usize).len();
        self.wires.network.handle_written(connection, far, len as u64, self.now);
        if fetch.is_served() {
            self.wires.network.finish(connection, far, self.now);
        }
    }

    fn finish_direct(&mut self, connection: ConnectionId) {
        if let Some(fetch) = self.direct.get(&connection).and_then(|fetch| self.fetches.get_mut(*fetch)) {
            fetch.finished.get_or_insert(self.now);
            self.wires.network.finish(connection, network_side(NEAR), self.now);
        }
    }
}

impl Default for PathConfig {
    /// 10 Mbit/s and 50 ms, with as long a queue, no loss, CUBIC.
    fn default() -> Self {
        Self {
            rate_bits_per_s: 10_000_000,
            round_trip: Duration::from_millis(50),
            queue: Duration::from_millis(50),
            loss: 0.0,
            policy: Policy::Cubic,
            seed: 0,
        }
    }
}

impl PathConfig {
    /// Returns the settings of one side's outgoing link.
    fn params(&self, side: u64) -> LinkParams {
        LinkParams {
            rate_bits_per_s: Some(self.rate_bits_per_s),
            delay: self.round_trip / 2,
            loss: self.loss,
            queue: LinkQueue::Time(self.queue),
            seed: 2 * self.seed + side,
            ..LinkParams::default()
        }
    }
}

impl From<TooManyConnections> for SimulationError {
    fn from(_: TooManyConnections) -> Self {
        Self::Connections
    }
}

/// The side of the clients, with the store; it dials.
pub const NEAR: usize = 0;
/// The side of the servers.
pub const FAR: usize = 1;

/// The account of connections past the gateways.
const DIRECT: Account = Account(1);
/// How long gateways have at least before anything is asked for.
const MEETING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
