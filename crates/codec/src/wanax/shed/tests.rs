//! Algorithm 1 against a literal twin, and what it promises.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

/// Algorithm 1 line by line, in quadratic time, with the departures of the design: a disk without any of the block's
/// chunks does not count, chunks the far side would not bring sooner are not moved, sharers of the line take turns,
/// chunks coming with one read are moved together, and a fast disk is not shed of any.
fn twin(entries: &[Entry], disks: &[Disk], path: &Path) -> Vec<Source> {
    let mut sources: Vec<Source> = entries.iter().map(|entry| entry.source).collect();
    loop {
        let times = |disk: usize| {
            let there = (0..entries.len()).filter(|at| sources[*at] == Source::Disk(disk as u16));
            let reads = there.map(|at| entries[at].read).collect::<BTreeSet<u64>>().len();
            (reads > 0 && disks[disk].service_time >= LEAST_SLOW)
                .then(|| (disks[disk].queued + reads as u32) * disks[disk].service_time)
        };
        let last = (0..disks.len()).filter_map(|disk| Some((times(disk)?, disk))).max();
        let Some((slowest, k)) = last else { return sources };
        let with = |read: u64| {
            let same = move |at: &usize| entries[*at].read == read;
            (0..entries.len()).filter(same).filter(|at| sources[*at] == Source::Disk(k as u16))
        };
        let brings = |read: u64| with(read).map(|at| u64::from(entries[at].len)).sum::<u64>();
        let smallest = (0..entries.len())
            .filter(|at| sources[*at] == Source::Disk(k as u16))
            .min_by_key(|at| brings(entries[*at].read))
            .map(|at| with(entries[at].read).collect::<Vec<usize>>())
            .unwrap();
        let missing = (0..entries.len()).filter(|at| sources[*at] == Source::Far);
        let bytes: u64 = missing.chain(smallest.clone()).map(|at| u64::from(entries[at].len)).sum();
        let own = path.pending + bytes;
        let nanos = u128::from(own + own.min(path.others)) * 1_000_000_000 / u128::from(path.bytes_per_s);
        if path.round_trip + Now::from_nanos(nanos as u64) >= slowest {
            return sources;
        }
        smallest.into_iter().for_each(|at| sources[at] = Source::Far);
    }
}

fn entries(disks: u16) -> impl Strategy<Value = Vec<Entry>> {
    let source = prop_oneof![4 => (0..disks).prop_map(Source::Disk), 1 => Just(Source::Far)];
    let len = prop_oneof![Just(128u32), Just(1024), Just(8192), Just(65536), 1u32..70_000];
    // Some come together, others alone.
    let entry = (len, source, prop_oneof![0u64..6, any::<u64>()]);
    prop::collection::vec(entry.prop_map(|(len, source, read)| Entry { len, source, read }), 0..60)
}

fn disks(count: usize) -> impl Strategy<Value = Vec<Disk>> {
    let disk = (0u32..50, 0u64..20_000)
        .prop_map(|(queued, micros)| Disk { queued, service_time: Now::from_micros(micros) });
    prop::collection::vec(disk, count)
}

fn paths() -> impl Strategy<Value = Path> {
    let (rate, bytes) = (prop_oneof![8_000u64..100_000_000, Just(64_000)], || 0u64..200_000);
    (0u64..1000, rate, bytes(), prop_oneof![Just(0), bytes()]).prop_map(
        |(round_trip_ms, bytes_per_s, pending, others)| Path {
            round_trip: Now::from_millis(round_trip_ms),
            bytes_per_s,
            pending,
            others,
        },
    )
}

fn plan(entries: &[Entry], disks: &[Disk], path: &Path) -> Vec<Source> {
    Planner::default().plan(entries, disks, path).to_vec()
}

fn on_disk(sources: &[Source]) -> usize {
    sources.iter().filter(|source| **source != Source::Far).count()
}

