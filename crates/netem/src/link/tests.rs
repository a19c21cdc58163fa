use proptest::prelude::*;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn link(params: LinkParams) -> Link<u32> {
    Link::new(params).unwrap()
}

/// Drains the link to its end: (arrival, packet) in order.
fn arrivals(link: &mut Link<u32>) -> Vec<(Now, u32)> {
    let mut all = Vec::new();
    while let Some(due) = link.next_due() {
        while let Some(packet) = link.poll(due) {
            all.push((due, packet));
        }
    }
    all
}

#[test]
fn a_perfect_link_delivers_at_once() {
    let mut link = link(LinkParams::default());
    assert_eq!(link.send(5 * MS, 1500, 1), Fate::Carried);
    assert_eq!(link.poll(5 * MS), Some(1));
    assert_eq!(link.poll(5 * MS), None);
    assert_eq!(link.next_due(), None);
}

#[test]
fn packets_are_serialised_at_the_rate_and_then_delayed() {
    let params = LinkParams { rate_bits_per_s: Some(12_000_000), delay: 40 * MS, ..LinkParams::default() };
    let mut link = link(params);
    for packet in 0..3 {
        link.send(Now::ZERO, 1500, packet);
    }
    // 1500 bytes at 12 Mbit/s take one millisecond each.
    assert_eq!(arrivals(&mut link), [(41 * MS, 0), (42 * MS, 1), (43 * MS, 2)]);
    link.send(100 * MS, 1500, 3);
    assert_eq!(link.poll(140 * MS), None);
    assert_eq!(link.next_due(), Some(141 * MS));
}

#[test]
fn a_full_queue_drops_by_time() {
    let params =
        LinkParams { rate_bits_per_s: Some(12_000_000), queue: Queue::Time(2 * MS), ..LinkParams::default() };
    let mut link = link(params);
    let fates: Vec<_> = (0..5).map(|n| link.send(Now::ZERO, 1500, n)).collect();
    assert_eq!(fates, [Fate::Carried, Fate::Carried, Fate::Carried, Fate::QueueFull, Fate::QueueFull]);
    assert_eq!(link.send(MS, 1500, 9), Fate::Carried, "room again after one packet left");
    assert_eq!(link.counters().queue_full, 2);
}

#[test]
fn a_full_queue_drops_by_bytes() {
    let params =
        LinkParams { rate_bits_per_s: Some(12_000_000), queue: Queue::Bytes(3000), ..LinkParams::default() };
    let mut link = link(params);
    assert_eq!(link.send(Now::ZERO, 1500, 0), Fate::Carried);
    assert_eq!(link.send(Now::ZERO, 1500, 1), Fate::Carried);
    assert_eq!(link.send(Now::ZERO, 100, 2), Fate::QueueFull);
    assert_eq!(link.send(MS, 1500, 3), Fate::Carried);
}

#[test]
fn packet_above_the_mtu_is_dropped_without_use_of_rate() {
    let mut link = link(LinkParams { rate_bits_per_s: Some(1000), ..LinkParams::default() });
    assert_eq!(link.send(Now::ZERO, 1501, 0), Fate::TooBig);
    assert_eq!(link.counters().carried, 0);
    assert_eq!(link.next_due(), None);
}

#[test]
fn a_lost_packet_has_used_the_rate() {
    let mut link = link(LinkParams { rate_bits_per_s: Some(12_000_000), loss: 1.0, ..LinkParams::default() });
    assert_eq!(link.send(Now::ZERO, 1500, 0), Fate::Lost);
    assert_eq!(link.counters().carried_bytes, 1500);
    link.params.loss = 0.0;
    link.send(Now::ZERO, 1500, 1);
    assert_eq!(link.next_due(), Some(2 * MS));
}

#[test]
fn jitter_alone_never_reorders_and_stays_in_its_band() {
    let params = LinkParams { delay: 50 * MS, jitter: 30 * MS, seed: 11, ..LinkParams::default() };
    let mut link = link(params);
    let gap = 100 * MS;
    for n in 0..500 {
        link.send(gap * n, 1500, n);
    }
    let (mut least, mut most) = (Duration::MAX, Duration::ZERO);
    for (at, n) in arrivals(&mut link) {
        let delay = at - gap * n;
        assert!(delay >= 20 * MS && delay <= 80 * MS, "{delay:?}");
        (least, most) = (least.min(delay), most.max(delay));
    }
    assert!(least < 25 * MS && most > 75 * MS, "{least:?} to {most:?}");

    for n in 0..500 {
        link.send(gap * 600, 1500, n);
    }
    let order: Vec<_> = arrivals(&mut link).into_iter().map(|(_, n)| n).collect();
    assert!(order.is_sorted());
}

#[test]
fn a_reordered_packet_gets_half_the_delay() {
    let params = LinkParams { delay: 40 * MS, reorder: 1.0, ..LinkParams::default() };
    let mut link = link(params);
    link.send(Now::ZERO, 100, 0);
    assert_eq!(link.next_due(), Some(20 * MS));
    assert_eq!(link.counters().reordered, 1);
}

