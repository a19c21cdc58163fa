//! A group's members on a virtual LAN, with a replaying attacker.

use proptest::prelude::*;

use super::*;
use crate::note::NOTE_LEN;

struct Lan {
    now: Now,
    rosters: Vec<Roster>,
    /// Whether announcements reach the others.
    multicast: bool,
    /// All sent notes, with their senders.
    sent: Vec<(usize, Option<SocketAddr>, Note)>,
    /// Whether each third note is lost.
    lossy: bool,
}

fn address(at: usize) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, at as u8 + 1], 7400))
}

fn key(at: usize) -> PublicKey {
    PublicKey::from_bytes([at as u8 + 1; 32])
}

fn roster(at: usize, site: &str) -> Roster {
    let own = Own { public_key: key(at), site: site.into(), name: format!("gw{at}") };
    Roster::new(own, &[at as u8; 32], Now::from_secs(100))
}

impl Lan {
    fn new(members: usize, multicast: bool) -> Self {
        let rosters = (0..members).map(|at| roster(at, "town")).collect();
        Self { now: Now::from_secs(100), rosters, multicast, sent: Vec::new(), lossy: false }
    }

    /// Lets time pass; a note is there at once.
    fn pass(&mut self, secs: u64) {
        let end = self.now + Now::from_secs(secs);
        while self.now <= end {
            self.tick();
        }
    }

    fn tick(&mut self) {
        for at in 0..self.rosters.len() {
            self.rosters[at].handle_timeout(self.now, 7 * self.now.as_millis() as u64 + at as u64);
            self.deliver();
        }
        self.now += Now::from_millis(100);
    }

    /// Lets time pass; each second begins with replays of a recorded question to the first, from an address
    /// each.
    fn pass_under_replays(&mut self, secs: u64, from: impl Fn(u32) -> SocketAddr) {
        let recorded = Note { port: 7400, ..roster(99, "town").note(7, 0) };
        for _ in 0..secs {
            let second = self.now.as_secs();
            (0..300).for_each(|at| self.rosters[0].handle_note(&recorded, from(at), self.now));
            while self.now.as_secs() == second {
                self.tick();
            }
        }
    }

