//! The results of a simulation.

use std::collections::BTreeMap;
use std::time::Duration;

use super::wires::network_side;
use super::{FAR, NEAR, Simulation, wires};

/// The results of a simulation so far, by class of flows and by direction.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Report {
    /// The time since the gateways had met.
    pub time: Duration,
    /// The classes of flows, by name.
    pub classes: BTreeMap<String, ClassReport>,
    /// The directions, by sending side.
    pub directions: [DirectionReport; 2],
}

/// The flows of a class.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ClassReport {
    /// The flows with everything at both ends.
    pub finished: u64,
    /// All flows.
    pub flows: u64,
    /// Bytes of both applications, and those that came.
    pub offered: u64,
    /// The delivered part of them.
    pub delivered: u64,
    /// The completion times of finished flows, in order.
    pub times: Vec<Duration>,
}

/// One direction of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DirectionReport {
    /// Bytes of applications for this direction.
    pub offered: u64,
    /// The delivered part of them.
    pub delivered: u64,
    /// Bytes on the path, headers, retransmissions and acknowledgements included.
    pub wire: u64,
    /// Packets of streams sent again by TCP.
    pub retransmits: u64,
    /// Packets lost by the path, and packets without room in its queue.
    pub lost: u64,
    /// The CPU time of the sending side's host, for both directions.
    pub cpu: Duration,
}

impl Report {
    pub(super) fn new(simulation: &Simulation) -> Self {
        let mut report = Self { time: simulation.now.saturating_sub(simulation.met), ..Self::default() };
        for (side, direction) in report.directions.iter_mut().enumerate() {
            let network = &simulation.wires.network;
            let traffic = [wires::LANES, super::direct::ACCOUNT]
                .map(|account| network.traffic(account, network_side(side)).repeated_segments);
            let link = network.link_counters(network_side(side));
            direction.wire = link.carried_bytes - simulation.met_bytes[side];
            direction.retransmits = traffic.iter().sum();
            direction.lost = link.lost + link.queue_full;
            direction.cpu = simulation.hosts[side].worked();
        }
        for flow in &simulation.flows {
            let class = report.classes.entry(flow.class().to_owned()).or_default();
            for side in [NEAR, FAR] {
                let (offered, delivered) = (flow.offered(side) as u64, flow.received(1 - side) as u64);
                class.add_bytes(offered, delivered);
                report.directions[side].offered += offered;
                report.directions[side].delivered += delivered;
            }
            class.add_flow(flow.took());
        }
        report.classes.values_mut().for_each(|class| class.times.sort_unstable());
        report
    }

    /// Returns the bytes a second of all delivered content, in bits.
    pub fn bits_per_s(&self) -> f64 {
        let delivered: u64 = self.directions.iter().map(|direction| direction.delivered).sum();
        if self.time.is_zero() { 0.0 } else { 8.0 * delivered as f64 / self.time.as_secs_f64() }
    }
}

impl ClassReport {
    pub(super) fn add_bytes(&mut self, offered: u64, delivered: u64) {
        self.offered += offered;
        self.delivered += delivered;
    }

    pub(super) fn add_flow(&mut self, took: Option<Duration>) {
        self.flows += 1;
        self.finished += u64::from(took.is_some());
        self.times.extend(took);
    }

    /// Returns the median completion time; `None` before the first.
    pub fn median(&self) -> Option<Duration> {
        self.percentile(50)
    }

    /// Returns the completion time of so many in a hundred flows, by the nearest rank; `None` before the first.
    pub fn percentile(&self, percent: usize) -> Option<Duration> {
        let rank = (self.times.len() * percent).div_ceil(100).max(1);
        self.times.get(rank - 1).copied()
    }
}

impl DirectionReport {
    /// Returns 1 − wire / delivered; `None` if nothing was delivered.
    pub fn savings(&self) -> Option<f64> {
        (self.delivered > 0).then(|| 1.0 - self.wire as f64 / self.delivered as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_nearest_ranks() {
        let mut class = ClassReport::default();
        assert_eq!(class.median(), None);
        for ms in 1..=200 {
            class.add_flow(Some(Duration::from_millis(ms)));
        }
        class.add_flow(None);
        let ranks = [50, 95, 99, 100].map(|percent| class.percentile(percent).unwrap().as_millis());
        assert_eq!((ranks, class.flows, class.finished), ([100, 190, 198, 200], 201, 200));
    }

    #[test]
    fn savings_are_of_delivered_bytes() {
        let direction = DirectionReport { delivered: 1000, wire: 250, ..DirectionReport::default() };
        assert_eq!(direction.savings(), Some(0.75));
        assert_eq!(DirectionReport::default().savings(), None);
    }
}
