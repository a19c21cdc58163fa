//! Any codec between two modelled hosts in virtual time.
//!
//! Links and codecs are those of the daemon, or one's own by a [`CodecFactory`](oncewire_link::CodecFactory). Modelled
//! are the path (`oncewire-netem`: rate, delay, queue, loss, reordering, and TCP with slow start, common to all lanes
//! and all direct connections), the hosts' CPU ([`HostConfig`]), the disks of the near gateway's chunk store
//! ([`DiskParams`]) and the applications ([`FlowPlan`]). Lanes write records as the daemon's, and TLS hands out whole
//! ones. Not modelled: the bytes of TLS's handshake (its round trip is), and the networks behind the gateways; they
//! cost no time. A codec of single packets crosses the path without TCP and without a link: [`datagrams`].
//!
//! Time passes from event to event, so the same configuration gives the same [`Report`] on every machine.

mod config;
pub mod datagrams;
mod direct;
mod disk;
mod flows;
mod gateway;
mod host;
mod queue;
mod report;
mod store;
mod trace;
mod wires;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::Now;
use oncewire_link::{ConfigError, FlowId, LaneRefused, LinkStats, OpenRefused, ProtocolError};
use oncewire_netem::ParamsError;
use oncewire_netem::tcp::{ConnectionId, Event, TooManyConnections, Traffic};

pub use config::{GatewayConfig, PathConfig, SimulationConfig, StoreConfig};
pub use disk::{DiskParams, Health};
pub use flows::{Flow, FlowPlan, Turn};
use gateway::Gateway;
use host::Host;
pub use host::HostConfig;
use queue::Queue;
pub use report::{ClassReport, DirectionReport, Report};
pub use store::StoreCounts;
pub use trace::{TraceError, TraceProblem, parse_trace};
use wires::{Wires, network_side, side_index};

/// A simulation, and its results so far.
pub struct Simulation {
    config: SimulationConfig,
    now: Now,
    due: Queue<Due>,
    wires: Wires,
    hosts: [Host; 2],
    gateways: Option<[Gateway; 2]>,
    flows: Vec<Flow>,
    carriers: BTreeMap<usize, Carrier>,
    by_id: BTreeMap<FlowId, usize>,
    direct: BTreeMap<ConnectionId, usize>,
    /// Bytes on lanes that a busy host has not read.
    unread: [VecDeque<(ConnectionId, u64)>; 2],
    /// When the gateways had met, and the bytes on the path until then.
    met: Now,
    met_bytes: [u64; 2],
}

/// The carrier of an open flow.
#[derive(Clone, Copy, Debug)]
enum Carrier {
    Link(FlowId),
    Direct(ConnectionId),
}