    fn deliver(&mut self) {
        while let Some((from, output)) =
            (0..self.rosters.len()).find_map(|at| Some((at, self.rosters[at].poll_output()?)))
        {
            let (to, note) = match output {
                Output::Announce(note) => (None, note),
                Output::Send(to, note) => (Some(to), note),
            };
            let note = Note { port: 7400, ..note };
            self.sent.push((from, to, note.clone()));
            let lot = (self.sent.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            if self.lossy && lot.is_multiple_of(3) {
                continue;
            }
            for at in (0..self.rosters.len()).filter(|at| *at != from) {
                if to.map_or(self.multicast, |to| to == address(at)) {
                    self.rosters[at].handle_note(&note, address(from), self.now);
                }
            }
        }
    }

    fn known(&self, at: usize) -> Vec<PublicKey> {
        self.rosters[at].members().keys().copied().collect()
    }

    fn all_know_all(&self) -> bool {
        (0..self.rosters.len()).all(|at| self.known(at).len() == self.rosters.len() - 1)
    }
}

#[test]
fn lan_members_meet_at_once_or_later_under_loss() {
    for (lossy, secs) in [(false, 0), (true, 60)] {
        let mut lan = Lan { lossy, ..Lan::new(5, true) };
        lan.pass(secs);
        assert!(lan.all_know_all(), "lossy: {lossy}");
        let member = &lan.rosters[0].members()[&key(1)];
        assert_eq!((member.name.as_str(), member.tunnel), ("gw1", address(1)));
    }
}

#[test]
fn one_seed_introduces_all_members() {
    let mut lan = Lan::new(12, false);
    (1..12).for_each(|at| lan.rosters[at].handle_seeds(vec![address(0)]));
    lan.pass(1);
    assert_eq!((lan.known(0).len(), lan.known(5)), (11, vec![key(0)]));
    // Members with a link up are told to others.
    for at in 1..12 {
        let now = lan.now;
        lan.rosters[0].handle_link(&key(at), true, now);
    }
    lan.pass(60);
    assert!(lan.all_know_all());
    let hinted: usize = lan.rosters.iter().map(|roster| roster.hinted.len()).sum();
    assert_eq!(hinted, 0);
}

#[test]
fn silent_member_is_forgotten_once_its_link_is_down() {
    let mut lan = Lan::new(2, true);
    lan.pass(1);
    let now = lan.now;
    lan.rosters[0].handle_link(&key(1), true, now);
    lan.rosters.truncate(1);
    lan.pass(300);
    assert_eq!(lan.known(0), [key(1)]);
    let now = lan.now;
    lan.rosters[0].handle_link(&key(1), false, now);
    lan.pass(55);
    assert_eq!(lan.known(0), [key(1)]);
    lan.pass(15);
    assert_eq!(lan.known(0), []);
}

#[test]
fn replays_add_and_keep_no_members() {
    let mut lan = Lan::new(2, true);
    lan.pass(8);
    let old: Vec<Note> =
        lan.sent.iter().filter(|(from, ..)| *from == 1).map(|(.., note)| note.clone()).collect();
    assert!(old.iter().any(|note| note.answer != 0));
    // A process without knowledge of that member, and one with it, when the member is gone.
    let mut other = roster(0, "town");
    let mut same = lan.rosters.remove(0);
    for ms in 0..120_000 {
        let now = lan.now + Now::from_secs(30) + Now::from_millis(ms);
        let from = if ms % 2 == 0 { address(1) } else { "203.0.113.9:9".parse().unwrap() };
        let note = &old[ms as usize % old.len()];
        for roster in [&mut other, &mut same] {
            roster.handle_note(note, from, now);
            roster.handle_timeout(now, 0);
        }
    }
    assert_eq!((other.members().len(), same.members().len()), (0, 0));
    // Each was answered with at most one note, and not more than so many a second.
    let answers =
        std::iter::from_fn(|| other.poll_output()).filter(|output| matches!(output, Output::Send(..)));
    assert!(answers.count() <= 121 * MAX_ANSWERS as usize);
    assert!(other.counts().unanswered > 0 && NOTE_LEN < 512);
}

#[test]
fn replays_keep_no_members_from_finding_each_other() {
    let outside = |at: u32| SocketAddr::from(([203, 0, 113, at as u8], 9));
    let beside = |_: u32| SocketAddr::from(([10, 0, 0, 77], 9));
    for from in [outside, beside] {
        let mut lan = Lan::new(2, true);
        lan.pass_under_replays(60, from);
        assert!(lan.all_know_all(), "{} unanswered", lan.rosters[0].counts().unanswered);
        assert!(lan.rosters[0].counts().unanswered > 60 * 100);
    }
}

#[test]
fn replays_from_everywhere_separate_no_known_members() {
    let everywhere = |at: u32| SocketAddr::from(([198, 18 + (at >> 8) as u8, at as u8, 1], 9));
    let mut lan = Lan::new(2, true);
    lan.pass(5);
    assert!(lan.all_know_all());
    lan.pass_under_replays(3 * FORGET.as_secs(), everywhere);
    assert!(lan.all_know_all(), "{} unanswered", lan.rosters[0].counts().unanswered);
    // Nor do replays keep a member from a starting seed.
    let mut lan = Lan::new(2, false);
    lan.rosters[0].handle_seeds(vec![address(1)]);
    lan.pass_under_replays(60, everywhere);
    assert!(lan.all_know_all());
}

#[test]
fn other_sites_and_undiallable_addresses_are_not_found() {
    let mut lan = Lan::new(1, true);
    lan.rosters.push(roster(1, "village"));
    lan.pass(10);
    assert_eq!((lan.known(0), lan.known(1)), (vec![], vec![]));
    assert!(lan.rosters[0].counts().elsewhere > 0);
    let now = lan.now;
    let mut one = roster(5, "town");
    let from: SocketAddr = "[fe80::1]:7400".parse().unwrap();
    let [answer, _] = one.challenges(from, Some(&key(6)), now);
    one.handle_note(&Note { answer, ..roster(6, "town").note(0, 0) }, from, now);
    assert_eq!((one.members().len(), one.counts().elsewhere), (0, 1));
}

#[test]
fn members_and_addresses_are_bounded() {
    let mut one = roster(200, "town");
    let now = Now::from_secs(500);
    for at in 0..100 {
        let [answer, _] = one.challenges(address(at), Some(&key(at)), now);
        let others = (0..MAX_OTHERS).map(|other| address(100 + (at + other) % 100)).collect();
        let note = Note { answer, others, ..roster(at, "town").note(0, 0) };
        one.handle_note(&note, address(at), now);
    }
    assert_eq!((one.members().len(), one.counts().turned_away), (MAX_FOUND, 100 - MAX_FOUND as u64));
    assert_eq!(one.hinted.len(), MAX_HINTED);
}

/// Has a member with one of many keys answer from an address.
fn hear(one: &mut Roster, who: usize, from: SocketAddr, now: Now) {
    let [answer, _] = one.challenges(from, Some(&key(who)), now);
    one.handle_note(&Note { port: from.port(), answer, ..roster(who, "town").note(0, 0) }, from, now);
}

#[test]
fn answer_for_one_key_counts_for_no_other() {
    let (mut one, now) = (roster(200, "town"), Now::from_secs(500));
    let said = roster(1, "town").note(0, 0);
    for challenge in [one.challenges(address(1), Some(&key(2)), now), one.challenges(address(1), None, now)] {
        one.handle_note(&Note { answer: challenge[0], ..said.clone() }, address(1), now);
    }
    assert!(one.members().is_empty());
    hear(&mut one, 1, address(1), now);
    assert!(one.members().contains_key(&key(1)));
}

#[test]
fn one_address_takes_few_places_with_any_number_of_keys() {
    let (mut one, now) = (roster(200, "town"), Now::from_secs(500));
    for at in 0..100 {
        hear(&mut one, at, SocketAddr::new(address(250).ip(), 7400 + at as u16), now);
    }
    assert_eq!(
        (one.members().len(), one.counts().turned_away),
        (MAX_AT_ADDRESS, 100 - MAX_AT_ADDRESS as u64)
    );
    hear(&mut one, 150, address(150), now);
    assert!(one.members().contains_key(&key(150)));
}

#[test]
fn members_without_a_link_give_way_to_honest_ones() {
    let mut one = roster(240, "town");
    let mut now = Now::from_secs(500);
    let crowd = |one: &mut Roster, now| {
        (0..2 * MAX_FOUND).for_each(|at| hear(one, at, address(200 + at % 8), now));
    };
    crowd(&mut one, now);
    assert_eq!(one.members().len(), MAX_FOUND);
    // One with an address of its own has a place at once, and keeps it until its link is up.
    hear(&mut one, 150, address(150), now);
    for _ in 0..60 {
        now += Now::from_secs(1);
        crowd(&mut one, now);
        hear(&mut one, 150, address(150), now);
        assert!(one.members().contains_key(&key(150)), "{now:?}");
    }
    one.handle_link(&key(150), true, now);
    // Addresses with one place each give way after a while.
    let mut one = roster(240, "town");
    (0..MAX_FOUND).for_each(|at| hear(&mut one, at, address(at), now));
    hear(&mut one, 150, address(150), now);
    assert!(!one.members().contains_key(&key(150)), "they have time for their first link");
    one.handle_link(&key(0), true, now);
    now += FIRST_LINK;
    (150..150 + 2 * MAX_FOUND).for_each(|at| hear(&mut one, at, address(at), now));
    assert_eq!(one.members().len(), MAX_FOUND);
    assert!(one.members().contains_key(&key(0)), "it had a link");
    assert!(one.members().contains_key(&key(150)));
}

#[test]
fn configured_members_take_no_discovered_places() {
    let mut one = roster(200, "town");
    let now = Now::from_secs(500);
    let hear = |one: &mut Roster, at: usize| {
        let [answer, _] = one.challenges(address(at), Some(&key(at)), now);
        one.handle_note(&Note { answer, ..roster(at, "town").note(0, 0) }, address(at), now);
    };
    let configured: BTreeSet<PublicKey> = (0..MAX_FOUND).map(key).collect();
    one.handle_configured(&configured);
    (0..2 * MAX_FOUND).for_each(|at| hear(&mut one, at));
    assert_eq!((one.members().len(), one.counts().turned_away), (2 * MAX_FOUND, 0));
    hear(&mut one, 100);
    assert_eq!((one.members().len(), one.counts().turned_away), (2 * MAX_FOUND, 1));
    // Nor is any member without a link tried.
    one.handle_timeout(now, 0);
    let sent = std::iter::from_fn(|| one.poll_output());
    let looked_for: BTreeSet<SocketAddr> = sent
        .filter_map(|output| match output {
            Output::Send(to, note) if note.challenge != 0 => Some(to),
            _ => None,
        })
        .collect();
    assert_eq!(looked_for, (MAX_FOUND..2 * MAX_FOUND).map(address).collect());
    one.handle_link(&key(1), true, now);
    one.handle_configured(&BTreeSet::new());
    assert!(one.members().len() == MAX_FOUND && one.members().contains_key(&key(1)));
}

/// Has a member answer its challenge from an address, and returns its tried address.
fn tell(one: &mut Roster, from: SocketAddr, now: Now) -> SocketAddr {
    let [answer, _] = one.challenges(from, Some(&key(1)), now);
    one.handle_note(&Note { port: from.port(), answer, ..roster(1, "town").note(0, 0) }, from, now);
    one.members()[&key(1)].tunnel
}

#[test]
fn impostor_addresses_delay_a_member_by_one_round() {
    for forged in [1, 2, 5] {
        let mut one = roster(9, "town");
        let mut now = Now::from_secs(1000);
        tell(&mut one, address(1), now);
        one.handle_link(&key(1), true, now);
        one.handle_link(&key(1), false, now);
        // A forger is heard all the time, from all its addresses and ports; the member every five seconds.
        let (mut there, mut looked_for) = (0, BTreeMap::<SocketAddr, u32>::new());
        for second in 0..600 {
            for port in 0..4 {
                (0..forged).for_each(|at| {
                    tell(&mut one, SocketAddr::new(address(50 + at).ip(), 7400 + port), now);
                });
            }
            // It is away at first: the others are taken in.
            if second >= 60 && second % 5 == 0 {
                tell(&mut one, address(1), now);
            }
            now += Now::from_secs(1);
            one.handle_timeout(now, 0);
            let at = one.members()[&key(1)].tunnel;
            *looked_for.entry(at).or_default() += 1;
            there += u32::from(second >= 60 && at == address(1));
        }
        let fair = 540 / (forged as u32 + 1);
        assert!(there >= fair / 2, "{forged} addresses: {looked_for:?}");
        assert!(looked_for.values().all(|seconds| *seconds >= 20), "{looked_for:?}");
        assert!(one.members()[&key(1)].tried.len() <= 1 + forged);
    }
}

#[test]
fn vain_address_does_not_flap_and_working_one_stays() {
    let mut one = roster(9, "town");
    let mut now = Now::from_secs(1000);
    let mut moves = Vec::new();
    for second in 0..100 {
        let before = tell(&mut one, address(1), now);
        if tell(&mut one, address(2), now) != before {
            moves.push(second);
        }
        now += Now::from_secs(1);
    }
    // Each has time to come up. The first is heard first in its second turn too.
    assert_eq!(moves, [20, 70]);
    one.handle_link(&key(1), true, now);
    let at = one.members()[&key(1)].tunnel;
    for _ in 0..300 {
        one.handle_link(&key(1), true, now);
        assert_eq!([address(1), address(2)].map(|from| tell(&mut one, from, now)), [at; 2]);
        now += Now::from_secs(1);
    }
    // A short outage of the link does not make it move.
    one.handle_link(&key(1), false, now);
    now += STAYS - Now::from_millis(1);
    assert_eq!([address(1), address(2)].map(|from| tell(&mut one, from, now)), [at; 2]);
}

#[test]
fn tried_addresses_are_bounded() {
    let mut one = roster(9, "town");
    for at in 0..100 {
        let now = Now::from_secs(1000) + STAYS * at;
        assert_eq!(tell(&mut one, address(at as usize), now), address(at as usize));
    }
    assert_eq!(one.members()[&key(1)].tried.len(), MAX_TRIED);
}

#[test]
fn moved_member_is_followed_once_its_old_address_is_silent() {
    let mut one = roster(9, "town");
    let start = Now::from_secs(1000);
    assert_eq!(tell(&mut one, address(1), start), address(1));
    assert_eq!(tell(&mut one, address(2), start + Now::from_secs(5)), address(1));
    one.handle_link(&key(1), true, start);
    assert_eq!(tell(&mut one, address(2), start + Now::from_secs(50)), address(1), "its link is up");
    one.handle_link(&key(1), false, start + Now::from_secs(50));
    assert_eq!(tell(&mut one, address(2), start + Now::from_secs(71)), address(2));
}

proptest! {
    #[test]
    fn bounds_hold_for_any_notes_from_anywhere(
        notes in prop::collection::vec((0usize..60, 0usize..60, any::<u64>(), any::<bool>(), 0u64..30_000), 0..300)
    ) {
        let mut one = roster(100, "town");
        let mut now = Now::from_secs(100);
        for (who, from, challenge, knows, elapsed_ms) in notes {
            now += Now::from_millis(elapsed_ms);
            let asked = one.challenges(address(from), Some(&key(who)), now)[0];
            let answer = if knows { asked } else { challenge };
            let others = vec![address(who), address(from)];
            let note = Note { challenge, answer, others, ..roster(who, "town").note(0, 0) };
            one.handle_note(&note, address(from), now);
            one.handle_timeout(now, challenge);
            while let Some(Output::Send(_, note) | Output::Announce(note)) = one.poll_output() {
                prop_assert!(note.others.len() <= MAX_OTHERS && note.public_key == key(100));
            }
            prop_assert!(one.members().len() <= MAX_FOUND && one.hinted.len() <= MAX_HINTED);
            prop_assert!(one.poll_timeout() > now);
        }
    }
}
