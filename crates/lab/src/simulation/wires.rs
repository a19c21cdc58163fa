//! Lanes over modelled TCP connections, with their bytes kept until arrival.

use std::collections::BTreeMap;

use bytes::{BufMut as _, BytesMut};
use oncewire_codec::Now;
use oncewire_codec::wire::{LaneId, LaneRole};
use oncewire_link::{LaneReport, most_unsent, records};
use oncewire_netem::ParamsError;
use oncewire_netem::tcp::{Account, ConnectionId, MSS, Network, Side, TooManyConnections};

use super::{NEAR, PathConfig};

/// The path, and the bytes on their way on each lane.
pub(super) struct Wires {
    pub(super) network: Network,
    path: PathConfig,
    lanes: BTreeMap<ConnectionId, Wire>,
    names: BTreeMap<LaneId, ConnectionId>,
    next_lane: u64,
}

/// A lane's connection.
struct Wire {
    lane: LaneId,
    role: LaneRole,
    up: bool,
    ends: [End; 2],
}

/// Bytes sent and received by one side of a lane.
#[derive(Default)]
struct End {
    /// Made by the link, and not yet taken by the connection.
    unsent: BytesMut,
    /// Written, and not yet arrived.
    under_way: BytesMut,
    /// Arrived, and no whole record yet.
    sealed: BytesMut,
    /// Out of its records, and no whole frame yet.
    input: BytesMut,
}

impl Wires {
    pub(super) fn new(path: PathConfig) -> Result<Self, ParamsError> {
        let network = Network::new(path.params(0), path.params(1))?;
        Ok(Self { network, path, lanes: BTreeMap::new(), names: BTreeMap::new(), next_lane: 1 })
    }

    /// Opens a connection from a side, for `account`.
    pub(super) fn connect(
        &mut self,
        account: Account,
        opener: usize,
        now: Now,
    ) -> Result<ConnectionId, TooManyConnections> {
        self.network.connect(network_side(opener), self.path.policy, account, now)
    }

    /// Dials a lane.
    pub(super) fn dial(&mut self, role: LaneRole, now: Now) -> Result<(), TooManyConnections> {
        let connection = self.connect(LANES, NEAR, now)?;
        let lane = LaneId(self.next_lane);
        self.next_lane += 1;
        for side in [Side::Near, Side::Far] {
            self.network.limit_unsent(connection, side, most_unsent(role).into(), now);
        }
        self.lanes.insert(connection, Wire { lane, role, up: false, ends: Default::default() });
        self.names.insert(lane, connection);
        Ok(())
    }

    /// Returns how many lanes of a role are being dialled.
    pub(super) fn dialling(&self, role: LaneRole) -> u32 {
        self.lanes.values().filter(|wire| wire.role == role && !wire.up).count() as u32
    }

    /// Returns the lane of a connection.
    pub(super) fn lane(&self, connection: ConnectionId) -> Option<(LaneId, LaneRole)> {
        self.lanes.get(&connection).map(|wire| (wire.lane, wire.role))
    }

    /// Notes the exchange of hellos.
    pub(super) fn set_up(&mut self, connection: ConnectionId) {
        if let Some(wire) = self.lanes.get_mut(&connection) {
            wire.up = true;
        }
    }

    /// Takes bytes received by a side; returns all bytes for it to work on.
    pub(super) fn arrive(
        &mut self,
        connection: ConnectionId,
        side: usize,
        bytes: u64,
        now: Now,
    ) -> Option<&mut BytesMut> {
        self.network.handle_consumed(connection, network_side(side), bytes, now);
        let wire = self.lanes.get_mut(&connection)?;
        let [near, far] = &mut wire.ends;
        let (from, to) = if side == NEAR { (far, near) } else { (near, far) };
        let len = (bytes as usize).min(from.under_way.len());
        to.sealed.extend_from_slice(&from.under_way.split_to(len));
        open(&mut to.sealed, &mut to.input);
        Some(&mut to.input)
    }

