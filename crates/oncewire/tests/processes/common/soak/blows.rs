//! Makes things go wrong.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use super::super::data::Rng;
use super::super::network::{PairInNetwork, Place};
use super::super::wait::{eventually, pause};
use super::excuses::Harm;
use super::schedule::{Change, Fault, Step};
use super::worker::Run;

/// The faults of a pair, and the observations meanwhile.
pub(super) struct Blows<'a> {
    pub(super) pair: &'a mut PairInNetwork,
    pub(super) run: &'a Run,
    /// The additions to each configuration.
    changes: [BTreeSet<Change>; 2],
    moved: bool,
    /// The most memory in use by a gateway.
    pub(super) resident: u64,
    /// Flows refused by gateways for lack of the peer, up to each process's end.
    pub(super) peer_lost: u64,
    /// Outcomes of chunk stores' reads, up to each process's end.
    pub(super) reads: Reads,
}

/// Chunks found in stores, damaged ones, and those unreadable at the time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Reads {
    pub(super) found: u64,
    pub(super) damaged: u64,
    pub(super) later: u64,
}

impl<'a> Blows<'a> {
    pub(super) fn new(pair: &'a mut PairInNetwork, run: &'a Run) -> Self {
        Self {
            pair,
            run,
            changes: Default::default(),
            moved: false,
            resident: 0,
            peer_lost: 0,
            reads: Reads::default(),
        }
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
                self.count_reads(*place);
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
            Fault::Rot(place, which) => self.rot(*place, *which),
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

    /// Changes some bytes in each file of a store, at any place and under any writer.
    fn rot(&self, place: Place, which: u64) {
        let mut rng = Rng::new(which);
        let store = self.pair.state(place).join("store");
        let mut names: Vec<_> = fs::read_dir(store).unwrap().map(|entry| entry.unwrap().path()).collect();
        names.retain(|name| name.extension().is_some_and(|extension| extension == "seg"));
        names.sort();
        for name in names {
            // It may have gone since it was listed.
            let Ok(file) = File::options().write(true).open(&name) else { continue };
            let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
            for _ in 0..ROTTEN {
                let at = rng.below(len.max(1)) as u64;
                // A file cut meanwhile grows again by this, another kind of damage.
                file.write_all_at(&[rng.below(256) as u8], at).unwrap();
            }
        }
    }

    /// Takes note of the outcomes of a store's reads before its process ends.
    pub(super) fn count_reads(&mut self, place: Place) {
        let status = self.pair.at(place, |gateway| gateway.ask("status")).expect("a status");
        let count = |key: &str| status["store"][key].as_u64().unwrap();
        if status["store"].is_null() {
            return;
        }
        self.reads.found += count("found");
        self.reads.damaged += count("damaged");
        self.reads.later += count("unreadable") + count("turned_away");
    }

    /// Checks the invariants.
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
        // The new one must not go with the old one's network.
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

/// Changed bytes in a file: of a segment of 8 MiB, every tenth container or so.
const ROTTEN: usize = 12;

/// A minute without a path has dialling wait for some seconds, and TCP for longer.
const BACK: Duration = Duration::from_secs(240);
