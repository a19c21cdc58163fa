//! A gateway: the daemon's link, in a shell with virtual time.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use bytes::Bytes;
use oncewire_codec::wanax::{NameKey, NamesConfig};
use oncewire_codec::wire::{Destination, FlowId, LaneId, LaneRole};
use oncewire_codec::{Now, Plan};
use oncewire_link::{Adapt, Event, Link, LinkConfig, OpenRefused, OpenRequest, Received};
use oncewire_netem::tcp::ConnectionId;

use super::clients::REQUEST_BYTES;
use super::store::ChunkStore;
use super::{Due, FAR, GatewayConfig, NEAR, Simulation, SimulationError};

/// One gateway.
pub(super) struct Gateway {
    pub(super) link: Link,
    pub(super) store: Option<ChunkStore>,
    /// Lanes with something to send, perhaps.
    pub(super) ready: BTreeSet<LaneId>,
}

/// Starts both gateways.
pub(super) fn pair(config: GatewayConfig, now: Now) -> [Gateway; 2] {
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
            instance: side as u64 + 1,
            secret: side as u64 + 7,
            first: side == NEAR,
            dialer: side == NEAR,
            log_capacity: config.log_memory,
            plan: config.plan,
            rate_limit: config.rate_limit,
            // There is no CPU time to save.
            adapt: Adapt::Off,
            initial_credit: config.window,
            names: Some(names),
            store: store.map(|_| STORE_ID),
            shed: store.is_some_and(|store| store.shed),
            ..LinkConfig::default()
        };
        Gateway {
            link: Link::new(link, now),
            store: store.map(|store| ChunkStore::new(&store)),
            ready: BTreeSet::new(),
        }
    })
}

impl Gateway {
    /// Opens a flow and asks for a file on it.
    pub(super) fn ask(&mut self, plan: Option<Plan>, now: Now) -> Result<FlowId, OpenRefused> {
        let request =
            OpenRequest { destination: Destination::from(SERVER), source: None, as_client: false, plan };
        let flow = self.link.open_flow(request, now)?;
        // A fresh flow takes bytes.
        let _ = self.link.handle_payload(flow, Bytes::from_static(&[b' '; REQUEST_BYTES]), now);
        Ok(flow)
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
                Event::FlowReadable(flow) if side == NEAR => self.read_file(flow)?,
                Event::FlowReadable(flow) => self.read_request(flow),
                Event::FlowWritable(flow) if side == FAR => self.serve_flow(flow),
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

    /// Writes the lanes' output while there is room; returns whether there was any.
    pub(super) fn write_lanes(&mut self, side: usize) -> bool {
        let now = self.now;
        let Some(gateway) = self.gateways.as_mut().and_then(|gateways| gateways.get_mut(side)) else {
            return false;
        };
        let mut any = false;
        while let Some(lane) = gateway.ready.pop_first() {
            let link = &mut gateway.link;
            self.wires.write(lane, side, now, |out| {
                let made = link.poll_transmit(lane, now, out);
                any |= made;
                made
            });
        }
        any
    }

    fn accept_flow(&mut self, side: usize, flow: FlowId) {
        let now = self.now;
        if let Some(gateway) = self.gateway(side) {
            gateway.link.answer_flow(flow, Ok(SERVER), now);
        }
    }

    /// Reads a client's incoming bytes.
    fn read_file(&mut self, flow: FlowId) -> Result<(), SimulationError> {
        let now = self.now;
        let Some(&index) = self.flows.get(&flow) else { return Ok(()) };
        let (Some([near, _]), Some(fetch)) = (&mut self.gateways, self.fetches.get_mut(index)) else {
            return Ok(());
        };
        while let Some(received) = near.link.poll_payload(flow, now) {
            match received {
                Received::Opened(Ok(_)) => {}
                Received::Data(bytes) => {
                    fetch.receive(&bytes, now).map_err(|changed| SimulationError::Changed {
                        fetch: index,
                        offset: changed.offset,
                    })?;
                    near.link.handle_consumed(flow, bytes.len(), now);
                }
                Received::Finished if fetch.received() == fetch.len() => {
                    fetch.finished = Some(now);
                    near.link.finish_flow(flow, now);
                }
                Received::Opened(Err(_)) | Received::Finished | Received::Reset(_) => {
                    return Err(SimulationError::Broken { fetch: index });
                }
            }
        }
        Ok(())
    }

    /// Reads a server's incoming bytes.
    fn read_request(&mut self, flow: FlowId) {
        let now = self.now;
        let fetch = self.flows.get(&flow).and_then(|fetch| self.fetches.get_mut(*fetch));
        let (Some([_, far]), Some(fetch)) = (&mut self.gateways, fetch) else { return };
        while let Some(received) = far.link.poll_payload(flow, now) {
            if let Received::Data(bytes) = received {
                fetch.asked += bytes.len();
                far.link.handle_consumed(flow, bytes.len(), now);
            }
        }
        self.serve_flow(flow);
    }

    /// Sends more of a file, as far as there is room.
    fn serve_flow(&mut self, flow: FlowId) {
        let now = self.now;
        let fetch = self.flows.get(&flow).and_then(|fetch| self.fetches.get_mut(*fetch));
        let (Some([_, far]), Some(fetch)) = (&mut self.gateways, fetch) else { return };
        if fetch.asked < REQUEST_BYTES || fetch.is_finished_serving {
            return;
        }
        while !fetch.is_served() {
            match far.link.handle_payload(flow, fetch.serve(READ_BYTES), now) {
                Ok(room) if room > 0 => {}
                _ => return,
            }
        }
        fetch.is_finished_serving = true;
        far.link.finish_flow(flow, now);
    }

    fn gateway(&mut self, side: usize) -> Option<&mut Gateway> {
        self.gateways.as_mut()?.get_mut(side)
    }
}

/// The clients' destination.
const SERVER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1)), 80);
/// A gateway's read size at a server.
const READ_BYTES: usize = 64 << 10;
/// A gateway's hint memory, if there is room.
const HINT_MEMORY: u64 = 64 << 20;
const STORE_ID: u64 = 1;
