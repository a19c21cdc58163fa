//! The controller against a model of encoder, path, other load and demand.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;
use crate::Layers;
use crate::entropy::Entropy;

/// What a rung truly takes, of which the controller sees only what it tries.
#[derive(Clone, Copy, Debug)]
struct Truth {
    /// Nanoseconds of CPU for each plain byte.
    cost: f64,
    share: f64,
}

/// A sender on a path, in steps of a tick.
struct World {
    truth: Vec<Truth>,
    /// How many times longer everything takes for other load.
    stretch: f64,
    /// Whether other load leaves alone who takes less than its share, as fair schedulers do.
    fair: bool,
    /// The part of what estimates promise that coded blocks deliver under load.
    kept: f64,
    /// Plain bytes a nanosecond that the far end rebuilds of coded blocks under load; lanes have nothing to send meanwhile.
    far: f64,
    /// Nanoseconds of the sender's other work for each wire byte.
    rest: f64,
    /// Wire bytes a nanosecond.
    link: f64,
    /// Plain bytes a nanosecond that applications give.
    demand: f64,
    /// Measurements are off by up to this part.
    noise: f64,
    rng: Pcg64Mcg,
    now: Now,
    controller: Controller,
    /// Rate and rung of each tick.
    trace: Vec<(f64, usize)>,
}

const TICK: Now = Now::from_millis(200);
const MEGABIT: f64 = 1.25e-4;

impl World {
    /// Text-like content: zstd 3 at 140 MB/s, nothing at all at 5 GB/s.
    fn new(plan: Plan, seed: u64) -> Self {
        let controller = Controller::new(plan, &[]);
        let truth = controller.rungs.iter().map(|cut| truth(cut.apply(&plan).as_ref())).collect();
        Self {
            truth,
            stretch: 1.0,
            fair: seed.is_multiple_of(2),
            kept: 1.0,
            far: f64::INFINITY,
            rest: 1.5,
            link: 400.0 * MEGABIT,
            demand: f64::INFINITY,
            noise: 0.08,
            rng: Pcg64Mcg::seed_from_u64(seed),
            now: Now::ZERO,
            controller,
            trace: Vec::new(),
        }
    }

    fn sender_rate(&self, rung: usize) -> f64 {
        let Truth { cost, share } = self.truth[rung];
        1.0 / (self.stretch * (cost + self.rest * share))
    }

    fn rate(&self, rung: usize) -> f64 {
        let is_slowed = rung + 1 < self.truth.len() && self.stretch > 1.0;
        let kept = if is_slowed { self.kept } else { 1.0 };
        kept * self.sender_rate(rung).min(self.link / self.truth[rung].share).min(self.asked(rung))
    }

    /// What is there to be sent.
    fn asked(&self, rung: usize) -> f64 {
        let is_slowed = rung + 1 < self.truth.len() && self.stretch > 1.0;
        if is_slowed { self.demand.min(self.far) } else { self.demand }
    }

    fn best(&self) -> f64 {
        (0..self.truth.len()).map(|rung| self.rate(rung)).fold(0.0, f64::max)
    }

    fn uncoded(&self) -> f64 {
        self.rate(self.truth.len() - 1)
    }

    fn off(&mut self, value: f64) -> f64 {
        let unit = self.rng.next_u32() as f64 / f64::from(u32::MAX) * 2.0 - 1.0;
        value * (1.0 + self.noise * unit)
    }

    fn tick(&mut self) {
        let rung = self.controller.rung();
        let Truth { cost, share } = self.truth[rung];
        let rate = self.rate(rung);
        let plain = rate * nanos(TICK);
        let working = plain / self.sender_rate(rung);
        let asked = self.asked(rung);
        let waits_for_link = self.link / share <= self.sender_rate(rung).min(asked);
        let idle = asked <= rate;
        let busy = plain * (cost + self.rest * share);
        let working = if self.fair && (idle || waits_for_link) { busy } else { working };
        let active = if idle { working.min(nanos(TICK)) } else { nanos(TICK) };
        let blocked = if waits_for_link { (active - working).max(0.0) } else { 0.0 };
        let time = |nanos: f64| Now::from_nanos(nanos as u64);
        let unused = if self.stretch > 1.0 { 0.0 } else { 1.0 - busy / (2.0 * nanos(TICK)) };
        let load = Load {
            span: TICK,
            active: time(active),
            blocked: time(blocked),
            encoding: time(self.off(plain * cost)),
            writing: time(self.off(plain * self.rest * share)),
            idle_permille: (1000.0 * unused) as u32,
            plain: plain as u64,
            wire: self.off(plain * share) as u64,
        };
        self.now += TICK;
        self.controller.handle_load(load, self.now);
        self.trace.push((rate, rung));
    }

