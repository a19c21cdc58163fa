//! Members present by their notes: a state machine without sockets.
//!
//! `docs/internals/neighbours.md` has the reasons.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, SocketAddr};

use oncewire_keys::PublicKey;
use oncewire_link::Now;
use ring::hmac;

use self::answers::Answers;
pub use self::answers::MAX_ANSWERS;
use super::note::{MAX_OTHERS, Note};
pub use oncewire_config::MAX_FOUND;

mod answers;

/// One gateway's knowledge of a group's members at its site.
#[derive(Debug)]
pub struct Roster {
    own: Own,
    /// Root of the challenges.
    secret: hmac::Key,
    seeds: Vec<SocketAddr>,
    /// Configured peers.
    configured: BTreeSet<PublicKey>,
    members: BTreeMap<PublicKey, Found>,
    /// Addresses from others' hints, with their remaining attempts.
    hinted: BTreeMap<SocketAddr, u8>,
    announced: u32,
    announce_at: Now,
    answers: Answers,
    outputs: VecDeque<Output>,
    counts: NoteCounts,
}

/// This gateway's statement about itself.
#[derive(Clone, Debug)]
pub struct Own {
    /// Its key in the tunnel.
    pub public_key: PublicKey,
    /// Its site.
    pub site: String,
    /// Its name.
    pub name: String,
}

/// A member with proved presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Its own name.
    pub name: String,
    /// Its tunnel's address.
    pub tunnel: SocketAddr,
    /// Source address of its notes.
    at: SocketAddr,
    /// Time of its last proof of presence.
    heard: Now,
    /// When this address was taken in, or the link was last up.
    since: Now,
    /// When it was first taken in.
    first: Now,
    /// Whether the link to it is up.
    up: bool,
    /// Whether it ever was.
    linked: bool,
    /// Addresses tried since the link was last up: the present one, and the earlier ones of this round.
    tried: Vec<IpAddr>,
}

/// A note to send.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// To all listeners on the chosen interfaces.
    Announce(Note),
    /// To one.
    Send(SocketAddr, Note),
}

/// Outcomes of notes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NoteCounts {
    /// Notes of the group, own ones left out.
    pub heard: u64,
    /// Of those, notes of other sites, or from undiallable addresses.
    pub elsewhere: u64,
    /// Notes left unanswered at the limit of a second, of all or of one source.
    pub unanswered: u64,
    /// Members refused for lack of room.
    pub turned_away: u64,
}

/// The most of them at one address; several share one only behind NAT.
const MAX_AT_ADDRESS: usize = 4;
/// Time for a member's first link; then it gives way to others if there is no room.
const FIRST_LINK: Now = Now::from_secs(20);
/// The most addresses tried on others' hints, and the attempts for each.
const MAX_HINTED: usize = 64;
const TRIES: u8 = 3;
/// The most addresses of seeds; more than any useful list.
const MAX_SEEDS: usize = 64;
/// The most notes sent at a timeout: one to all, and one to each candidate.
pub const MAX_SENT: usize = 1 + MAX_SEEDS + MAX_FOUND + MAX_HINTED;
/// The first announcements follow each other sooner.
const FIRST_ANNOUNCEMENTS: u32 = 4;
const FIRST_EVERY: Now = Now::from_secs(1);
const ANNOUNCE_EVERY: Now = Now::from_secs(5);
/// Silence after which a member with a down link is forgotten.
const FORGET: Now = Now::from_secs(60);
/// For so long after an address was taken in, or the link was last up, notes from elsewhere do not count as a
/// member's move.
const STAYS: Now = Now::from_secs(20);
/// Precedence of untried addresses over vainly tried ones: two announcements.
const YIELDS: Now = Now::from_secs(10);
/// The most tried addresses remembered for one member.
const MAX_TRIED: usize = 16;
/// A challenge holds for this long, and as long again.
const EPOCH: Now = Now::from_secs(10);

impl Roster {
    /// Begins without members; `secret` is new with every process.
    pub fn new(own: Own, secret: &[u8; 32], now: Now) -> Self {
        Self {
            own,
            secret: hmac::Key::new(hmac::HMAC_SHA256, secret),
            seeds: Vec::new(),
            configured: BTreeSet::new(),
            members: BTreeMap::new(),
            hinted: BTreeMap::new(),
            announced: 0,
            announce_at: now,
            answers: Answers::default(),
            outputs: VecDeque::new(),
            counts: NoteCounts::default(),
        }
    }