/// Why a simulation did not go on; always a mistake in the code or in the configuration.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// There is no such path.
    #[error(transparent)]
    Path(#[from] ParamsError),
    /// No link has these settings.
    #[error("no link has these settings: {0}")]
    Config(#[from] ConfigError),
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
    /// An application was given other bytes than the other sent.
    #[error("flow {flow} came changed at byte {offset}")]
    Changed {
        /// The index of the flow.
        flow: usize,
        /// The offset of the first difference.
        offset: usize,
    },
    /// A stream ended otherwise than in order.
    #[error("flow {flow} was broken off")]
    Broken {
        /// The index of the flow.
        flow: usize,
    },
    /// Not all flows ended in the time given.
    #[error("flow {flow} did not end in time")]
    Stuck {
        /// The first stuck one.
        flow: usize,
    },
}

/// Events with a time of their own.
enum Due {
    /// A flow is opened.
    Open(usize),
    /// An application has thought about its next turn.
    Turn(usize, usize),
    /// Both ends of a lane have each other's hello.
    LaneUp(ConnectionId),
    /// A disk is done with its current request.
    DiskDone(usize),
    /// A host may be done with its work.
    HostFree,
}

impl Simulation {
    /// Starts both gateways and lets them meet.
    ///
    /// # Errors
    /// An impossible path, or settings of no link: a codec for packets, for one.
    pub fn new(config: SimulationConfig) -> Result<Self, SimulationError> {
        let now = Now::from_secs(100);
        if let Some(config) = &config.gateways {
            [NEAR, FAR].into_iter().try_for_each(|side| gateway::link_config(config, side).check())?;
        }
        let mut simulation = Self {
            now,
            due: Queue::default(),
            wires: Wires::new(config.path)?,
            hosts: config.hosts.map(Host::new),
            gateways: config.gateways.as_ref().map(|config| gateway::pair(config, now)),
            flows: Vec::new(),
            carriers: BTreeMap::new(),
            by_id: BTreeMap::new(),
            direct: BTreeMap::new(),
            unread: Default::default(),
            met: now,
            met_bytes: [0; 2],
            config,
        };
        // Lanes are dialled one after the other, and the round trip is learnt from pings.
        simulation.pass(MEETING.max(20 * simulation.config.path.round_trip))?;
        simulation.met = simulation.now;
        simulation.met_bytes = [NEAR, FAR].map(|side| simulation.wire_bytes(side));
        Ok(simulation)
    }

    /// Returns the virtual time.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Lets a client ask for `file` after some time; returns the number of the flow.
    pub fn fetch(&mut self, file: Bytes, after: Duration) -> usize {
        self.open(FlowPlan::fetch(Bytes::new(), file), after)
    }

    /// Opens a flow after some time; returns its number.
    pub fn open(&mut self, plan: FlowPlan, after: Duration) -> usize {
        let (flow, at) = (self.flows.len(), self.now + after);
        self.flows.push(Flow::new(plan, at));
        self.due.push(at, Due::Open(flow));
        flow
    }

    /// Returns all flows, by number.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// Returns the results so far, without the gateways' meeting.
    pub fn report(&self) -> Report {
        Report::new(self)
    }

    /// Goes on until all flows have ended, or were given up by applications without gateways.
    ///
    /// # Errors
    /// An impossible event, or [`SimulationError::Stuck`] if it takes longer than `limit`.
    pub fn run(&mut self, limit: Duration) -> Result<(), SimulationError> {
        let end = self.now + limit;
        loop {
            match self.flows.iter().position(|flow| !flow.is_over()) {
                None => return Ok(()),
                Some(flow) if !self.step(end)? => return Err(SimulationError::Stuck { flow }),
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
                Due::Open(flow) => self.open_flow(flow)?,
                Due::Turn(flow, side) => self.begin_turns(flow, side),
                Due::LaneUp(connection) => self.raise_lane(connection)?,
                Due::DiskDone(disk) => self.finish_read(disk),
                Due::HostFree => {}
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
                any |= self.read_lanes(side)?;
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
            Event::Incoming(connection) => {
                self.wires.network.accept(connection, self.now);
                self.accept_direct(connection);
            }
            Event::Connected(connection) if self.wires.lane(connection).is_some() => {
                // TLS, and the hellos behind it.
                self.due.push(self.now + self.config.path.round_trip, Due::LaneUp(connection));
            }
            Event::Connected(connection) => self.handle_connected(connection),
            Event::Failed(connection, _) => self.handle_lost(connection, NEAR),
            Event::Readable { connection, side, bytes } => {
                self.handle_readable(connection, side_index(side), bytes)?;
            }
            Event::Writable { connection, side } => self.handle_writable(connection, side_index(side)),
            Event::Finished { connection, side } => self.finish_direct(connection, side_index(side)),
            Event::Reset { connection, side } => self.handle_lost(connection, side_index(side)),
            Event::Closed(connection) => self.wires.forget(connection),
        }
        Ok(())
    }

    fn handle_readable(
        &mut self,
        connection: ConnectionId,
        side: usize,
        bytes: u64,
    ) -> Result<(), SimulationError> {
        if self.direct.contains_key(&connection) {
            self.read_direct(connection, side, bytes);
        } else if self.hosts[side].is_modelled() {
            self.unread[side].push_back((connection, bytes));
        } else {
            self.read_lane(connection, side, bytes)?;
        }
        Ok(())
    }

    fn handle_writable(&mut self, connection: ConnectionId, side: usize) {
        if self.direct.contains_key(&connection) {
            self.serve_direct(connection, side);
        } else if let Some((lane, _)) = self.wires.lane(connection)
            && let Some(gateway) = self.gateway(side)
        {
            gateway.ready.insert(lane);
        }
    }

    fn handle_lost(&mut self, connection: ConnectionId, side: usize) {
        let now = self.now;
        if let Some(flow) = self.direct.get(&connection).and_then(|flow| self.flows.get_mut(*flow)) {
            flow.is_given_up = true;
        } else if let Some((lane, _)) = self.wires.lane(connection)
            && let Some(gateway) = self.gateway(side)
        {
            gateway.link.handle_lane_ended(lane, now);
        }
    }

    /// Opens a flow by its gateway, or through.
    fn open_flow(&mut self, flow: usize) -> Result<(), SimulationError> {
        let Some(opener) = self.flows.get(flow).map(Flow::opener) else { return Ok(()) };
        if self.gateways.is_some() {
            self.open_on_link(flow, opener)?;
        } else {
            let connection = self.wires.connect(direct::ACCOUNT, opener, self.now)?;
            self.direct.insert(connection, flow);
            self.carriers.insert(flow, Carrier::Direct(connection));
        }
        for side in [opener, 1 - opener] {
            self.begin_turns(flow, side);
        }
        Ok(())
    }

    /// Begins a side's possible turns, and hands their bytes over.
    fn begin_turns(&mut self, index: usize, side: usize) {
        let Some(flow) = self.flows.get_mut(index) else { return };
        if let Some(until) = flow.begin_turns(side, self.now) {
            self.due.push(until, Due::Turn(index, side));
        }
        match self.carriers.get(&index) {
            Some(Carrier::Link(id)) => self.serve_flow(*id, side),
            Some(Carrier::Direct(connection)) => self.serve_direct(*connection, side),
            None => {}
        }
    }
}

impl From<TooManyConnections> for SimulationError {
    fn from(_: TooManyConnections) -> Self {
        Self::Connections
    }
}

/// The side with the store; it dials.
pub const NEAR: usize = 0;
/// The other side.
pub const FAR: usize = 1;

/// How long gateways have at least before anything is asked for.
const MEETING: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests;
