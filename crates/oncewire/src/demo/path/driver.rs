//! The task with the model.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use oncewire_netem::tcp::congestion::Policy;
use oncewire_netem::tcp::{Account, ConnectionId, Event, Network, Side};
use oncewire_netem::{LinkCounters, Now};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, mpsc, oneshot};

use super::ends::{self, Delivery, EndOfPath};
use super::{PathTraffic, socket_for};

/// The requests of relays, sockets and observers to the driver.
#[derive(Debug)]
pub(super) enum Command {
    /// A relay accepted a connection.
    Open { stream: TcpStream, target: SocketAddr, policy: Policy, account: Account },
    /// The onward connection of the far side was made, or was not.
    Answered { connection: ConnectionId, result: io::Result<TcpStream> },
    /// An application's socket gave bytes, within the permits granted to it.
    Written { connection: ConnectionId, side: Side, bytes: Vec<u8> },
    /// An application's socket took bytes.
    Consumed { connection: ConnectionId, side: Side, bytes: u64 },
    /// An application ended its stream.
    Finish { connection: ConnectionId, side: Side },
    /// An application's socket was reset or failed.
    Reset { connection: ConnectionId, side: Side },
    /// Someone asks for an account's traffic.
    Traffic { account: Account, reply: oneshot::Sender<PathTraffic> },
    /// Someone asks for a link's counters.
    LinkCounters { side: Side, reply: oneshot::Sender<LinkCounters> },
}

/// Owns the model and the bytes inside it.
pub(super) struct Driver {
    network: Network,
    origin: Instant,
    flows: BTreeMap<ConnectionId, Flow>,
    commands: mpsc::UnboundedSender<Command>,
}

/// One connection across the path.
struct Flow {
    target: SocketAddr,
    /// The accepted socket, until the model has connected.
    waiting: Option<TcpStream>,
    near: Direction,
    far: Direction,
}

/// The bytes between one side's write and the other's read, and the writer's socket.
#[derive(Default)]
struct Direction {
    bytes: VecDeque<u8>,
    /// Bytes at the end of `bytes` not taken by the model yet.
    not_taken: u64,
    /// Permits not yet returned as bytes.
    granted: u64,
    finishing: bool,
    socket: Option<Socket>,
}

struct Socket {
    permits: Arc<Semaphore>,
    deliveries: mpsc::UnboundedSender<Delivery>,
}

impl Driver {
    pub(super) fn new(network: Network, commands: mpsc::UnboundedSender<Command>) -> Self {
        Self { network, origin: Instant::now(), flows: BTreeMap::new(), commands }
    }

    /// Runs until it is aborted.
    pub(super) async fn run(mut self, mut inbox: mpsc::UnboundedReceiver<Command>) {
        loop {
            let wake = self.network.poll_timeout().map(|at| tokio::time::Instant::from_std(self.origin + at));
            tokio::select! {
                command = inbox.recv() => {
                    let Some(command) = command else { return };
                    self.handle(command);
                    for _ in 0..COMMANDS_PER_WAKE {
                        let Ok(command) = inbox.try_recv() else { break };
                        self.handle(command);
                    }
                }
                () = tokio::time::sleep_until(wake.unwrap_or_else(tokio::time::Instant::now)), if wake.is_some() => {}
            }
            let now = self.now();
            self.network.handle_timeout(now);
            self.drain(now);
        }
    }

    fn now(&self) -> Now {
        self.origin.elapsed()
    }

    fn handle(&mut self, command: Command) {
        let now = self.now();
        match command {
            Command::Open { stream, target, policy, account } => {
                self.open(stream, target, policy, account, now);
            }
            Command::Answered { connection, result } => self.answer(connection, result, now),
            Command::Written { connection, side, bytes } => self.take(connection, side, &bytes, now),
            Command::Consumed { connection, side, bytes } => {
                self.network.handle_consumed(connection, side, bytes, now);
            }
            Command::Finish { connection, side } => {
                if let Some(flow) = self.flows.get_mut(&connection) {
                    flow.direction(side).finishing = true;
                }
                self.write(connection, side, now);
            }
            Command::Reset { connection, side } => {
                if let Some(flow) = self.flows.get_mut(&connection) {
                    flow.direction(side).socket = None;
                }
                self.network.reset(connection, side, now);
            }
            Command::Traffic { account, reply } => {
                let traffic = |side| self.network.traffic(account, side);
                // The observer may have gone.
                let _ = reply.send(PathTraffic { up: traffic(Side::Near), down: traffic(Side::Far) });
            }
            Command::LinkCounters { side, reply } => {
                let _ = reply.send(self.network.link_counters(side));
            }
        }
    }

    fn open(&mut self, stream: TcpStream, target: SocketAddr, policy: Policy, account: Account, now: Now) {
        match self.network.connect(Side::Near, policy, account, now) {
            Ok(id) => {
                let flow = Flow {
                    target,
                    waiting: Some(stream),
                    near: Direction::default(),
                    far: Direction::default(),
                };
                self.flows.insert(id, flow);
            }
            Err(error) => {
                tracing::warn!(%error, "emulated path: connection reset");
                ends::reset(&stream);
            }
        }
    }

    fn answer(&mut self, connection: ConnectionId, result: io::Result<TcpStream>, now: Now) {
        match result {
            Ok(stream) if self.flows.contains_key(&connection) => {
                self.network.accept(connection, now);
                self.attach(connection, Side::Far, stream);
            }
            // The opener is gone.
            Ok(stream) => ends::reset(&stream),
            Err(error) => {
                tracing::debug!(%error, "emulated path: onward connection failed");
                self.network.refuse(connection, now);
            }
        }
    }

