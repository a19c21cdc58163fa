//! Discovery of a site's other gateways by multicast and seeds.
//!
//! Holders of the group's key announce their address. `note` has the format, `roster` the state machine,
//! `sockets` the transport. A discovered gateway becomes a peer like a configured one; that is the daemon's
//! task. `docs/internals/neighbours.md` has the reasons.

pub mod note;
pub mod roster;
mod sockets;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncewire_config::{Discovery, Group};
use oncewire_host::clock::Clock;
use oncewire_host::names::lookup;
use oncewire_host::tasks::Tasks;
use oncewire_keys::PublicKey;
use oncewire_report::DiscoveryReport;
use tokio::sync::watch;
use tokio::time::Instant;

use note::{NOTE_LEN, Note, NoteKey};
pub(crate) use roster::Found;
pub use roster::MAX_FOUND;
use roster::{Output, Own, Roster};
pub use sockets::NoteSocketError;
pub use sockets::NoteSockets;

/// Discovery's exchange of notes.
pub struct Talk {
    sockets: NoteSockets,
    groups: Vec<GroupTalk>,
    clock: Clock,
    /// Time of the next check for changed interfaces.
    look_at: Instant,
    /// Datagrams without a note of any group.
    refused: u64,
    told: Arc<watch::Sender<DiscoveryReport>>,
}

struct GroupTalk {
    group: Group,
    key: NoteKey,
    roster: Roster,
    seeds: watch::Receiver<Vec<SocketAddr>>,
}

/// Discovery within one group.
pub struct Looking {
    /// Its public key.
    pub public_key: PublicKey,
    /// Its name.
    pub name: String,
    /// Its site.
    pub site: String,
}

/// The tunnel's port by family; a family without a port is not announced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ports {
    pub(crate) v4: Option<u16>,
    pub(crate) v6: Option<u16>,
}

impl Ports {
    /// Takes the first of each family.
    pub fn of(addresses: impl Iterator<Item = SocketAddr>) -> Self {
        addresses.fold(Self::default(), |ports, address| match address {
            SocketAddr::V4(v4) => Self { v4: ports.v4.or(Some(v4.port())), ..ports },
            SocketAddr::V6(v6) => Self { v6: ports.v6.or(Some(v6.port())), ..ports },
        })
    }
}

impl Talk {
    /// Starts discovery; `tasks` resolves the names of seeds.
    pub fn new(
        discovery: &Discovery,
        own: &Looking,
        sockets: NoteSockets,
        clock: Clock,
        tasks: &Tasks,
    ) -> Self {
        let groups = discovery.groups.iter().filter_map(|looked| {
            let own = Own { public_key: own.public_key, site: own.site.clone(), name: own.name.clone() };
            let mut secret = [0; 32];
            // Without it members could foresee challenges; that is no harm.
            let _ = getrandom::fill(&mut secret);
            let (found, seeds) = watch::channel(Vec::new());
            tasks.spawn(resolve(looked.seeds.iter().map(ToString::to_string).collect(), found));
            Some(GroupTalk {
                key: NoteKey::new(&looked.group.key.note_secret())?,
                group: looked.group.clone(),
                roster: Roster::new(own, &secret, clock.now()),
                seeds,
            })
        });
        let told = DiscoveryReport { port: sockets.port(), ..DiscoveryReport::default() };
        let told = Arc::new(watch::Sender::new(told));
        let (groups, look_at) = (groups.collect(), Instant::now() + LOOK_EVERY);
        Self { groups, sockets, clock, look_at, refused: 0, told }
    }

    /// Returns the channel of its reports.
    pub fn reports(&self) -> Arc<watch::Sender<DiscoveryReport>> {
        Arc::clone(&self.told)
    }

    /// Waits for a datagram or a timeout of at most a second, and handles it; `ports` returns the tunnel's
    /// ports by then.
    pub async fn step(&mut self, ports: impl Fn() -> Ports) {
        let mut datagram = [0; NOTE_LEN + 1];
        let now = self.clock.now();
        let due = self.groups.iter().map(|group| group.roster.poll_timeout()).min().unwrap_or(now);
        let until = self.clock.instant(due).min(Instant::now() + LOOK_EVERY);
        tokio::select! {
            (len, from) = self.sockets.receive(&mut datagram) => {
                self.handle(datagram.get(..len).unwrap_or_default(), from);
            }
            () = tokio::time::sleep_until(until) => {}
        }
        if Instant::now() >= self.look_at {
            self.sockets.look();
            self.look_at = Instant::now() + LOOK_EVERY;
        }
        let now = self.clock.now();
        for group in &mut self.groups {
            if group.seeds.has_changed().unwrap_or(false) {
                group.roster.handle_seeds(group.seeds.borrow_and_update().clone());
            }
            group.roster.handle_timeout(now, getrandom::u64().unwrap_or_default());
        }
        self.send(ports()).await;
        self.tell();
    }