proptest! {
    #[test]
    fn it_plans_as_the_algorithm_says(entries in entries(3), disks in disks(3), path in paths()) {
        prop_assert_eq!(plan(&entries, &disks, &path), twin(&entries, &disks, &path));
    }

    #[test]
    fn used_planner_plans_the_same(
        first in entries(3), second in entries(2), disks in disks(3), path in paths(),
    ) {
        let mut planner = Planner::default();
        planner.plan(&first, &disks, &path);
        prop_assert_eq!(planner.plan(&second, &disks[..2], &path), &plan(&second, &disks[..2], &path)[..]);
    }

    #[test]
    fn shedding_never_makes_a_block_later(entries in entries(3), disks in disks(3), path in paths()) {
        let kept: Vec<Source> = entries.iter().map(|entry| entry.source).collect();
        let before = Expected::of(&entries, &kept, &disks, &path).complete();
        let sources = plan(&entries, &disks, &path);
        prop_assert!(Expected::of(&entries, &sources, &disks, &path).complete() <= before);
    }

    #[test]
    fn no_choice_of_one_disk_completes_a_block_sooner(
        entries in entries(1).prop_map(|mut entries| { entries.truncate(10); entries }),
        mut disks in disks(1),
        path in paths(),
    ) {
        disks[0].service_time = disks[0].service_time.max(LEAST_SLOW);
        let sources = plan(&entries, &disks, &path);
        let planned = Expected::of(&entries, &sources, &disks, &path).complete();
        for choice in 0u32..1 << entries.len() {
            let chosen: Vec<Source> = (0..entries.len())
                .map(|at| if choice >> at & 1 == 1 { Source::Far } else { entries[at].source })
                .collect();
            prop_assert!(planned <= Expected::of(&entries, &chosen, &disks, &path).complete());
        }
    }

    #[test]
    fn longer_queue_keeps_nothing_shed_by_a_shorter_one(
        entries in entries(1), disks in disks(1), path in paths(), more in 1u32..100,
    ) {
        let shorter = plan(&entries, &disks, &path);
        let longer = [Disk { queued: disks[0].queued + more, ..disks[0] }];
        for (longer, shorter) in plan(&entries, &longer, &path).into_iter().zip(shorter) {
            prop_assert!(longer == Source::Far || shorter != Source::Far);
        }
    }

    #[test]
    fn nothing_is_shed_while_no_rate_is_known(entries in entries(3), disks in disks(3), path in paths()) {
        let unknown = Path { bytes_per_s: 0, ..path };
        let kept: Vec<Source> = entries.iter().map(|entry| entry.source).collect();
        prop_assert_eq!(plan(&entries, &disks, &unknown), kept);
    }
}

proptest! {
    #[test]
    fn fast_disks_are_not_shed(
        entries in entries(3), disks in disks(3), path in paths(), micros in 0u64..500,
    ) {
        let fast: Vec<Disk> = disks
            .into_iter()
            .map(|disk| Disk { service_time: Now::from_micros(micros), ..disk })
            .collect();
        let kept: Vec<Source> = entries.iter().map(|entry| entry.source).collect();
        prop_assert_eq!(plan(&entries, &fast, &path), kept);
    }
}

const MEGABIT: u64 = 125_000;

fn path(round_trip_ms: u64, megabits_per_s: u64) -> Path {
    let round_trip = Now::from_millis(round_trip_ms);
    Path { round_trip, bytes_per_s: megabits_per_s * MEGABIT, pending: 0, others: 0 }
}

fn local(lens: &[u32]) -> Vec<Entry> {
    lens.iter().zip(0..).map(|(len, read)| Entry { len: *len, source: Source::Disk(0), read }).collect()
}

const DISK: Disk = Disk { queued: 0, service_time: Now::from_millis(10) };

#[test]
fn disk_at_a_fast_line_is_shed_from_half_millisecond() {
    let entries = local(&[4096; 100]);
    let reads = |micros| {
        let disk = Disk { queued: 100, service_time: Now::from_micros(micros) };
        on_disk(&plan(&entries, &[disk], &path(0, 10_000)))
    };
    assert_eq!((reads(499), reads(500)), (100, 0));
}