    /// Runs for some seconds and returns the mean rate over the last `of`.
    fn run(&mut self, seconds: u64, of: u64) -> f64 {
        let ticks = |seconds: u64| (Now::from_secs(seconds).as_millis() / TICK.as_millis()) as usize;
        (0..ticks(seconds)).for_each(|_| self.tick());
        let last = &self.trace[self.trace.len() - ticks(of)..];
        last.iter().map(|(rate, _)| rate).sum::<f64>() / last.len() as f64
    }

    /// Changes of the rung over the last seconds.
    fn changes(&self, seconds: u64) -> usize {
        let from = self.trace.len() - seconds as usize * 5;
        self.trace[from..].windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }
}

fn truth(plan: Option<&Plan>) -> Truth {
    let Some(plan) = plan else { return Truth { cost: 0.15, share: 1.0 } };
    let (cost, share) = match plan.entropy {
        Entropy::None => (0.0, 0.72),
        Entropy::Lz4 => (1.6, 0.52),
        Entropy::Zstd(1) => (3.0, 0.40),
        Entropy::Zstd(3) => (5.5, 0.36),
        Entropy::Zstd(6) => (15.0, 0.33),
        Entropy::Zstd(_) => (30.0, 0.31),
    };
    let coarse = (f64::from(plan.period) / 64.0).log2();
    Truth { cost: 1.2 + cost - 0.1 * coarse, share: share + 0.015 * coarse }
}

fn plan(entropy: Entropy) -> Plan {
    Plan { entropy, ..Plan::default() }
}

fn seeds() -> impl Iterator<Item = u64> {
    1..=12
}

#[test]
fn a_link_that_is_slower_than_the_encoder_keeps_the_configured_plan() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(3)), seed);
        world.link = 20.0 * MEGABIT;
        world.run(60, 60);
        assert_eq!(world.controller.stats().changes, 0, "seed {seed}");
    }
}

#[test]
fn a_fast_link_is_believed_late_while_nobody_else_wants_the_processors_and_soon_otherwise() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(3)), seed);
        world.link = f64::INFINITY;
        world.run(9, 9);
        assert_eq!(world.controller.rung(), 0, "seed {seed}");
        world.run(6, 6);
        assert!(world.controller.rung() > 0, "seed {seed}");
        let mut loaded = World::new(plan(Entropy::Zstd(3)), seed);
        (loaded.link, loaded.stretch) = (f64::INFINITY, 4.0);
        loaded.run(2, 2);
        assert!(loaded.controller.rung() > 0, "seed {seed}");
    }
}

#[test]
fn what_no_estimate_shows_is_found_out_by_what_is_delivered() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        (world.link, world.stretch, world.kept) = (f64::INFINITY, 6.0, 0.4);
        let rate = world.run(120, 110);
        assert!(rate >= 0.9 * world.uncoded(), "seed {seed}: {rate} of {}", world.uncoded());
        world.stretch = 1.0;
        world.link = 400.0 * MEGABIT;
        world.run(90, 30);
        assert!(world.controller.rung() + 1 < world.truth.len(), "seed {seed}");
    }
}

#[test]
fn under_a_load_that_comes_suddenly_it_is_soon_known_whether_no_coding_is_faster() {
    for seed in seeds() {
        for (link, is_faster) in [(f64::INFINITY, true), (30.0 * MEGABIT, false)] {
            let mut world = World::new(plan(Entropy::Zstd(6)), seed);
            world.link = link;
            world.run(9, 1);
            world.stretch = 8.0;
            world.run(3, 1);
            let (rung, last) = (world.controller.rung(), world.truth.len() - 1);
            assert_eq!(rung == last, is_faster, "seed {seed}: rung {rung}");
            let rate = world.run(10, 10);
            assert!(rate >= 0.9 * world.uncoded(), "seed {seed}: {rate} of {}", world.uncoded());
        }
    }
}

#[test]
fn a_load_that_was_there_before_the_link_is_met_as_soon() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        (world.link, world.stretch) = (f64::INFINITY, 8.0);
        world.run(2, 1);
        assert_eq!(world.controller.rung(), world.truth.len() - 1, "seed {seed}");
    }
}

