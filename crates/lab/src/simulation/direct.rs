//! Flows without gateways: connections of their own across the path, with bytes by their number.

use oncewire_netem::tcp::{Account, ConnectionId};

use super::wires::network_side;
use super::{Flow, Simulation};

impl Simulation {
    /// Gives the accepting application its connection.
    pub(super) fn accept_direct(&mut self, connection: ConnectionId) {
        let Some(flow) = self.direct_flow(connection) else { return };
        let side = 1 - flow.opener();
        flow.open(side);
        if flow.ready(side) > 0 {
            self.serve_direct(connection, side);
        }
    }

    /// Gives the opening application its connection.
    pub(super) fn handle_connected(&mut self, connection: ConnectionId) {
        let Some(flow) = self.direct_flow(connection) else { return };
        let side = flow.opener();
        flow.open(side);
        self.serve_direct(connection, side);
    }

    pub(super) fn read_direct(&mut self, connection: ConnectionId, side: usize, bytes: u64) {
        let now = self.now;
        self.wires.network.handle_consumed(connection, network_side(side), bytes, now);
        if let Some(flow) = self.direct_flow(connection) {
            flow.receive_count(side, bytes as usize, now);
        }
        if let Some(index) = self.direct.get(&connection).copied() {
            self.begin_turns(index, side);
        }
    }

    /// Writes more of a side's turns, as far as there is room.
    pub(super) fn serve_direct(&mut self, connection: ConnectionId, side: usize) {
        let (now, net_side) = (self.now, network_side(side));
        let room = self.wires.network.room(connection, net_side);
        let Some(flow) = self.direct_flow(connection) else { return };
        let was_ready = flow.ready(side) > 0;
        let len = flow.serve_count(side, usize::try_from(room).unwrap_or(usize::MAX));
        let finishes = flow.take_finish(side);
        if was_ready {
            // Without room this asks to be told of it.
            self.wires.network.handle_written(connection, net_side, len as u64, now);
        }
        if finishes {
            self.wires.network.finish(connection, net_side, now);
        }
    }

    /// Takes the end of the stream to a side.
    pub(super) fn finish_direct(&mut self, connection: ConnectionId, side: usize) {
        let now = self.now;
        let Some(flow) = self.direct_flow(connection) else { return };
        flow.receive_end(side, now);
        self.serve_direct(connection, side);
    }

    fn direct_flow(&mut self, connection: ConnectionId) -> Option<&mut Flow> {
        self.flows.get_mut(*self.direct.get(&connection)?)
    }
}

/// The account of connections past the gateways.
pub(super) const ACCOUNT: Account = Account(1);