    /// Returns the present members.
    pub fn members(&self) -> &BTreeMap<PublicKey, Found> {
        &self.members
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> NoteCounts {
        self.counts
    }

    /// Takes the seeds' addresses, as their names resolve at present; the first 64 of them.
    pub fn handle_seeds(&mut self, mut seeds: Vec<SocketAddr>) {
        seeds.truncate(MAX_SEEDS);
        self.seeds = seeds;
    }

    /// Takes the configured peers: there is room for all of them, and none needs discovery.
    pub fn handle_configured(&mut self, keys: &BTreeSet<PublicKey>) {
        if self.configured != *keys {
            self.configured.clone_from(keys);
            // Formerly configured members may be too many. The one heard of last is forgotten first.
            while self.found() > MAX_FOUND {
                let others = self.members.iter().filter(|(key, _)| !self.configured.contains(key));
                let Some(oldest) = others.min_by_key(|(_, member)| (member.up, member.heard)) else { return };
                let oldest = *oldest.0;
                self.members.remove(&oldest);
            }
        }
    }

    /// Returns the number of members known by discovery alone.
    fn found(&self) -> usize {
        self.members.keys().filter(|key| !self.configured.contains(key)).count()
    }

    /// Takes whether the link to a member is up.
    pub fn handle_link(&mut self, public_key: &PublicKey, up: bool, now: Now) {
        if let Some(member) = self.members.get_mut(public_key) {
            if member.up || up {
                (member.heard, member.since) = (now, now);
                member.tried.clear();
            }
            member.up = up;
            member.linked |= up;
        }
    }

    /// Takes a note sealed with the group's key.
    pub fn handle_note(&mut self, note: &Note, from: SocketAddr, now: Now) {
        if note.public_key == self.own.public_key {
            return;
        }
        self.counts.heard += 1;
        if note.site != self.own.site || !can_dial(from.ip()) {
            self.counts.elsewhere += 1;
            return;
        }
        let is_there = self.challenges(from, Some(&note.public_key), now).contains(&note.answer);
        if is_there {
            self.note_member(note, from, now);
            for other in &note.others {
                let known = self.members.values().any(|member| member.at == *other);
                if !known && self.hinted.len() < MAX_HINTED && can_dial(other.ip()) {
                    self.hinted.entry(*other).or_insert(TRIES);
                }
            }
        }
        let is_up = self.members.get(&note.public_key).is_some_and(|member| member.up);
        if note.challenge != 0 || !is_there && !is_up {
            self.answer(note, from, !is_there && !is_up, now);
        }
    }

    /// Returns the time of the next [`Self::handle_timeout`].
    pub fn poll_timeout(&self) -> Now {
        self.announce_at
    }

    /// Announces this gateway, and forgets absent members; `random` spreads announcements.
    pub fn handle_timeout(&mut self, now: Now, random: u64) {
        if now < self.announce_at {
            return;
        }
        let every = if self.announced < FIRST_ANNOUNCEMENTS { FIRST_EVERY } else { ANNOUNCE_EVERY };
        self.announced = self.announced.saturating_add(1);
        self.announce_at = now + every * (768 + (random % 513) as u32) / 1024;
        self.members.retain(|_, member| member.up || now < member.heard + FORGET);
        self.outputs.push_back(Output::Announce(self.note(0, 0)));
        let found = self.members.iter().filter(|(key, _)| !self.configured.contains(key));
        let lost = found.filter(|(_, member)| !member.up).map(|(_, member)| member.at);
        let mut to: Vec<SocketAddr> = self.seeds.iter().copied().chain(lost).collect();
        to.extend(self.hinted.keys());
        self.hinted.retain(|_, tries| {
            *tries -= 1;
            *tries > 0
        });
        to.sort_unstable();
        to.dedup();
        for address in to {
            // Any answer leads to another question, under the key claimed in it.
            let [challenge, _] = self.challenges(address, None, now);
            let note = self.note(challenge, 0);
            self.outputs.push_back(Output::Send(address, note));
        }
    }

    /// Takes the next note to send.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    fn note_member(&mut self, note: &Note, from: SocketAddr, now: Now) {
        self.hinted.remove(&from);
        let tunnel = SocketAddr::new(from.ip(), note.port);
        let found = Found {
            name: note.name.clone(),
            tunnel,
            at: from,
            heard: now,
            since: now,
            first: now,
            up: false,
            linked: false,
            tried: vec![from.ip()],
        };
        let is_new = !self.members.contains_key(&note.public_key);
        if is_new && !self.configured.contains(&note.public_key) && !self.make_room(from.ip(), now) {
            self.counts.turned_away += 1;
            return;
        }
        match self.members.get_mut(&note.public_key) {
            Some(member) if member.at == from && member.tunnel == tunnel => member.heard = now,
            Some(member) if member.up || now < member.stays_until(from.ip()) => {}
            Some(member) => member.move_to(found),
            None => _ = self.members.insert(note.public_key, found),
        }
    }

