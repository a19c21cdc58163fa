use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const STORE: u64 = 5;

fn hints() -> Hints {
    let mut hints = Hints::new(1 << 20);
    hints.bind(STORE);
    hints
}

/// Spreads small numbers over all 64 bits, as a hash does.
pub(super) fn tag(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[test]
fn chunk_is_known_from_put_to_eviction() {
    let mut hints = hints();
    for len in [64, 300, 5000, 60_000] {
        assert!(!hints.lookup(tag(1), len, 1000));
        hints.insert(PackedTag::new(tag(1), len), 1000);
        assert!(hints.lookup(tag(1), len, 1000) && hints.lookup(tag(1), len, 1_000_000));
        assert!(!hints.lookup(tag(2), len, 1000));
    }
    hints.set_oldest(1000);
    assert!(hints.lookup(tag(1), 64, 2000));
    hints.set_oldest(1100);
    assert!(!hints.lookup(tag(1), 64, 2000));
    // Put again, it is there again.
    hints.insert(PackedTag::new(tag(1), 64), 2000);
    assert!(hints.lookup(tag(1), 64, 2000));
    assert_eq!(hints.len(), 4);
}

#[test]
fn repeated_put_keeps_its_time() {
    let mut hints = hints();
    hints.insert(PackedTag::new(tag(1), 64), 1000);
    hints.insert(PackedTag::new(tag(1), 64), 5000);
    hints.set_oldest(3000);
    assert!(!hints.lookup(tag(1), 64, 6000));
}

#[test]
fn read_chunk_stays_known_beyond_the_stores_age() {
    for (oldest, is_known_later) in [(1023, true), (992, false)] {
        let mut hints = hints();
        hints.insert(PackedTag::new(tag(1), 64), 992);
        hints.set_oldest(oldest);
        assert!(hints.lookup(tag(1), 64, 1023), "the two ends note times a little apart");
        hints.confirm(PackedTag::new(tag(1), 64), 1023);
        hints.confirm(PackedTag::new(tag(2), 64), 1023);
        assert_eq!(hints.len(), 1, "what is not known is not entered");
        // The store has evicted its old chunks since, but not those of somebody else.
        hints.set_oldest(1023);
        assert_eq!(hints.lookup(tag(1), 64, 1100), is_known_later, "{oldest}");
    }
}

#[test]
fn hints_outlive_a_clock_set_back() {
    let mut hints = hints();
    hints.insert(PackedTag::new(tag(1), 64), 1_000_000);
    hints.set_oldest(990_000);
    let mut hints = Hints::restore(1 << 20, &hints.save()).unwrap();
    assert!(hints.lookup(tag(1), 64, 500_000), "before the peer has said how far its store reaches back");
    hints.set_oldest(490_000);
    assert!(hints.lookup(tag(1), 64, 500_000));
    // It grows old as time catches up.
    hints.set_oldest(1_100_000);
    assert!(!hints.lookup(tag(1), 64, 1_200_000));
}

#[test]
fn only_denied_chunks_are_forgotten() {
    let mut hints = hints();
    (0..100).for_each(|number| hints.insert(PackedTag::new(tag(number), 64), 50));
    hints.forget(tag(7), 64);
    hints.forget(tag(8), 64 << 10);
    let known = (0..100).filter(|&number| hints.lookup(tag(number), 64, 50)).count();
    assert_eq!((known, hints.len()), (99, 99));
    assert!(!hints.lookup(tag(7), 64, 50));
}

#[test]
fn only_effective_changes_count() {
    let mut hints = hints();
    let chunk = |number| PackedTag::new(tag(number), 5000);
    let mut changes = hints.changes();
    let mut changed = |hints: &Hints| std::mem::replace(&mut changes, hints.changes()) != hints.changes();
    hints.insert(chunk(1), 1000);
    assert!(changed(&hints));
    hints.insert_told(chunk(2), 1000);
    assert!(changed(&hints));
    hints.insert(chunk(1), 2000);
    hints.insert_told(chunk(2), 2000);
    hints.forget(tag(3), 5000);
    hints.bind(STORE);
    let _ = (hints.lookup(tag(1), 5000, 2000), hints.save());
    assert!(!changed(&hints));
    hints.forget(tag(1), 5000);
    assert!(changed(&hints));
    hints.bind(STORE + 1);
    assert!(changed(&hints));
    // Again where the store no longer reaches back to the last time.
    hints.insert(chunk(1), 1000);
    assert!(changed(&hints));
    hints.set_oldest(1 << 20);
    hints.insert(chunk(1), 1 << 21);
    assert!(changed(&hints));
}

#[test]
fn another_store_begins_with_nothing() {
    let mut hints = hints();
    hints.insert(PackedTag::new(tag(1), 64), 50);
    hints.bind(STORE);
    assert!(hints.lookup(tag(1), 64, 50));
    hints.bind(STORE + 1);
    assert!(hints.is_empty());
}

#[test]
fn more_chunks_than_there_is_room_for_displace_the_oldest() {
    let mut hints = Hints::new(64 << 10);
    let room = 64 << 10 >> 4; // Half of the memory, 8 bytes each.
    for number in 0..2 * room {
        hints.insert(PackedTag::new(tag(number), 64 << 10), UNIT_SECS * number);
    }
    let now = UNIT_SECS * 2 * room;
    let known = |range: std::ops::Range<u64>| {
        range.filter(|&number| hints.lookup(tag(number), 64 << 10, now)).count() as u64
    };
    assert!(known(room * 3 / 2..2 * room) > room * 9 / 20, "{}", known(room * 3 / 2..2 * room));
    assert!(known(0..room / 2) < room / 20, "{}", known(0..room / 2));
    assert!(hints.memory() <= 64 << 10);
}

#[test]
fn oversized_burst_is_known_in_part_early_and_late() {
    let mut hints = Hints::new(64 << 10);
    let room = 64 << 10 >> 4;
    (0..2 * room).for_each(|number| hints.insert(PackedTag::new(tag(number), 64 << 10), 1000));
    let known = |range: std::ops::Range<u64>| {
        range.filter(|&number| hints.lookup(tag(number), 64 << 10, 1000)).count() as u64
    };
    let (early, late) = (known(0..room), known(room..2 * room));
    assert!(early > room / 4 && late > room / 2, "{early}, {late} of {room}");
}

#[test]
fn saved_hints_come_back_unless_damaged() {
    let mut hints = hints();
    (0..2000).for_each(|number| hints.insert(PackedTag::new(tag(number), 60 << (number % 11)), 50));
    hints.set_oldest(3);
    let saved = hints.save();
    let mut again = Hints::restore(1 << 20, &saved).unwrap();
    assert_eq!(again.save(), saved);
    assert_eq!(again.len(), hints.len());
    again.bind(STORE);
    assert!((0..2000).all(|number| again.lookup(tag(number), 60 << (number % 11), 50)));
    assert_eq!(Hints::restore(1 << 21, &saved).unwrap_err(), HintsError::OtherSize);
    assert_eq!(Hints::restore(1 << 20, b"owhints0").unwrap_err(), HintsError::Foreign);
    assert_eq!(Hints::restore(1 << 20, b"owhints1").unwrap_err(), HintsError::Damaged);
    assert_eq!(Hints::restore(1 << 20, &saved[..saved.len() - 8]).unwrap_err(), HintsError::Damaged);
    for at in (8..saved.len()).step_by(977) {
        let mut wrong = saved.clone();
        wrong[at] ^= 4;
        assert_eq!(Hints::restore(1 << 20, &wrong).unwrap_err(), HintsError::Damaged, "byte {at}");
    }
}

#[test]
fn nonsense_with_a_right_checksum_is_refused() {
    for len in [0, 8, 24, 32, 40, 1000] {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(vec![0xff; len]);
        let checksum = XxHash3_64::oneshot(&bytes[MAGIC.len()..]);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        assert!(Hints::restore(1 << 20, &bytes).is_err(), "{len}");
    }
}

#[test]
fn endless_announcements_displace_at_most_a_quarter_of_hints() {
    let mut hints = hints();
    let places = hints.table(0).entries.len() as u64;
    let seen = 0..places;
    seen.clone().for_each(|number| hints.insert(PackedTag::new(tag(number), 60_000), 1000 + number / 1000));
    let known =
        |hints: &Hints| seen.clone().filter(|&number| hints.lookup(tag(number), 60_000, 5000)).count();
    let before = known(&hints);
    (places..9 * places).for_each(|number| hints.insert_told(PackedTag::new(tag(number), 60_000), 5000));
    let after = known(&hints);
    println!("of {places} places, {before} and then {after} with what was acknowledged");
    assert!(after >= before * 3 / 4 - before / 50, "{after} of {before}");
    // What is acknowledged takes any place back.
    (9 * places..18 * places).for_each(|number| hints.insert(PackedTag::new(tag(number), 60_000), 6000));
    let told = (places..9 * places).filter(|&number| hints.lookup(tag(number), 60_000, 6000)).count();
    assert_eq!(told, 0);
}

#[test]
fn announced_chunk_is_known_until_denied() {
    let mut hints = hints();
    (0..2000).for_each(|number| hints.insert_told(PackedTag::new(tag(number), 60_000), 1000));
    assert_eq!((0..2000).filter(|&number| hints.lookup(tag(number), 60_000, 1000)).count(), 2000);
    hints.forget(tag(7), 60_000);
    assert!(!hints.lookup(tag(7), 60_000, 1000));
    assert_eq!(hints.len(), 1999);
}

proptest! {
    #[test]
    fn hints_agree_with_a_plain_map_while_there_is_room(
        steps in prop::collection::vec((0u8..8, 0u64..40, 0u32..5, 0u64..400), 1..200)
    ) {
        let mut hints = hints();
        let mut model: BTreeMap<(u64, u32), u64> = BTreeMap::new();
        let (mut now, mut oldest) = (10_000, 0);
        for (what, number, len, elapsed) in steps {
            let (len, number) = (40u32 << (3 * len), tag(number));
            let key = (number, class(len) as u32);
            // Times are rounded to units, and the reach by one more.
            let there = |put: u64| now / UNIT_SECS - put <= (now - oldest) / UNIT_SECS + 1;
            match what {
                0..3 => {
                    hints.insert(PackedTag::new(number, len), now);
                    let time = model.get(&key).copied().filter(|&put| there(put));
                    model.insert(key, time.unwrap_or(now / UNIT_SECS));
                }
                3 => {
                    hints.forget(number, len);
                    model.remove(&key);
                }
                4 => now += elapsed,
                5 => {
                    oldest = now - elapsed;
                    hints.set_oldest(oldest);
                }
                6 => hints = Hints::restore(1 << 20, &hints.save()).unwrap(),
                _ => {
                    let known = model.get(&key).is_some_and(|&put| there(put));
                    prop_assert_eq!(hints.lookup(number, len, now), known);
                }
            }
            prop_assert_eq!(hints.len(), model.len() as u64);
        }
    }
}

#[test]
fn a_stale_hint_hides_no_newer_one() {
    let mut hints = Hints::new(4096);
    hints.bind(STORE);
    // Others of its bucket come first, so the chunk stands at one of the first places.
    let chunk = tag(1);
    let table = &hints.tables[PackedTag::new(chunk, 5000).class()];
    let is_beside = |other: &u64| table.bucket(*other) == table.bucket(chunk);
    let others: Vec<u64> = (2..).map(tag).filter(is_beside).take(3).collect();
    for tag in others.iter().chain([&chunk]) {
        hints.insert(PackedTag::new(*tag, 5000), 1000);
    }
    hints.set_oldest(50_000);
    assert!(!hints.lookup(chunk, 5000, 60_000));
    hints.insert_told(PackedTag::new(chunk, 5000), 60_000);
    assert!(hints.lookup(chunk, 5000, 60_000));
    hints.forget(chunk, 5000);
    assert!(!hints.lookup(chunk, 5000, 60_000));
}

#[test]
fn neighbours_chunk_does_not_count_as_own() {
    // Told by a neighbour, or acknowledged by a store that lost it since.
    for is_told in [true, false] {
        let mut hints = hints();
        let (chunk, len) = (tag(1), 1000);
        match is_told {
            true => hints.insert_told(PackedTag::new(chunk, len), 992),
            false => hints.insert(PackedTag::new(chunk, len), 992),
        }
        assert_eq!(hints.is_own(chunk, len), !is_told);
        hints.set_oldest(1023);
        assert!(hints.confirm(PackedTag::new(chunk, len), 1023));
        assert!(hints.lookup(chunk, len, 1100) && !hints.is_own(chunk, len), "{is_told}");
        assert_eq!(hints.len(), 1);
    }
}

#[test]
fn own_chunk_stays_own_when_read() {
    let mut hints = hints();
    let (chunk, len) = (tag(1), 1000);
    hints.insert(PackedTag::new(chunk, len), 1000);
    hints.set_oldest(900);
    assert!(!hints.confirm(PackedTag::new(chunk, len), 1100));
    assert!(hints.is_own(chunk, len));
}
