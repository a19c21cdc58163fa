//! A gateway: the daemon's link, in a shell with virtual time.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;

use oncewire_codec::Now;
use oncewire_codec::wanax::{NameKey, NamesConfig};
use oncewire_codec::wire::{Destination, FlowId, LaneId, LaneRole};
use oncewire_link::{Adapt, Event, Link, LinkConfig, OpenRequest, Received};
use oncewire_netem::tcp::ConnectionId;

use super::host::count_frames;
use super::store::ChunkStore;
use super::wires::Made;
use super::{Carrier, Due, FAR, GatewayConfig, NEAR, Simulation, SimulationError};

/// One gateway.
pub(super) struct Gateway {
    pub(super) link: Link,
    pub(super) store: Option<ChunkStore>,
    /// Lanes with something to send, perhaps.
    pub(super) ready: BTreeSet<LaneId>,
}

/// Starts both gateways.
pub(super) fn pair(config: &GatewayConfig, now: Now) -> [Gateway; 2] {
    [NEAR, FAR].map(|side| {
        let store = config.store.filter(|_| side == NEAR);
        let names = NamesConfig {
            key: NameKey::new([side as u8 + 1; 32]),
            group: None,
            shape: config.shape,
            hint_memory: HINT_MEMORY,
            saved: None,
            clock_secs: 0,
        };
        let link = LinkConfig {
            names: Some(names),
            store: store.map(|_| STORE_ID),
            shed: store.is_some_and(|store| store.shed),
            ..link_config(config, side)
        };
        Gateway {
            link: Link::new(link, now),
            store: store.map(|store| ChunkStore::new(&store)),
            ready: BTreeSet::new(),
        }
    })
}

/// Returns the settings of a side's end, without names and store.
pub(super) fn link_config(config: &GatewayConfig, side: usize) -> LinkConfig {
    LinkConfig {
        instance: side as u64 + 1,
        secret: side as u64 + 7,
        first: side == NEAR,
        dialer: side == NEAR,
        codecs: vec![Arc::clone(&config.codec)],
        log_capacity: config.log_memory,
        plan: config.plan.unwrap_or_default(),
        rate_limit: config.rate_limit,
        // A host's speed is fixed: its effort stays as planned.
        adapt: Adapt::Off,
        initial_credit: config.window,
        ..LinkConfig::default()
    }
}

impl Simulation {
    /// Executes a link's requests to its shell; returns whether there were any.
    pub(super) fn handle_link_events(&mut self, side: usize) -> Result<bool, SimulationError> {
        let (mut any, now) = (false, self.now);
        while let Some(event) = self.gateway(side).and_then(|gateway| gateway.link.poll_event()) {
            any = true;
            match event {
                Event::LaneReady(lane) => drop(self.gateway(side).map(|gateway| gateway.ready.insert(lane))),
                Event::CloseLane(lane, _) => self.wires.cut(lane, side, self.now),
                Event::LookAtLane(lane) => {
                    if let Some(report) = self.wires.report(lane, side)
                        && let Some(gateway) = self.gateway(side)
                    {
                        gateway.link.handle_lane_report(lane, &report, now);
                    }
                }
                Event::LanesWanted { role, count } => {
                    for _ in self.wires.dialling(role)..count {
                        self.wires.dial(role, self.now)?;
                    }
                }
                Event::FlowOffered { flow, .. } => self.accept_flow(side, flow),
                Event::FlowReadable(flow) => self.read_flow(flow, side)?,
                Event::FlowWritable(flow) => self.serve_flow(flow, side),
                _ => {}
            }
        }
        Ok(any)
    }

    /// Exchanges hellos.
    pub(super) fn raise_lane(&mut self, connection: ConnectionId) -> Result<(), SimulationError> {
        let (Some([near, far]), Some((lane, role))) = (&mut self.gateways, self.wires.lane(connection))
        else {
            return Ok(());
        };
        self.wires.set_up(connection);
        let theirs = far.link.hello(LaneId(0), LaneRole::Control);
        let ours = near.link.hello(lane, role);
        near.link.handle_lane_up(ours.instance, &theirs, lane, role, true, self.now)?;
        far.link.handle_lane_up(theirs.instance, &ours, lane, role, false, self.now)?;
        Ok(())
    }