#[test]
fn what_a_full_path_has_no_room_for_is_not_looked_at() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        world.link = 60.0 * MEGABIT;
        world.run(9, 1);
        world.stretch = 6.0;
        let before = world.trace.len();
        let rate = world.run(15, 10);
        let last = world.truth.len() - 1;
        assert!(world.trace[before..].iter().all(|(_, rung)| *rung < last), "seed {seed}");
        assert!(rate >= 0.9 * world.best(), "seed {seed}: {rate} of {}", world.best());
    }
}

#[test]
fn where_no_coding_fills_the_path_the_rung_that_it_leaves_time_for_is_soon_found() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        world.link = 200.0 * MEGABIT;
        world.run(9, 1);
        (world.stretch, world.kept) = (8.0, 0.7);
        let rate = world.run(15, 15);
        assert!(rate >= 0.9 * world.uncoded(), "seed {seed}: {rate} of {}", world.uncoded());
        let last = &world.trace[world.trace.len() - 75..];
        let sum =
            |wire: &dyn Fn(usize) -> f64| last.iter().map(|(rate, rung)| rate * wire(*rung)).sum::<f64>();
        let saved = 1.0 - sum(&|rung| world.truth[rung].share) / sum(&|_| 1.0);
        assert!(saved >= 0.3, "seed {seed}: {saved}");
    }
}

#[test]
fn a_richer_rung_that_failed_is_not_tried_again_because_its_failure_leaves_time() {
    for seed in seeds() {
        for (entropy, link) in [(6, 200.0), (6, 260.0), (9, 100.0)] {
            let mut world = World::new(plan(Entropy::Zstd(entropy)), seed);
            world.link = link * MEGABIT;
            let rate = world.run(120, 100);
            let at = format!("zstd:{entropy}, {link} Mbit/s, seed {seed}");
            assert!(rate >= 0.9 * world.best(), "{at}: {rate} of {}", world.best());
            assert!(world.changes(100) <= 28, "{at}: {} changes", world.changes(100));
        }
    }
}

#[test]
fn what_a_cheaper_rung_delivered_under_load_says_nothing_once_the_load_has_gone() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        world.link = f64::INFINITY;
        world.controller.left = Some(Left { rung: 1, delivered: 0.5 * world.rate(0) });
        let rate = world.run(40, 20);
        assert!(rate >= 0.9 * world.best(), "seed {seed}: {rate} of {}", world.best());
    }
}

#[test]
fn where_a_step_up_delivers_far_less_the_rungs_between_are_not_tried_one_by_one() {
    for seed in seeds() {
        for (entropy, link) in [(6, 200.0), (6, 400.0), (1, 200.0), (1, 400.0)] {
            let mut world = World::new(plan(Entropy::Zstd(entropy)), seed);
            world.link = link * MEGABIT;
            world.run(9, 1);
            (world.stretch, world.kept) = (8.0, 0.4);
            let rate = world.run(15, 15);
            let at = format!("zstd:{entropy}, {link} Mbit/s, seed {seed}: {rate}");
            assert!(rate >= 0.85 * world.uncoded(), "{at} of {}", world.uncoded());
        }
    }
}

#[test]
fn a_far_end_that_does_not_keep_up_with_coded_blocks_is_found_out_too() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(1)), seed);
        (world.link, world.stretch, world.fair) = (f64::INFINITY, 3.0, false);
        world.far = 0.3 * world.uncoded();
        world.controller.enter(world.truth.len() - 1, Reason::EncoderBound);
        let rate = world.run(120, 110);
        assert!(rate >= 0.9 * world.uncoded(), "seed {seed}: {rate} of {}", world.uncoded());
    }
}

#[test]
fn where_others_want_the_processors_no_step_up_is_tried_before_it_is_known_what_to_compare_it_with() {
    let mut world = World::new(plan(Entropy::Zstd(6)), 1);
    (world.link, world.stretch, world.fair) = (f64::INFINITY, 6.0, false);
    world.controller.enter(2, Reason::EncoderBound);
    world.demand = 0.2 * world.sender_rate(0);
    world.now = Now::from_secs(100);
    for _ in 0..4 {
        world.tick();
        assert_eq!(world.controller.rung(), 2);
    }
    world.run(5, 1);
    assert!(world.controller.rung() < 2);
}

#[test]
fn a_transfer_of_less_than_a_second_keeps_the_configured_plan() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(9)), seed);
        (world.link, world.stretch) = (f64::INFINITY, 8.0);
        for _ in 0..4 {
            world.tick();
        }
        assert_eq!(world.controller.stats().changes, 0, "seed {seed}");
    }
}

