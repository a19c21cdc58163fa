//! Checks for anything left behind.

use std::time::Duration;

use super::super::gateway::Gateway;
use super::super::leaks::Files;
use super::super::network::{PairInNetwork, Place};
use super::super::wait::eventually;

/// The state before the gateways' start.
pub(super) struct Before {
    rules: [String; 2],
}

/// The state before any use.
pub(super) struct Remains {
    rules: [String; 2],
    files: [Files; 2],
    sockets: [usize; 2],
}

impl Remains {
    /// Looks at a stopped pair.
    pub(super) fn before(pair: &PairInNetwork) -> Before {
        Before { rules: Place::BOTH.map(|place| rules(pair, place)) }
    }

    /// Waits until nothing is left of the transfers, ends both gateways, and looks once more.
    pub(super) fn check(&self, pair: &mut PairInNetwork) {
        for place in Place::BOTH {
            let goal = format!("all flows of the {} are gone", place.name());
            eventually(&goal, LIMIT, || {
                let peer = pair.at(place, Gateway::peer);
                let flows = pair.at(place, |gateway| gateway.ask("flows"))?;
                let none = flows["flows"].as_array().is_some_and(Vec::is_empty);
                (none && peer["flows_open"] == 0 && peer["lanes"]["busy"] == 0).then_some(())
            });
            self.files[place as usize].wait_for(LIMIT, || Some(pair.at(place, Files::of)));
            let goal = format!(
                "sockets of the {}'s host are closed, and no end of a stream goes unread",
                place.name()
            );
            eventually(&goal, LIMIT, || {
                let (sockets, waiting) = connections(pair, place);
                (sockets <= self.sockets[place as usize] && waiting == 0).then_some(())
            });
            let log = pair.gateway(place).whole_log();
            assert!(!log.contains("panicked"), "{log}");
        }
        for place in Place::BOTH {
            pair.gateway(place).terminate();
            let status = pair.gateway_mut(place).wait(LIMIT);
            assert!(status.success(), "the {} ended with {status}", place.name());
            assert_eq!(rules(pair, place), self.rules[place as usize], "of the {}", place.name());
        }
    }
}

impl Before {
    /// Looks at the pair once it runs and nobody uses it.
    pub(super) fn idle(self, pair: &PairInNetwork) -> Remains {
        let files = Place::BOTH.map(|place| pair.at(place, Files::of));
        let sockets = Place::BOTH.map(|place| connections(pair, place).0);
        Remains { rules: self.rules, files, sockets }
    }
}

/// A host's open connections, without lanes for flows, and those of them closed by the other end.
fn connections(pair: &PairInNetwork, place: Place) -> (usize, usize) {
    let lanes = pair.at(place, Gateway::peer)["lanes"].clone();
    let lanes = ["busy", "spare"].iter().filter_map(|key| lanes[key].as_u64()).sum::<u64>();
    let pid = pair.gateway(place).pid();
    let states: Vec<String> = ["tcp", "tcp6"]
        .iter()
        .flat_map(|table| {
            let table = std::fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap();
            let states = table.lines().skip(1).filter_map(|line| line.split_whitespace().nth(3));
            states.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let count = |state: &str| states.iter().filter(|other| *other == state).count();
    (count(ESTABLISHED).saturating_sub(usize::try_from(lanes).unwrap()), count(CLOSE_WAIT))
}

/// Rules and routes of a host perhaps left behind by a gateway.
fn rules(pair: &PairInNetwork, place: Place) -> String {
    pair.network.host(place.name()).sh(
        "nft list ruleset; for family in -4 -6; do ip $family rule; ip $family route show table all; done \
         | grep -e lookup -e 'table [0-9]'",
    )
}

/// In hexadecimal, as /proc/net/tcp has it.
const ESTABLISHED: &str = "01";
const CLOSE_WAIT: &str = "08";
const LIMIT: Duration = Duration::from_secs(120);