#[test]
fn a_duplicated_packet_arrives_twice() {
    let mut link = link(LinkParams { duplicate: 1.0, ..LinkParams::default() });
    link.send(Now::ZERO, 100, 4);
    assert_eq!(arrivals(&mut link), [(Now::ZERO, 4), (Now::ZERO, 4)]);
    assert_eq!((link.counters().duplicated, link.counters().delivered), (1, 2));
}

#[test]
fn random_loss_and_bursts_meet_their_rates() {
    let count = 100_000;
    let lost = |params: LinkParams| {
        let mut link = link(params);
        (0..count).for_each(|n| {
            link.send(Now::ZERO, 100, n);
        });
        link.counters().lost as f64 / f64::from(count)
    };
    let random = lost(LinkParams { loss: 0.01, seed: 5, ..LinkParams::default() });
    assert!((0.009..0.011).contains(&random), "{random}");
    let gilbert = Some(Gilbert { p13: 0.005, p31: 0.3 });
    let bursts = lost(LinkParams { gilbert, seed: 5, ..LinkParams::default() });
    assert!((0.0145..0.018).contains(&bursts), "{bursts} where 1.64 % is expected");
}

#[test]
fn the_seed_decides_and_nothing_else() {
    let run = |seed, jitter| {
        let params = LinkParams { delay: 50 * MS, jitter, loss: 0.1, seed, ..LinkParams::default() };
        let mut link = link(params);
        (0..200).map(|n| link.send(MS * n, 100, n)).collect::<Vec<_>>()
    };
    assert_eq!(run(1, Duration::ZERO), run(1, Duration::ZERO));
    assert_ne!(run(1, Duration::ZERO), run(2, Duration::ZERO));
    assert_eq!(run(1, Duration::ZERO), run(1, 9 * MS), "jitter does not shift the losses");
}

#[test]
fn a_link_without_rate_holds_a_bounded_number() {
    let mut link = link(LinkParams { delay: MS, ..LinkParams::default() });
    for n in 0..MAX_PACKETS_HELD as u32 {
        assert_eq!(link.send(Now::ZERO, 100, n), Fate::Carried);
    }
    assert_eq!(link.send(Now::ZERO, 100, 0), Fate::QueueFull);
    assert_eq!(link.held(), MAX_PACKETS_HELD);
}

proptest! {
    #[test]
    fn every_packet_is_accounted_for(
        loss in 0.0..0.3f64,
        reorder in 0.0..0.3f64,
        duplicate in 0.0..0.3f64,
        rate in proptest::option::of(100_000u64..100_000_000),
        seed: u64,
        sends in proptest::collection::vec((0u64..3000, 40u32..1600), 1..200),
    ) {
        let params = LinkParams {
            rate_bits_per_s: rate, delay: 20 * MS, jitter: 5 * MS, loss, reorder, duplicate,
            queue: Queue::Time(30 * MS), seed, ..LinkParams::default()
        };
        let mut link = link(params);
        let mut now = Now::ZERO;
        for (gap_us, len) in sends {
            now += Duration::from_micros(gap_us);
            link.send(now, len, 0);
            while link.poll(now).is_some() {}
        }
        arrivals(&mut link);
        let c = link.counters();
        prop_assert_eq!(c.packets, c.queue_full + c.too_big + c.carried);
        prop_assert_eq!(c.carried + c.duplicated, c.lost + c.delivered);
    }
}

#[test]
fn changed_settings_hold_for_later_packets() {
    let mut link = link(LinkParams { delay: 40 * MS, ..LinkParams::default() });
    link.send(Now::ZERO, 1500, 0);
    link.set_params(LinkParams { delay: 50 * MS, loss: 1.0, ..LinkParams::default() }).unwrap();
    assert_eq!(link.send(MS, 1500, 1), Fate::Lost);
    link.set_params(LinkParams { delay: 10 * MS, ..LinkParams::default() }).unwrap();
    link.send(2 * MS, 1500, 2);
    link.send(60 * MS, 1500, 3);
    assert_eq!(arrivals(&mut link), [(40 * MS, 0), (40 * MS, 2), (70 * MS, 3)], "none overtakes another");
}

#[test]
fn settings_out_of_range_leave_the_old_ones() {
    let mut link = link(LinkParams { delay: 40 * MS, ..LinkParams::default() });
    assert_eq!(
        link.set_params(LinkParams { rate_bits_per_s: Some(0), ..LinkParams::default() }),
        Err(ParamsError::ZeroRate)
    );
    link.send(Now::ZERO, 1500, 0);
    assert_eq!(arrivals(&mut link), [(40 * MS, 0)]);
}

#[test]
fn the_same_seed_goes_on_and_another_starts_anew() {
    let lossy = LinkParams { loss: 0.5, seed: 7, ..LinkParams::default() };
    let fates = |link: &mut Link<u32>| (0..64).map(|n| link.send(Now::ZERO, 100, n)).collect::<Vec<_>>();
    let mut changed = link(lossy.clone());
    let mut left_alone = link(lossy.clone());
    let first = fates(&mut changed);
    assert_eq!(first, fates(&mut left_alone));
    changed.set_params(LinkParams { mtu: 1400, ..lossy.clone() }).unwrap();
    assert_eq!(fates(&mut changed), fates(&mut left_alone));
    changed.set_params(LinkParams { seed: 8, ..lossy.clone() }).unwrap();
    changed.set_params(lossy).unwrap();
    assert_eq!(fates(&mut changed), first);
}