#[test]
fn under_load_the_rate_is_near_the_best_and_savings_come_back_with_the_cpu() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        world.link = 120.0 * MEGABIT;
        world.run(10, 5);
        assert_eq!(world.controller.rung(), 0, "seed {seed}");
        world.stretch = 6.0;
        let rate = world.run(30, 25);
        assert!(rate >= 0.9 * world.best(), "seed {seed}: {rate} of {}", world.best());
        assert!(world.controller.rung() > 0, "seed {seed}");
        world.stretch = 1.0;
        world.run(5, 1);
        assert_eq!(
            (world.controller.rung(), world.controller.stats().reason),
            (0, Reason::Configured),
            "seed {seed}"
        );
    }
}

#[test]
fn whatever_is_configured_it_ends_near_the_best_rung_and_is_never_much_worse_than_no_coding() {
    for seed in seeds() {
        for entropy in [
            Entropy::None,
            Entropy::Lz4,
            Entropy::Zstd(1),
            Entropy::Zstd(3),
            Entropy::Zstd(9),
            Entropy::Zstd(19),
        ] {
            for (link, stretch) in
                [(10.0, 1.0), (100.0, 4.0), (400.0, 1.0), (400.0, 5.0), (2000.0, 1.0), (f64::INFINITY, 3.0)]
            {
                let mut world = World::new(plan(entropy), seed);
                (world.link, world.stretch) = (link * MEGABIT, stretch);
                let rate = world.run(150, 100);
                let at = format!("{entropy}, {link} Mbit/s, stretch {stretch}, seed {seed}: {rate}");
                assert!(rate >= 0.9 * world.best(), "{at} of {}", world.best());
                assert!(rate >= 0.9 * world.uncoded(), "{at}, uncoded {}", world.uncoded());
                assert!(world.changes(100) <= 28, "{at}: {} changes", world.changes(100));
            }
        }
    }
}

#[test]
fn a_load_that_comes_and_goes_is_followed_with_few_changes() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        world.link = 120.0 * MEGABIT;
        for turn in 0..8 {
            world.stretch = if turn % 2 == 0 { 1.0 } else { 6.0 };
            let rate = world.run(15, 10);
            assert!(rate >= 0.9 * world.best(), "seed {seed}, turn {turn}: {rate} of {}", world.best());
            assert!(world.changes(15) <= 8, "seed {seed}, turn {turn}: {} changes", world.changes(15));
        }
    }
}

#[test]
fn content_that_becomes_cheap_is_noticed() {
    let mut world = World::new(plan(Entropy::Zstd(6)), 1);
    (world.link, world.stretch) = (400.0 * MEGABIT, 4.0);
    world.run(30, 1);
    assert!(world.controller.rung() > 0);
    // Everything repeats now, and nothing is left for the entropy stage.
    world.truth[..].iter_mut().rev().skip(1).for_each(|truth| *truth = Truth { cost: 0.3, share: 0.02 });
    world.run(70, 1);
    assert_eq!(world.controller.rung(), 0);
}

#[test]
fn silence_brings_the_configured_plan_back() {
    let mut world = World::new(plan(Entropy::Zstd(6)), 1);
    (world.link, world.stretch) = (f64::INFINITY, 10.0);
    world.run(10, 1);
    assert!(world.controller.rung() > 0);
    world.demand = 0.0;
    world.run(3, 1);
    assert_eq!((world.controller.rung(), world.controller.stats().reason), (0, Reason::Configured));
}

#[test]
fn traffic_that_leaves_time_gets_the_configured_plan() {
    for seed in seeds() {
        let mut world = World::new(plan(Entropy::Zstd(6)), seed);
        (world.link, world.stretch) = (f64::INFINITY, 2.0);
        world.run(20, 1);
        assert!(world.controller.rung() > 0, "seed {seed}");
        world.demand = 0.3 * world.sender_rate(0);
        world.run(20, 1);
        assert_eq!(world.controller.rung(), 0, "seed {seed}");
        let changes = world.controller.stats().changes;
        world.run(100, 1);
        assert_eq!(world.controller.stats().changes, changes, "seed {seed}");
    }
}

