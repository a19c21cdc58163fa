//! The discovery fuzzer's checks. `crates/discovery/tests/replay.rs` replays its corpus with this code.

#[allow(dead_code, reason = "a part of it is used here")]
pub(crate) mod script;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use oncewire_discovery::note::{MAX_OTHERS, NOTE_LEN, Note, NoteKey};
use oncewire_discovery::roster::{MAX_ANSWERS, MAX_FOUND, MAX_SENT, Output, Own, Roster};
use oncewire_keys::PublicKey;

use script::Script;

/// A LAN with notes lost, late, replayed from anywhere and damaged, and with an intruder in possession of the group's
/// key. Nobody is found unless asked and answered; a datagram draws one note at most, to its origin and as long;
/// tables and answers are bounded; and once there is peace, all find each other.
pub(crate) fn discovery(data: &[u8]) {
    let mut script = Script::new(data);
    if let Some(note) = Note::decode(data) {
        let key = note_key();
        let sealed = key.seal(&note, [1; 12]).expect("what was read can be written");
        assert_eq!(key.open(&sealed), Some(note));
    }
    let mut lan = Lan::new();
    for _ in 0..MAX_STEPS {
        let Some(what) = script.next() else { break };
        lan.step(what, &mut script);
    }
    lan.settle();
}

struct Lan {
    now: Duration,
    key: NoteKey,
    /// Counts datagrams, so no nonce comes twice.
    sealed: u64,
    rosters: Vec<Gateway>,
    under_way: Vec<Datagram>,
    /// Observable datagrams, for replays.
    heard: Vec<Datagram>,
    /// The last challenges sent to addresses without a gateway.
    asked_there: BTreeMap<SocketAddr, u64>,
}

struct Gateway {
    roster: Roster,
    /// When an address was last asked for an answer.
    asked: BTreeMap<IpAddr, Duration>,
    /// The second, and the answers in it.
    answered: (u64, u32),
}

#[derive(Clone)]
struct Datagram {
    from: SocketAddr,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Lan {
    fn new() -> Self {
        let now = Duration::from_secs(1000);
        let gateway = |at: u8| Gateway {
            roster: Roster::new(own(at), &[at; 32], now),
            asked: BTreeMap::new(),
            answered: (0, 0),
        };
        Self {
            now,
            key: note_key(),
            sealed: 0,
            rosters: (0..GATEWAYS).map(gateway).collect(),
            under_way: Vec::new(),
            heard: Vec::new(),
            asked_there: BTreeMap::new(),
        }
    }

    fn step(&mut self, what: u8, script: &mut Script<'_>) {
        let (at, pick) = (usize::from(what >> 4) % self.rosters.len(), script.below(256));
        match what % 16 {
            0..=2 => self.deliver(pick),
            3 => self.deliver_all(),
            4 => {
                drop((!self.under_way.is_empty()).then(|| self.under_way.remove(pick % self.under_way.len())))
            }
            5 | 6 => self.pass(Duration::from_millis(pick as u64 * [1, 100, 1000][script.below(3)])),
            7 | 8 => self.replay(at, pick, script.below(2) == 0, None),
            9 => self.replay(at, pick, true, Some((script.wide(), 1 << script.below(8)))),
            10 => self.arrive(at, address(pick as u8), script.bytes(pick)),
            11 => {
                let key = public_key(pick as u8 % 64);
                self.rosters[at].roster.handle_link(&key, script.below(2) == 0, self.now);
            }
            12 => {
                let seeds = (0..script.below(8)).map(|_| address(script.below(256) as u8)).collect();
                self.rosters[at].roster.handle_seeds(seeds);
            }
            _ => self.forge(at, pick as u8, script),
        }
    }

    fn deliver(&mut self, pick: usize) {
        if !self.under_way.is_empty() {
            let datagram = self.under_way.remove(pick % self.under_way.len());
            match (0..GATEWAYS).find(|at| address(*at) == datagram.to) {
                Some(at) => self.arrive(usize::from(at), datagram.from, &datagram.bytes),
                None => {
                    let note = self.key.open(&datagram.bytes).expect("sealed here");
                    self.asked_there.insert(datagram.to, note.challenge);
                }
            }
        }
    }

    fn deliver_all(&mut self) {
        for _ in 0..MAX_DELIVERED {
            self.deliver(0);
        }
    }

    /// Replays an observed datagram, from anywhere, perhaps damaged.
    fn replay(&mut self, to: usize, pick: usize, elsewhere: bool, damage: Option<(usize, u8)>) {
        let Some(mut datagram) = self.heard.get(pick % self.heard.len().max(1)).cloned() else { return };
        if let Some((at, bit)) = damage {
            let len = datagram.bytes.len();
            datagram.bytes[at % len] ^= bit;
            assert_eq!(self.key.open(&datagram.bytes), None, "damage was not seen");
        }
        let from = if elsewhere { address(pick as u8) } else { datagram.from };
        self.arrive(to, from, &datagram.bytes);
    }

    /// The holder of the key forges a note in any name, with knowledge of the challenges to its address.
    fn forge(&mut self, to: usize, pick: u8, script: &mut Script<'_>) {
        let from = address(script.below(256) as u8);
        let known = self.asked_there.get(&from).copied().unwrap_or(0);
        let site = ["town", "village"][usize::from(script.below(8) == 0)];
        let note = Note {
            public_key: public_key(pick % 64),
            port: 1 + script.below(3) as u16,
            challenge: script.below(3) as u64,
            answer: if script.below(4) > 0 { known } else { script.wide() as u64 },
            site: site.into(),
            name: "anybody".into(),
            others: (0..script.below(MAX_OTHERS + 1)).map(|_| address(script.below(256) as u8)).collect(),
        };
        let datagram = self.seal(&note);
        self.arrive(to, from, &datagram);
    }

    fn arrive(&mut self, at: usize, from: SocketAddr, bytes: &[u8]) {
        let Some(note) = self.key.open(bytes) else { return };
        let before = tunnels(&self.rosters[at].roster);
        self.rosters[at].roster.handle_note(&note, from, self.now);
        let gateway = &self.rosters[at];
        for (key, tunnel) in tunnels(&gateway.roster) {
            if before.get(&key) != Some(&tunnel) {
                let asked = gateway.asked.get(&tunnel.ip()).expect("it was never asked");
                assert!(self.now <= *asked + ASKED_FOR, "its answer is to a question that has passed");
                assert_eq!((tunnel.ip(), key), (from.ip(), note.public_key));
            }
        }
        let sent = self.carry_out(at);
        assert!(sent.iter().all(|to| *to == Some(from)) && sent.len() <= 1, "{sent:?} for one from {from}");
        let answered = &mut self.rosters[at].answered;
        if answered.0 != self.now.as_secs() {
            *answered = (self.now.as_secs(), 0);
        }
        answered.1 += sent.len() as u32;
        assert!(answered.1 <= MAX_ANSWERS);
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        for at in 0..self.rosters.len() {
            self.rosters[at].roster.handle_timeout(self.now, self.sealed.wrapping_mul(0x9e37_79b9));
            assert!(self.rosters[at].roster.poll_timeout() > self.now);
            assert!(self.carry_out(at).len() <= MAX_SENT);
        }
    }

    /// Sends a gateway's notes; returns their receivers, none being all.
    fn carry_out(&mut self, at: usize) -> Vec<Option<SocketAddr>> {
        assert!(self.rosters[at].roster.members().len() <= MAX_FOUND);
        let (mut sent, from) = (Vec::new(), address(at as u8));
        while let Some(output) = self.rosters[at].roster.poll_output() {
            let (note, to) = match output {
                Output::Announce(note) => (note, None),
                Output::Send(to, note) => (note, Some(to)),
            };
            assert!(note.public_key == public_key(at as u8) && note.others.len() <= MAX_OTHERS);
            sent.push(to);
            let bytes = self.seal(&Note { port: PORT, ..note.clone() });
            if let Some(to) = to.filter(|_| note.challenge != 0) {
                self.rosters[at].asked.insert(to.ip(), self.now);
            }
            let all = (0..GATEWAYS).map(address).filter(|to| *to != from);
            for to in to.map_or_else(|| all.collect(), |to| vec![to]) {
                self.under_way.push(Datagram { from, to, bytes: bytes.clone() });
            }
        }
        for queue in [&mut self.heard, &mut self.under_way] {
            queue.truncate(MAX_UNDER_WAY);
        }
        self.heard.extend(self.under_way.last().cloned());
        sent
    }

    fn seal(&mut self, note: &Note) -> Vec<u8> {
        self.sealed += 1;
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.sealed.to_le_bytes());
        let sealed = self.key.seal(note, nonce).expect("it fits");
        assert_eq!(sealed.len(), NOTE_LEN);
        sealed
    }