    /// Takes the configured peers, in no need of discovery.
    pub fn handle_configured(&mut self, keys: &BTreeSet<PublicKey>) {
        self.groups.iter_mut().for_each(|group| group.roster.handle_configured(keys));
    }

    /// Takes the discovered members' links, up or down.
    pub fn handle_links(&mut self, up: &BTreeMap<PublicKey, bool>) {
        let now = self.clock.now();
        for (key, up) in up {
            self.groups.iter_mut().for_each(|group| group.roster.handle_link(key, *up, now));
        }
    }

    /// Returns the present members with their groups; of a member of several groups, the first counts.
    pub fn found(&self) -> BTreeMap<PublicKey, (&Group, &Found)> {
        let mut found = BTreeMap::new();
        for group in &self.groups {
            for (key, member) in group.roster.members() {
                found.entry(*key).or_insert((&group.group, member));
            }
        }
        found
    }

    fn handle(&mut self, datagram: &[u8], from: SocketAddr) {
        let now = self.clock.now();
        let from = SocketAddr::new(from.ip().to_canonical(), from.port());
        let opened = self.groups.iter_mut().find_map(|group| Some((group.key.open(datagram)?, group)));
        match opened {
            Some((note, group)) => group.roster.handle_note(&note, from, now),
            None => self.refused += 1,
        }
    }

    async fn send(&mut self, ports: Ports) {
        for group in &mut self.groups {
            while let Some(output) = group.roster.poll_output() {
                let (to, note) = match output {
                    Output::Announce(note) => (None, note),
                    Output::Send(to, note) => (Some(to), note),
                };
                for (port, is_v6) in [(ports.v4, false), (ports.v6, true)] {
                    let Some(port) = port.filter(|_| to.is_none_or(|to| to.is_ipv6() == is_v6)) else {
                        continue;
                    };
                    let Some(datagram) = seal(&group.key, &Note { port, ..note.clone() }) else { return };
                    match to {
                        Some(to) => self.sockets.send(to, &datagram).await,
                        None => self.sockets.announce(is_v6, &datagram).await,
                    }
                }
            }
        }
    }

    fn tell(&self) {
        let counts = self.groups.iter().map(|group| group.roster.counts());
        let mut report =
            DiscoveryReport { port: self.sockets.port(), refused: self.refused, ..Default::default() };
        for counts in counts {
            report.heard += counts.heard;
            report.elsewhere += counts.elsewhere;
            report.unanswered += counts.unanswered;
            report.turned_away += counts.turned_away;
        }
        report.found = self.found().len() as u64;
        self.told.send_if_modified(|told| {
            let changed = *told != report;
            *told = report;
            changed
        });
    }
}

/// Seals a note; none without random bytes, since a repeated nonce would break the seal.
fn seal(key: &NoteKey, note: &Note) -> Option<Vec<u8>> {
    let mut nonce = [0; 12];
    getrandom::fill(&mut nonce).ok()?;
    key.seal(note, nonce)
}

/// Resolves the names of seeds again and again, for as long as there is a receiver, since they may move.
async fn resolve(seeds: Vec<String>, found: watch::Sender<Vec<SocketAddr>>) {
    let mut known = vec![Vec::new(); seeds.len()];
    while !seeds.is_empty() && !found.is_closed() {
        let mut all = true;
        for (seed, known) in seeds.iter().zip(&mut known) {
            let resolved = lookup(seed).await;
            all &= resolved.is_ok();
            renew(known, resolved.map(Vec::into_iter));
        }
        found.send_replace(known.concat());
        tokio::time::sleep(if all { RESOLVE_EVERY } else { RESOLVE_AGAIN }).await;
    }
}

/// Takes a seed's present addresses. If they cannot be resolved, the old ones stay: names fail when lines do.
fn renew(known: &mut Vec<SocketAddr>, resolved: io::Result<impl Iterator<Item = SocketAddr>>) {
    if let Ok(resolved) = resolved {
        *known = resolved.collect();
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
const RESOLVE_EVERY: Duration = Duration::from_secs(60);
const RESOLVE_AGAIN: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unresolvable_seed_keeps_its_addresses() {
        let at = |ip: u8| SocketAddr::from(([10, 0, 0, ip], 7400));
        let mut known = Vec::new();
        renew(&mut known, Ok([at(1), at(2)].into_iter()));
        renew(&mut known, Err::<std::iter::Empty<_>, _>(io::ErrorKind::NotFound.into()));
        assert_eq!(known, [at(1), at(2)]);
        renew(&mut known, Ok([at(3)].into_iter()));
        assert_eq!(known, [at(3)]);
    }
}
