//! Makes things go wrong.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::super::network::{PairInNetwork, Place};
use super::super::wait::{eventually, pause};
use super::excuses::Harm;
use super::schedule::{Change, Fault, Step};
use super::worker::Run;

/// What a pair has been through, and what was seen meanwhile.
pub(super) struct Blows<'a> {
    pub(super) pair: &'a mut PairInNetwork,
    pub(super) run: &'a Run,
    /// What was appended to each configuration.
    changes: [BTreeSet<Change>; 2],
    moved: bool,
    /// The most memory that a gateway had in use.
    pub(super) resident: u64,
    /// Flows that gateways refused because the peer was gone, up to when each process ended.
    pub(super) peer_lost: u64,
}

impl<'a> Blows<'a> {
    pub(super) fn new(pair: &'a mut PairInNetwork, run: &'a Run) -> Self {
        Self { pair, run, changes: Default::default(), moved: false, resident: 0, peer_lost: 0 }
    }

    /// Does one thing, and waits until flows cross the link again if it was away.
    pub(super) fn strike(&mut self, step: &Step) {
        rest(step.rest);
        match &step.fault {
            Fault::Weather(line) => {
                let wan = self.pair.network.wan();
                wan.up.set(&line[0]).unwrap();
                wan.down.set(&line[1]).unwrap();
            }
            Fault::Cut(ways) => self.during(Harm::None, |blows| {
                let wan = blows.pair.network.wan();
                let cut = [&wan.up, &wan.down].into_iter().zip(ways).filter(|(_, cut)| **cut);
                cut.for_each(|(way, _)| way.cut());
                rest(step.lasts);
                wan.restore();
            }),
            Fault::Reject => self.during(Harm::None, |blows| {
                blows.pair.set_rejecting(true);
                rest(step.lasts);
                blows.pair.set_rejecting(false);
            }),
            Fault::Kill(place) => {
                self.look();
                self.peer_lost += self.refused(*place);
                self.during(Harm::EndsAll, |blows| {
                    blows.pair.gateway_mut(*place).kill();
                    rest(step.lasts);
                    blows.pair.launch(*place);
                });
            }
            Fault::Stop(place) => self.during(Harm::None, |blows| {
                blows.pair.gateway(*place).set_stopped(true);
                rest(step.lasts);
                blows.pair.gateway(*place).set_stopped(false);
            }),
            Fault::Reload(place, Change::Link) => {
                self.during(Harm::EndsAll, |blows| blows.reload(*place, Change::Link));
            }
            Fault::Reload(place, change) => self.reload(*place, *change),
            Fault::Move => self.during(Harm::EndsDirect, |blows| {
                blows.moved = !blows.moved;
                blows.pair.renumber(blows.moved);
                rest(step.lasts);
            }),
        }
        self.look();
    }

    fn during(&mut self, harm: Harm, fault: impl FnOnce(&mut Self)) {
        self.run.excuses.begin(harm);
        fault(self);
        eventually("the gateways meet", BACK, || self.pair.is_up().then_some(()));
        eventually("flows cross the link", BACK, || {
            (self.run.has_failed() || self.run.probe()).then_some(())
        });
        self.run.excuses.end();
    }

    fn reload(&mut self, place: Place, change: Change) {
        let changes = &mut self.changes[place as usize];
        if change != Change::Broken && !changes.remove(&change) {
            changes.insert(change);
        }
        let more: String = changes.iter().map(|change| change.toml()).collect();
        let config = format!("{}{more}", self.pair.config(place));
        let gateway = self.pair.gateway(place);
        let answers = || gateway.whole_log().lines().filter(|line| line.contains("reload")).count();
        let before = answers();
        gateway.write_config(&match change {
            Change::Broken => config.replace("[gateway]", "[gatevay]"),
            _ => config.clone(),
        });
        gateway.reload();
        eventually("it says what came of the reload", BACK, || (answers() > before).then_some(()));
        gateway.write_config(&config);
    }

    /// Checks what must hold at all times.
    pub(super) fn look(&mut self) {
        for place in Place::BOTH {
            self.resident = self.resident.max(self.pair.gateway(place).resident());
            assert_eq!(self.pair.at(place, |gateway| gateway.counter("mismatches")), 0);
        }
    }

    /// How many flows a gateway refused because its peer was gone; none for another reason.
    pub(super) fn refused(&self, place: Place) -> u64 {
        let status = self.pair.at(place, |gateway| gateway.ask("status")).expect("a status");
        let rows = status["gateway"]["refused"].as_array().unwrap();
        let count = |reason: &str| {
            let row = rows.iter().find(|row| row["reason"] == reason);
            row.and_then(|row| row["count"].as_u64()).unwrap_or(0)
        };
        assert_eq!(["too_many", "not_allowed_to"].map(count), [0, 0], "{rows:?}");
        count("peer_lost")
    }
}

impl PairInNetwork {
    /// Gives the branch its second address on the line and takes its first, or the other way round.
    fn renumber(&self, second: bool) {
        let [old, new] = if second { [1, 3] } else { [3, 1] };
        // The new one must not go with the old one, whose network it is in.
        self.network.host("branch").sh(&format!(
            "echo 1 > /proc/sys/net/ipv4/conf/wan0/promote_secondaries; ip addr add 198.19.1.{new}/24 dev wan0; \
             ip addr del 198.19.1.{old}/24 dev wan0; ip route replace default via 198.19.1.2"
        ));
        self.network.host("core").sh(&format!("ip route replace 198.18.1.0/24 via 198.19.1.{new}"));
    }
}

/// Lets a time pass.
fn rest(time: Duration) {
    let end = Instant::now() + time;
    while Instant::now() < end {
        pause();
    }
}

/// A minute without a path has dialling wait for some seconds, and TCP for longer.
const BACK: Duration = Duration::from_secs(240);