#[test]
fn the_smallest_goes_first_and_the_first_of_equals() {
    // The disk would take 50 ms; two chunks of 1,000 bytes are there after 36 ms, a third only after 44 ms.
    let entries = local(&[1000, 60_000, 1000, 1000, 60_000]);
    let sources = plan(&entries, &[DISK], &path(20, 1));
    let far: Vec<bool> = sources.into_iter().map(|source| source == Source::Far).collect();
    assert_eq!(far, [true, false, true, false, false]);
}

#[test]
fn slow_link_sheds_nothing_and_a_fast_one_small_chunks() {
    let entries = local(&[128, 128, 1024, 1024, 8192, 65_536]);
    assert_eq!(on_disk(&plan(&entries, &[DISK], &path(200, 1))), 6, "the round trip alone takes longer");
    assert_eq!(on_disk(&plan(&entries, &[DISK], &path(1, 50))), 1, "the largest takes longer than a seek");
    assert_eq!(on_disk(&plan(&entries, &[DISK], &path(1, 5000))), 0);
}

#[test]
fn hanging_disk_is_left_alone() {
    let hung = Disk { queued: 4, service_time: Now::from_secs(3600) };
    let entries = local(&[128, 1024, 65_536]);
    assert_eq!(on_disk(&plan(&entries, &[hung], &path(500, 1))), 0);
}

#[test]
fn pending_network_requests_count() {
    let entries = local(&[1000; 20]);
    let free = path(20, 1);
    let busy = Path { pending: 12_500, ..free };
    let reads = |path: &Path| on_disk(&plan(&entries, &[DISK], path));
    assert_eq!((reads(&free), reads(&busy)), (10, 16), "a tenth of a second of bytes is under way");
}

#[test]
fn sharers_of_a_line_take_turns() {
    let entries = local(&[1000; 20]);
    let reads = |others| on_disk(&plan(&entries, &[DISK], &Path { others, ..path(20, 1) }));
    // Of ten chunks the network brings alone the last comes after 100 ms.
    assert_eq!([0, 3000, 1 << 40].map(reads), [10, 11, 13]);
}

#[test]
fn disk_without_chunks_holds_nothing_up() {
    let busy = Disk { queued: 1000, ..DISK };
    let entries = local(&[1000, 1000]);
    assert_eq!(on_disk(&plan(&entries, &[DISK, busy], &path(100, 1))), 2);
}

#[test]
fn disks_share_the_work_and_the_busier_one_sheds() {
    let busy = Disk { queued: 8, ..DISK };
    let entries: Vec<Entry> =
        (0..8).map(|at| Entry { len: 1000, source: Source::Disk(at % 2), read: at.into() }).collect();
    let sources = plan(&entries, &[DISK, busy], &path(40, 1));
    assert_eq!(sources.iter().filter(|source| **source == Source::Disk(0)).count(), 4);
    assert_eq!(
        sources.iter().filter(|source| **source == Source::Disk(1)).count(),
        0,
        "80 ms of others' reads"
    );
}

#[test]
fn an_entry_on_no_known_disk_comes_from_afar() {
    let entries = [Entry { len: 9, source: Source::Disk(7), read: 0 }];
    assert_eq!(plan(&entries, &[DISK], &path(1, 1)), [Source::Far]);
}

#[test]
fn chunks_of_one_read_are_shed_together() {
    let mut entries = local(&[100, 100, 100, 100, 1000]);
    entries[..4].iter_mut().for_each(|entry| entry.read = 77);
    // Two reads take 20 ms, the four small chunks 6 ms over the network; the large one then takes longer there.
    let sources = plan(&entries, &[DISK], &path(1, 1));
    let far: Vec<bool> = sources.into_iter().map(|source| source == Source::Far).collect();
    assert_eq!(far, [true, true, true, true, false]);
    // With more behind the same read it is the other way round.
    entries[..4].iter_mut().for_each(|entry| entry.len = 500);
    let sources = plan(&entries, &[DISK], &path(1, 1));
    let far: Vec<bool> = sources.into_iter().map(|source| source == Source::Far).collect();
    assert_eq!(far, [false, false, false, false, true]);
}