    /// The intruder falls silent, and all links are down: the gateways find each other at their addresses.
    fn settle(&mut self) {
        for gateway in &mut self.rosters {
            gateway.roster.handle_seeds(Vec::new());
            let keys: Vec<PublicKey> = gateway.roster.members().keys().copied().collect();
            keys.iter().for_each(|key| gateway.roster.handle_link(key, false, self.now));
        }
        for _ in 0..SETTLE_SECS {
            self.pass(Duration::from_secs(1));
            self.under_way.retain(|datagram| (0..GATEWAYS).any(|at| address(at) == datagram.to));
            self.deliver_all();
        }
        for (at, gateway) in (0..).zip(&self.rosters) {
            let there = (0..GATEWAYS).filter(|other| *other != at);
            let there = there.map(|other| (public_key(other), SocketAddr::new(address(other).ip(), PORT)));
            assert_eq!(tunnels(&gateway.roster), there.collect());
        }
    }
}

fn tunnels(roster: &Roster) -> BTreeMap<PublicKey, SocketAddr> {
    roster.members().iter().map(|(key, found)| (*key, found.tunnel)).collect()
}

fn own(at: u8) -> Own {
    Own { public_key: public_key(at), site: "town".into(), name: format!("gw{at}") }
}

fn public_key(at: u8) -> PublicKey {
    PublicKey::from_bytes([at; 32])
}

fn address(at: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, at], 7000))
}

fn note_key() -> NoteKey {
    NoteKey::new(&[9; 32]).expect("a key of the right length")
}

const GATEWAYS: u8 = 3;
const PORT: u16 = 7400;
const MAX_STEPS: usize = 500;
const MAX_DELIVERED: usize = 300;
const MAX_UNDER_WAY: usize = 300;
/// A challenge holds until the one after it has passed.
const ASKED_FOR: Duration = Duration::from_secs(20);
/// Vanished gateways are forgotten in the first minute, and the others are met then.
const SETTLE_SECS: u64 = 100;