    /// Hands requests to the store, and lets its disks begin.
    pub(super) fn serve_store(&mut self, side: usize) {
        let now = self.now;
        let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) else {
            return;
        };
        let Some(store) = &mut gateway.store else { return };
        let mut any = false;
        while let Some(request) = gateway.link.poll_chunk_store() {
            any = true;
            if let Some(reply) = store.handle(request, now) {
                gateway.link.handle_store(reply, now);
            }
        }
        for (disk, at) in store.begin(now) {
            any = true;
            self.due.push(at, Due::DiskDone(disk));
        }
        if any {
            gateway.link.handle_store_state(store.state(now), now);
        }
    }

    /// Answers a finished read.
    pub(super) fn finish_read(&mut self, disk: usize) {
        let now = self.now;
        let Some([near, _]) = &mut self.gateways else { return };
        let Some(store) = &mut near.store else { return };
        for reply in store.finish(disk, now) {
            near.link.handle_store(reply, now);
            near.link.handle_store_state(store.state(now), now);
        }
    }

    /// Hands a side's unread bytes to its link, until its host is busy; returns whether there were any.
    pub(super) fn read_lanes(&mut self, side: usize) -> Result<bool, SimulationError> {
        let mut any = false;
        while !self.hosts[side].is_busy(self.now)
            && let Some((connection, bytes)) = self.unread[side].pop_front()
        {
            any = true;
            self.read_lane(connection, side, bytes)?;
            self.handle_link_events(side)?;
        }
        Ok(any)
    }

    /// Hands bytes received on a connection to the link.
    pub(super) fn read_lane(
        &mut self,
        connection: ConnectionId,
        side: usize,
        bytes: u64,
    ) -> Result<(), SimulationError> {
        let now = self.now;
        let Some((lane, _)) = self.wires.lane(connection) else { return Ok(()) };
        let Some(input) = self.wires.arrive(connection, side, bytes, now) else { return Ok(()) };
        let host = &mut self.hosts[side];
        if host.is_modelled() {
            host.receive(count_frames(input), now);
        }
        if let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) {
            gateway.link.handle_input(lane, input, now)?;
        }
        self.await_host(side);
        Ok(())
    }

    /// Writes the lanes' output while there is room and the host is free; returns whether there was any.
    pub(super) fn write_lanes(&mut self, side: usize) -> bool {
        let now = self.now;
        let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) else {
            return false;
        };
        let host = &mut self.hosts[side];
        let mut any = false;
        while !host.is_busy(now)
            && let Some(lane) = gateway.ready.pop_first()
        {
            let link = &mut gateway.link;
            self.wires.write(lane, side, now, |out| {
                let before = if host.is_modelled() { link.stats().delivered_out } else { 0 };
                let made = link.poll_transmit(lane, now, out);
                any |= made;
                if host.is_modelled() {
                    host.encode(link.stats().delivered_out - before, out, now);
                }
                Made { any: made, leaves_later: host.is_busy(now) }
            });
            if host.is_busy(now) {
                gateway.ready.insert(lane);
            }
        }
        self.await_host(side);
        any
    }

    /// Comes back when a busy host is free.
    fn await_host(&mut self, side: usize) {
        let host = &self.hosts[side];
        if host.is_busy(self.now) {
            self.due.push(host.free_at(self.now), Due::HostFree);
        }
    }

    /// Opens a flow on a link.
    pub(super) fn open_on_link(&mut self, index: usize, opener: usize) -> Result<(), SimulationError> {
        let (now, plan) = (self.now, self.config.gateways.as_ref().and_then(|config| config.plan));
        let destination = Destination::from(SERVER);
        let Some(gateway) = self.gateway(opener) else { return Ok(()) };
        let request = OpenRequest { destination, source: None, as_client: false, plan };
        let id = gateway.link.open_flow(request, now)?;
        self.by_id.insert(id, index);
        self.carriers.insert(index, Carrier::Link(id));
        if let Some(flow) = self.flows.get_mut(index) {
            flow.open(opener);
        }
        Ok(())
    }

    fn accept_flow(&mut self, side: usize, id: FlowId) {
        let now = self.now;
        if let Some(gateway) = self.gateway(side) {
            gateway.link.answer_flow(id, Ok(SERVER), now);
        }
        if let Some(flow) = self.by_id.get(&id).and_then(|flow| self.flows.get_mut(*flow)) {
            flow.open(side);
            self.serve_flow(id, side);
        }
    }

    /// Reads an application's incoming bytes.
    fn read_flow(&mut self, id: FlowId, side: usize) -> Result<(), SimulationError> {
        let now = self.now;
        let Some(&index) = self.by_id.get(&id) else { return Ok(()) };
        let Some(flow) = self.flows.get_mut(index) else { return Ok(()) };
        let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) else {
            return Ok(());
        };
        let host = &mut self.hosts[side];
        while let Some(received) = gateway.link.poll_payload(id, now) {
            match received {
                Received::Opened(Ok(_)) => {}
                Received::Data(bytes) => {
                    host.decode(bytes.len() as u64, now);
                    flow.receive(side, &bytes, host.free_at(now)).map_err(|changed| {
                        SimulationError::Changed { flow: index, offset: changed.offset }
                    })?;
                    gateway.link.handle_consumed(id, bytes.len(), now);
                }
                Received::Finished if flow.receive_end(side, host.free_at(now)) => {}
                _ if flow.is_over() => {}
                Received::Opened(Err(_)) | Received::Finished | Received::Reset(_) => {
                    return Err(SimulationError::Broken { flow: index });
                }
            }
        }
        self.await_host(side);
        self.begin_turns(index, side);
        Ok(())
    }

    /// Sends more of a side's turns, as far as there is room.
    pub(super) fn serve_flow(&mut self, id: FlowId, side: usize) {
        let now = self.now;
        let flow = self.by_id.get(&id).and_then(|flow| self.flows.get_mut(*flow));
        let gateway = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side));
        let (Some(gateway), Some(flow)) = (gateway, flow) else { return };
        while flow.ready(side) > 0 {
            match gateway.link.handle_payload(id, flow.serve(side, READ_BYTES), now) {
                Ok(room) if room > 0 => {}
                _ => return,
            }
        }
        if flow.take_finish(side) {
            gateway.link.finish_flow(id, now);
        }
    }

    pub(super) fn gateway(&mut self, side: usize) -> Option<&mut Gateway> {
        self.gateways.as_mut()?.get_mut(side)
    }
}

/// The destination of all flows.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 80);
/// A gateway's read size at an application.
const READ_BYTES: usize = 64 << 10;
/// A gateway's hint memory, if there is room.
const HINT_MEMORY: u64 = 64 << 20;
const STORE_ID: u64 = 1;