    /// Writes the output of a side of a lane, filled up by `make` while there is room. Frames that leave later stay
    /// for the next call.
    pub(super) fn write(
        &mut self,
        lane: LaneId,
        side: usize,
        now: Now,
        mut make: impl FnMut(&mut Vec<u8>) -> Made,
    ) {
        let Some(connection) = self.names.get(&lane).copied() else { return };
        let Some(wire) = self.lanes.get_mut(&connection) else { return };
        let Some(end) = wire.ends.get_mut(side) else { return };
        loop {
            if end.unsent.is_empty() && self.network.room(connection, network_side(side)) > 0 {
                let mut frames = Vec::new();
                let made = make(&mut frames);
                seal(&frames, &mut end.unsent);
                if !made.any || made.leaves_later {
                    return;
                }
            }
            let room = self.network.room(connection, network_side(side));
            let len = (room as usize).min(end.unsent.len());
            end.under_way.extend_from_slice(&end.unsent.split_to(len));
            // Without room this asks to be told of it.
            self.network.handle_written(connection, network_side(side), len as u64, now);
            if len == 0 {
                return;
            }
        }
    }

    /// Returns a kernel's view of a lane's connection at a side.
    pub(super) fn report(&self, lane: LaneId, side: usize) -> Option<LaneReport> {
        let connection = self.names.get(&lane)?;
        let report = self.network.report(*connection, network_side(side))?;
        let bytes = |segments: u64| segments * u64::from(MSS);
        Some(LaneReport {
            window: bytes(report.window),
            threshold: report.slow_start_threshold.map(bytes),
            bytes_per_s: (report.segments_per_s * f64::from(MSS)) as u64,
            least_round_trip: report.least_rtt.unwrap_or_default(),
            outstanding: report.outstanding,
        })
    }

    /// Forgets a lane given up by a side; the other side hears of it.
    pub(super) fn cut(&mut self, lane: LaneId, side: usize, now: Now) {
        if let Some(connection) = self.names.get(&lane) {
            self.network.reset(*connection, network_side(side), now);
        }
    }

    /// Forgets a connection closed for both sides.
    pub(super) fn forget(&mut self, connection: ConnectionId) {
        if let Some(wire) = self.lanes.remove(&connection) {
            self.names.remove(&wire.lane);
        }
    }
}

/// The outcome of asking a link for frames.
pub(super) struct Made {
    /// Whether there were any.
    pub(super) any: bool,
    /// Whether the host still works on them.
    pub(super) leaves_later: bool,
}

/// Puts frames into records, as long as the daemon's.
fn seal(frames: &[u8], into: &mut BytesMut) {
    for record in records(frames) {
        into.put_u32(record.len() as u32);
        into.extend_from_slice(record);
        into.put_bytes(0, RECORD_BYTES - HEADER);
    }
}

/// Takes whole records out of the received bytes: TLS hands out nothing of a record before its last byte.
fn open(sealed: &mut BytesMut, into: &mut BytesMut) {
    while let Some((header, rest)) = sealed.split_first_chunk::<HEADER>() {
        let len = u32::from_be_bytes(*header) as usize;
        if rest.len() < len + RECORD_BYTES - HEADER {
            return;
        }
        let record = sealed.split_to(len + RECORD_BYTES);
        into.extend_from_slice(&record[HEADER..HEADER + len]);
    }
}

/// A record's overhead: header, type and tag of TLS 1.3.
const RECORD_BYTES: usize = 22;
/// How much of it stands in front.
const HEADER: usize = 4;

/// The account of lanes.
pub(super) const LANES: Account = Account(0);

/// Returns the model's name of a side.
pub(super) fn network_side(side: usize) -> Side {
    if side == NEAR { Side::Near } else { Side::Far }
}

/// Returns the index of one of the model's sides.
pub(super) fn side_index(side: Side) -> usize {
    match side {
        Side::Near => 0,
        Side::Far => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn record_is_handed_out_with_its_last_byte() {
        let (frames, mut wire, mut input) = (vec![0xff; 20_000], BytesMut::new(), BytesMut::new());
        seal(&frames, &mut wire);
        assert_eq!(wire.len(), frames.len() + 2 * RECORD_BYTES);
        let mut arrived = wire.split_to(10_000 + RECORD_BYTES - 1);
        open(&mut arrived, &mut input);
        assert!(input.is_empty());
        arrived.unsplit(wire);
        open(&mut arrived, &mut input);
        assert_eq!((input.as_ref(), arrived.len()), (&frames[..], 0));
    }
}