    fn attach(&mut self, connection: ConnectionId, side: Side, stream: TcpStream) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let (deliveries, to_write) = mpsc::unbounded_channel();
        let permits = Arc::new(Semaphore::new(0));
        flow.direction(side).socket = Some(Socket { permits: permits.clone(), deliveries });
        let end = EndOfPath { connection, side, commands: self.commands.clone(), permits };
        tokio::spawn(end.run(stream, to_write));
        self.grant(connection, side);
    }

    fn take(&mut self, connection: ConnectionId, side: Side, bytes: &[u8], now: Now) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let direction = flow.direction(side);
        direction.bytes.extend(bytes);
        direction.not_taken += bytes.len() as u64;
        direction.granted = direction.granted.saturating_sub(bytes.len() as u64);
        self.write(connection, side, now);
    }

    /// Hands bytes to the model, and grants its socket the remaining room.
    fn write(&mut self, connection: ConnectionId, side: Side, now: Now) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let direction = flow.direction(side);
        // Even with nothing to hand over: the model then tells when there is room for a grant.
        direction.not_taken -= self.network.handle_written(connection, side, direction.not_taken, now);
        if direction.not_taken == 0 && direction.finishing {
            self.network.finish(connection, side, now);
        }
        self.grant(connection, side);
    }

    fn grant(&mut self, connection: ConnectionId, side: Side) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let direction = flow.direction(side);
        let Some(socket) = &direction.socket else { return };
        let room = self.network.room(connection, side);
        let more = room.saturating_sub(direction.not_taken + direction.granted);
        // Small grants would turn a bulk stream into small reads.
        if more >= SMALLEST_GRANT {
            direction.granted += more;
            socket.permits.add_permits(usize::try_from(more).unwrap_or(0));
        }
    }

    fn drain(&mut self, now: Now) {
        let mut readable: BTreeMap<(ConnectionId, Side), u64> = BTreeMap::new();
        while let Some(event) = self.network.poll_event() {
            match event {
                Event::Readable { connection, side, bytes } => {
                    *readable.entry((connection, side)).or_default() += bytes;
                    continue;
                }
                Event::Writable { connection, side } => {
                    self.write(connection, side, now);
                    continue;
                }
                _ => {}
            }
            // Bytes go first, so no end overtakes them.
            for ((connection, side), bytes) in std::mem::take(&mut readable) {
                self.deliver(connection, side, bytes);
            }
            self.handle_event(event);
        }
        for ((connection, side), bytes) in readable {
            self.deliver(connection, side, bytes);
        }
    }

    fn handle_event(&mut self, event: Event) {
        match event {
            Event::Incoming(connection) => {
                if let Some(flow) = self.flows.get(&connection) {
                    tokio::spawn(connect_onward(connection, flow.target, self.commands.clone()));
                }
            }
            Event::Connected(connection) => {
                let waiting = self.flows.get_mut(&connection).and_then(|flow| flow.waiting.take());
                if let Some(stream) = waiting {
                    self.attach(connection, Side::Near, stream);
                }
            }
            Event::Failed(connection, error) => {
                tracing::debug!(%error, "emulated path: connection failed");
                if let Some(stream) = self.flows.get_mut(&connection).and_then(|flow| flow.waiting.take()) {
                    ends::reset(&stream);
                }
            }
            Event::Finished { connection, side } => self.hand_over(connection, side, Delivery::Finish),
            Event::Reset { connection, side } => self.hand_over(connection, side, Delivery::Reset),
            Event::Closed(connection) => {
                self.flows.remove(&connection);
            }
            Event::Readable { .. } | Event::Writable { .. } => {}
        }
    }

    /// Moves bytes out of the model to the socket at the reading side.
    fn deliver(&mut self, connection: ConnectionId, side: Side, bytes: u64) {
        let Some(flow) = self.flows.get_mut(&connection) else { return };
        let queue = &mut flow.direction(side.other()).bytes;
        let count = usize::try_from(bytes).unwrap_or(usize::MAX).min(queue.len());
        let mut taken = Vec::with_capacity(count);
        let (first, second) = queue.as_slices();
        taken.extend(first.iter().take(count));
        taken.extend(second.iter().take(count - taken.len()));
        queue.drain(..count);
        self.hand_over(connection, side, Delivery::Bytes(taken));
    }

    fn hand_over(&mut self, connection: ConnectionId, side: Side, delivery: Delivery) {
        let socket = self.flows.get_mut(&connection).and_then(|flow| flow.direction(side).socket.as_ref());
        if let Some(socket) = socket {
            // A closed socket says so with a command of its own.
            let _ = socket.deliveries.send(delivery);
        }
    }
}

impl Flow {
    /// The direction with `side` as its writer.
    fn direction(&mut self, side: Side) -> &mut Direction {
        match side {
            Side::Near => &mut self.near,
            Side::Far => &mut self.far,
        }
    }
}

async fn connect_onward(
    connection: ConnectionId,
    target: SocketAddr,
    commands: mpsc::UnboundedSender<Command>,
) {
    let result = match socket_for(target) {
        Ok(socket) => socket.connect(target).await,
        Err(error) => Err(error),
    };
    // The driver ends before its sockets only when the path is torn down.
    let _ = commands.send(Command::Answered { connection, result });
}

/// Commands handled before the model is looked after again.
const COMMANDS_PER_WAKE: usize = 256;
/// The least room for another grant to a socket.
const SMALLEST_GRANT: u64 = 16 << 10;