#[test]
fn rungs_only_ever_take_away_and_each_makes_a_difference() {
    use oncewire_fingerprint::MarkerKind;
    for entropy in [Entropy::None, Entropy::Lz4, Entropy::Zstd(1), Entropy::Zstd(4), Entropy::Zstd(19)] {
        for matching in [crate::Matching::Max, crate::Matching::Chunk] {
            for (markers, period) in
                MarkerKind::ALL.into_iter().flat_map(|kind| [16, 64, 512, 4096].map(|p| (kind, p)))
            {
                let layers = [Layers::Log, Layers::Both, Layers::Names][period as usize / 16 % 3];
                let plan = Plan { layers, matching, markers, period, entropy, ..Plan::default() };
                let left: Vec<_> = ladder::rungs(&[plan]).iter().map(|cut| cut.apply(&plan)).collect();
                assert_eq!(left[0], Some(plan));
                assert_eq!(left.iter().filter(|plan| plan.is_none()).count(), 1, "{left:?}");
                assert_eq!(left.last(), Some(&None));
                for (at, pair) in left.windows(2).enumerate() {
                    assert_ne!(pair[0], pair[1], "rung {at} of {plan:?}");
                    let [Some(richer), Some(poorer)] = pair else { continue };
                    assert!(poorer.period >= richer.period && poorer.period <= period.max(512), "{left:?}");
                    assert!(poorer.layers == layers || poorer.layers == Layers::Log, "{left:?}");
                    let cost = |plan: &Plan| ladder::expected(Some(plan)).cost;
                    assert!(cost(poorer) <= cost(richer), "{left:?}");
                    assert!(
                        matching == crate::Matching::Max
                            || (poorer.markers, poorer.period) == (markers, period)
                    );
                }
            }
        }
    }
}

#[test]
fn slow_marker_choices_give_way_to_their_fast_relatives_before_anything_else_but_high_levels() {
    use oncewire_fingerprint::MarkerKind;
    for (slow, fast) in
        [(MarkerKind::ModpRabin, MarkerKind::Modp), (MarkerKind::MaxpStrict, MarkerKind::Maxp)]
    {
        let plan = Plan { markers: slow, ..plan(Entropy::Zstd(3)) };
        let left: Vec<_> = ladder::rungs(&[plan]).iter().filter_map(|cut| cut.apply(&plan)).collect();
        assert_eq!(left[1], Plan { entropy: Entropy::Zstd(1), ..plan });
        assert_eq!(left[2], Plan { entropy: Entropy::Zstd(1), markers: fast, ..plan });
    }
}

#[test]
fn names_are_given_up_before_periods_grow_far_and_never_where_there_is_nothing_else() {
    let layers_left = |layers| -> Vec<Layers> {
        let plan = Plan { layers, ..plan(Entropy::Zstd(1)) };
        ladder::rungs(&[plan]).iter().filter_map(|cut| cut.apply(&plan)).map(|plan| plan.layers).collect()
    };
    let both = layers_left(Layers::Both);
    assert_eq!(both[..3], [Layers::Both, Layers::Both, Layers::Log]);
    assert!(both[3..].iter().all(|layers| *layers == Layers::Log));
    assert!(layers_left(Layers::Names).iter().all(|layers| *layers == Layers::Names));
}

#[test]
fn a_flow_whose_plan_is_cheaper_than_the_peers_is_left_alone_as_long_as_possible() {
    let [rich, poor] = [plan(Entropy::Zstd(9)), plan(Entropy::None)];
    let rungs = ladder::rungs(&[rich, poor]);
    let changed = rungs.iter().position(|cut| cut.apply(&poor) != Some(poor)).unwrap();
    assert_eq!(rungs[changed].apply(&rich).unwrap().period, 128);
}

#[test]
fn a_controller_that_is_off_changes_nothing() {
    let mut world = World::new(plan(Entropy::Zstd(19)), 1);
    world.controller = Controller::off(plan(Entropy::Zstd(19)));
    (world.link, world.stretch) = (f64::INFINITY, 10.0);
    world.run(30, 1);
    let stats = world.controller.stats();
    assert_eq!((stats.rung, stats.rungs, stats.reason, stats.changes), (0, 1, Reason::Off, 0));
    assert_eq!(stats.plan, Some(plan(Entropy::Zstd(19))));
}

#[test]
fn absurd_loads_are_harmless() {
    let mut controller = Controller::new(Plan::default(), &[]);
    let mut rng = Pcg64Mcg::seed_from_u64(5);
    for at in 0..10_000u64 {
        let mut time = || Now::from_nanos(rng.next_u64() >> (rng.next_u32() % 64));
        let [span, active, blocked, encoding, writing] = std::array::from_fn(|_| time());
        let plain = time().as_nanos() as u64;
        let wire = time().as_nanos() as u64;
        controller.handle_load(
            Load { span, active, blocked, encoding, writing, idle_permille: at as u32, plain, wire },
            Now::from_millis(at * 200),
        );
        let stats = controller.stats();
        assert!(stats.rung < stats.rungs);
    }
}