    /// Makes room for one more member discovered at an address; returns whether there is room.
    ///
    /// A holder of the group's key can make any number of keys, but has few addresses, and no link under keys
    /// made for notes alone. So a member without a link so far gives way: after a while to any other, and at
    /// once to one from an address with fewer places, and no more even with the new one.
    fn make_room(&mut self, ip: IpAddr, now: Now) -> bool {
        let mut places: BTreeMap<IpAddr, usize> = BTreeMap::new();
        let found = || self.members.iter().filter(|(key, _)| !self.configured.contains(key));
        found().for_each(|(_, member)| *places.entry(member.at.ip()).or_default() += 1);
        let at = |ip: IpAddr| places.get(&ip).copied().unwrap_or(0);
        let is_crowded = at(ip) >= MAX_AT_ADDRESS;
        if !is_crowded && found().count() < MAX_FOUND {
            return true;
        }
        let gives_way = found().filter(|(_, member)| {
            let its_ip = member.at.ip();
            let is_late = now >= member.first + FIRST_LINK;
            let is_elsewhere = !is_crowded && at(its_ip) > at(ip) + 1;
            !member.linked && (is_elsewhere || is_late && (its_ip == ip || !is_crowded))
        });
        // The member of the most crowded address; of several, the one with the longest time.
        let first = gives_way.max_by_key(|(_, member)| (at(member.at.ip()), Reverse(member.first)));
        let Some((&key, _)) = first else { return false };
        self.members.remove(&key).is_some()
    }

    /// Sends one note back to a note's source, of the same length.
    fn answer(&mut self, heard: &Note, to: SocketAddr, ask: bool, now: Now) {
        let is_known = self.members.values().map(|member| member.at).any(|at| at.ip() == to.ip())
            || self.seeds.iter().any(|seed| seed.ip() == to.ip());
        if !self.answers.take(to.ip(), is_known, now) {
            self.counts.unanswered += 1;
            return;
        }
        let [challenge, _] = self.challenges(to, Some(&heard.public_key), now);
        let mut note = self.note(if ask { challenge } else { 0 }, heard.challenge);
        // Others in turn: all become known even if not all fit.
        let others = self.members.values().filter(|member| member.up && member.at != to);
        let others: Vec<SocketAddr> = others.map(|member| member.at).collect();
        let skip = self.answers.count() as usize * MAX_OTHERS % others.len().max(1);
        note.others = others.iter().cycle().skip(skip).take(others.len().min(MAX_OTHERS)).copied().collect();
        self.outputs.push_back(Output::Send(to, note));
    }

    fn note(&self, challenge: u64, answer: u64) -> Note {
        let Own { public_key, site, name } = self.own.clone();
        // The port depends on how the note is sent.
        Note { public_key, port: 0, challenge, answer, site, name, others: Vec::new() }
    }

    /// Returns the challenges to the member with a key at an address, the present one and the one before;
    /// never 0. Without a key they are the first challenges to the address.
    fn challenges(&self, address: SocketAddr, key: Option<&PublicKey>, now: Now) -> [u64; 2] {
        let epoch = now.as_secs() / EPOCH.as_secs();
        let key = key.map(ToString::to_string).unwrap_or_default();
        [epoch, epoch.wrapping_sub(1)].map(|epoch| {
            let tag = hmac::sign(&self.secret, format!("{epoch} {address} {key}").as_bytes());
            tag.as_ref().first_chunk().map_or(1, |bytes| u64::from_le_bytes(*bytes) | 1)
        })
    }
}

impl Found {
    /// Returns the end of the time in which an answer from there does not count as a move.
    fn stays_until(&self, ip: IpAddr) -> Now {
        self.since + STAYS + if self.tried.contains(&ip) { YIELDS } else { Now::ZERO }
    }

    /// Tries another address. A holder of the group's key may answer for it from elsewhere, so each address
    /// has its turn before one has another.
    fn move_to(&mut self, mut found: Self) {
        if !found.tried.iter().any(|ip| self.tried.contains(ip)) {
            found.tried.extend(self.tried.iter().take(MAX_TRIED - 1));
        }
        *self = Self { first: self.first, linked: self.linked, ..found };
    }
}

/// A link-local address is useless without its interface, and no configuration names one.
fn can_dial(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast(),
        IpAddr::V6(ip) => !ip.is_unspecified() && !ip.is_multicast() && !ip.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests;
