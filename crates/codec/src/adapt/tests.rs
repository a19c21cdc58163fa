//! The controller against a model of encoder, path, other load and demand.

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use super::*;
use crate::entropy::Entropy;

/// The true cost of each level; the controller sees only the levels it tries.
#[derive(Clone, Copy, Debug)]
struct Truth {
    /// Nanoseconds of CPU for each plain byte.
    cost: f64,
    /// Wire bytes for each plain byte.
    share: f64,
}

/// A sender on a path, in steps of a tick.
struct World {
    plan: Plan,
    /// The part of the content that is new.
    new: f64,
    /// How many times longer everything takes for other load.
    stretch: f64,
    /// Wire bytes a nanosecond.
    link: f64,
    /// Plain bytes a nanosecond that applications give.
    demand: f64,
    /// Rates are off by up to this part.
    noise: f64,
    rng: Pcg64Mcg,
    now: Now,
    controller: Controller,
    /// Rate and level of each tick.
    trace: Vec<(f64, usize)>,
}

const TICK: Now = Now::from_millis(200);
const MEGABIT: f64 = 1.25e-4;
/// Nanoseconds of the sender's other work for each wire byte.
const WRITING: f64 = 1.5;

impl World {
    /// Text-like content: zstd 3 at 140 MB/s.
    fn new(adapt: Adapt, entropy: Entropy, seed: u64) -> Self {
        let plan = Plan { entropy, ..Plan::default() };
        Self {
            plan,
            new: 1.0,
            stretch: 1.0,
            link: f64::INFINITY,
            demand: f64::INFINITY,
            noise: 0.04,
            rng: Pcg64Mcg::seed_from_u64(seed),
            now: Now::ZERO,
            controller: Controller::new(adapt, plan, &[]),
            trace: Vec::new(),
        }
    }

    fn truth(&self, level: usize) -> Truth {
        let Some(plan) = self.controller.levels[level].apply(&self.plan) else {
            return Truth { cost: 0.2, share: 1.0 };
        };
        let is_few = self.new <= 1.0 / FEW_SHARE as f64;
        let (cost, share) = match if is_few { plan.entropy } else { plan.entropy_of_new() } {
            Entropy::None => (0.0, 1.0),
            Entropy::Lz4 => (1.6, 0.6),
            Entropy::Zstd(1) => (3.0, 0.45),
            Entropy::Zstd(3) => (5.5, 0.4),
            Entropy::Zstd(_) => (15.0, 0.35),
        };
        Truth { cost: 0.5 + cost * self.new, share: 0.01 + share * self.new }
    }

    fn sender_rate(&self, level: usize) -> f64 {
        let Truth { cost, share } = self.truth(level);
        1.0 / (self.stretch * (cost + WRITING * share))
    }

    fn rate(&self, level: usize) -> f64 {
        self.sender_rate(level).min(self.link / self.truth(level).share).min(self.demand)
    }

    fn best(&self) -> f64 {
        (0..self.controller.levels.len()).map(|level| self.rate(level)).fold(0.0, f64::max)
    }

    fn tick(&mut self) {
        let level = self.controller.level();
        let unit = self.rng.next_u32() as f64 / f64::from(u32::MAX) * 2.0 - 1.0;
        let rate = self.rate(level) * (1.0 + self.noise * unit);
        let span = TICK.as_secs_f64() * 1e9;
        let plain = rate * span;
        let working = (plain / self.sender_rate(level)).min(span);
        let is_idle = self.demand <= self.rate(level);
        let active = if is_idle { working } else { span };
        let is_coded = self.controller.levels[level] != Level::Uncoded;
        let time = |nanos: f64| Now::from_nanos(nanos as u64);
        let load = Load {
            span: TICK,
            active: time(active),
            blocked: time(active - working),
            idle_permille: if self.stretch > 1.0 { 0 } else { 1000 - (500.0 * working / span) as u32 },
            plain: plain as u64,
            new: (plain * if is_coded { self.new } else { 1.0 }) as u64,
        };
        self.now += TICK;
        self.controller.handle_load(load, self.now);
        self.trace.push((rate, level));
    }

    /// Runs for some seconds and returns the mean rate over the last `of`.
    fn run(&mut self, seconds: u64, of: u64) -> f64 {
        (0..5 * seconds).for_each(|_| self.tick());
        let last = &self.trace[self.trace.len() - 5 * of as usize..];
        last.iter().map(|(rate, _)| rate).sum::<f64>() / last.len() as f64
    }

    /// Changes of the level over the last seconds.
    fn changes(&self, seconds: u64) -> usize {
        let from = self.trace.len() - seconds as usize * 5;
        self.trace[from..].windows(2).filter(|pair| pair[0].1 != pair[1].1).count()
    }

    fn stats(&self) -> AdaptStats {
        self.controller.stats()
    }
}

fn seeds() -> impl Iterator<Item = u64> {
    1..=12
}

/// A load without sense.
fn any_load(rng: &mut Pcg64Mcg) -> Load {
    let mut number = || rng.next_u64() >> (rng.next_u32() % 64);
    let [span, active, blocked] = std::array::from_fn(|_| Now::from_nanos(number()));
    let (plain, new, idle_permille) = (number(), number(), number() as u32);
    Load { span, active, blocked, idle_permille, plain, new }
}

/// A load as lanes have it; every other time, this end holds traffic up.
fn likely_load(rng: &mut Pcg64Mcg, is_held_up: bool) -> Load {
    let mut part = |of: u64| rng.next_u64() % (of + 1);
    let active = if is_held_up { 200 } else { part(200) };
    let blocked = if is_held_up { 0 } else { part(active) };
    let plain = part(40 << 20);
    let (new, idle_permille) = (part(plain), part(1000) as u32);
    let ms = Now::from_millis;
    Load { span: TICK, active: ms(active), blocked: ms(blocked), idle_permille, plain, new }
}

#[test]
fn savings_keep_finding_repeats_under_any_load() {
    let plans = [
        Plan::default(),
        Plan { layers: crate::Layers::Both, entropy: Entropy::Zstd(19), period: 16, ..Plan::default() },
        Plan { matching: crate::Matching::Chunk, entropy: Entropy::Lz4, ..Plan::default() },
        Plan { layers: crate::Layers::Names, entropy: Entropy::None, ..Plan::default() },
    ];
    for seed in seeds() {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        for is_likely in [false, true] {
            let mut controller = Controller::new(Adapt::Savings, plans[0], &plans[1..]);
            let mut lowered = false;
            for at in 0..5000u64 {
                let is_held_up = at / 16 % 2 == 0;
                let load = if is_likely { likely_load(&mut rng, is_held_up) } else { any_load(&mut rng) };
                controller.handle_load(load, TICK * at as u32);
                for plan in &plans {
                    let left = controller.apply(plan).unwrap_or_else(|| panic!("seed {seed}: not coded"));
                    lowered |= left.busy_entropy.is_some();
                    assert_eq!(Plan { busy_entropy: None, ..left }, *plan, "seed {seed}");
                }
            }
            assert!(lowered || !is_likely, "seed {seed}: no load had an effect");
        }
    }
}

#[test]
fn levels_of_any_load_are_in_range() {
    for (seed, adapt) in seeds().flat_map(|seed| [(seed, Adapt::Savings), (seed, Adapt::Speed)]) {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut controller = Controller::new(adapt, Plan::default(), &[]);
        for at in 0..5000u64 {
            controller.handle_load(any_load(&mut rng), TICK * at as u32);
            let stats = controller.stats();
            assert!(stats.level < stats.levels, "seed {seed}: {stats:?}");
        }
    }
}

#[test]
fn levels_take_the_entropy_stage_down_and_nothing_else() {
    let left = |entropy, adapt| -> Vec<Option<Entropy>> {
        let plan = Plan { entropy, ..Plan::default() };
        let levels = levels::levels(&[plan], adapt);
        levels.iter().map(|level| level.apply(&plan).map(|plan| plan.entropy_of_new())).collect()
    };
    let [zstd, lz4, none] = [Entropy::Zstd(1), Entropy::Lz4, Entropy::None].map(Some);
    assert_eq!(left(Entropy::Zstd(6), Adapt::Savings), [Some(Entropy::Zstd(6)), zstd, lz4, none]);
    assert_eq!(left(Entropy::Zstd(1), Adapt::Speed), [zstd, lz4, none, None]);
    assert_eq!(left(Entropy::None, Adapt::Savings), [none]);
    assert_eq!(left(Entropy::Zstd(6), Adapt::Off), [Some(Entropy::Zstd(6))]);
}

#[test]
fn few_new_bytes_keep_the_configured_entropy_at_any_level() {
    let plan = Plan { busy_entropy: Some(Entropy::None), ..Plan::default() };
    assert_eq!(plan.entropy_of(8192, 65536), Entropy::Zstd(3));
    assert_eq!(plan.entropy_of(8193, 65536), Entropy::None);
    assert_eq!(Plan::default().entropy_of(65536, 65536), Entropy::Zstd(3));
}

#[test]
fn slow_path_keeps_the_configured_plan() {
    for (seed, stretch) in seeds().flat_map(|seed| [(seed, 1.0), (seed, 4.0)]) {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(3), seed);
        (world.link, world.stretch) = (10.0 * MEGABIT, stretch);
        world.run(60, 1);
        assert_eq!(world.stats().changes, 0, "seed {seed}");
    }
}

#[test]
fn repeats_keep_the_configured_plan_under_load() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(3), seed);
        (world.stretch, world.new) = (8.0, 0.1);
        world.run(60, 1);
        assert_eq!(world.stats().changes, 0, "seed {seed}");
    }
}

#[test]
fn new_bytes_under_load_soon_get_no_entropy_stage() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(6), seed);
        world.stretch = 8.0;
        world.run(1, 1);
        let stats = world.stats();
        assert_eq!(stats.plan.unwrap().entropy, Entropy::None, "seed {seed}");
        assert_eq!(stats.reason, Reason::EncoderBound, "seed {seed}");
        let rate = world.run(60, 60);
        assert!(rate >= 0.95 * world.best(), "seed {seed}: {rate} of {}", world.best());
    }
}

#[test]
fn fast_link_on_idle_processors_lowers_effort_late() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(3), seed);
        world.run(9, 1);
        assert_eq!(world.controller.level(), 0, "seed {seed}");
        let rate = world.run(60, 50);
        assert!(rate >= 0.9 * world.best(), "seed {seed}: {rate} of {}", world.best());
    }
}

#[test]
fn path_with_room_gets_the_richest_entropy_to_fill_it() {
    for seed in seeds() {
        for (entropy, link, stretch) in
            [(3, 100.0, 4.0), (6, 100.0, 8.0), (6, 200.0, 4.0), (1, 400.0, 3.0), (19, 30.0, 4.0)]
        {
            let mut world = World::new(Adapt::Savings, Entropy::Zstd(entropy), seed);
            (world.link, world.stretch) = (link * MEGABIT, stretch);
            let rate = world.run(120, 100);
            let at = format!("zstd:{entropy}, {link} Mbit/s, stretch {stretch}, seed {seed}: {rate}");
            assert!(rate >= 0.93 * world.best(), "{at} of {}", world.best());
            assert!(world.changes(100) <= 24, "{at}: {} changes", world.changes(100));
            let uncoded = (1.0 / (stretch * (0.2 + WRITING))).min(world.link);
            assert!(rate >= 0.97 * uncoded.min(world.best()), "{at}, not coded {uncoded}");
        }
    }
}

#[test]
fn savings_come_back_soon_after_the_load_has_gone() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(6), seed);
        world.link = 100.0 * MEGABIT;
        world.run(5, 1);
        for turn in 0..5 {
            world.stretch = 8.0;
            world.run(20, 1);
            assert!(world.controller.level() > 0, "seed {seed}, turn {turn}");
            world.stretch = 1.0;
            world.run(6, 1);
            let stats = world.stats();
            let configured = (0, Reason::Configured);
            assert_eq!((stats.level, stats.reason), configured, "seed {seed}, turn {turn}");
        }
    }
}

#[test]
fn repeats_behind_new_bytes_end_no_coding_for_speed() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Speed, Entropy::Zstd(3), seed);
        world.stretch = 8.0;
        world.run(4, 1);
        assert_eq!(world.stats().plan, None, "seed {seed}");
        let rate = world.run(120, 100);
        assert!(rate >= 0.93 * world.best(), "seed {seed}: {rate} of {}", world.best());
        world.new = 0.1;
        world.run(62, 1);
        assert!(world.stats().plan.is_some(), "seed {seed}: {:?}", world.stats());
        world.run(60, 1);
        assert!(world.stats().plan.is_some(), "seed {seed}: {:?}", world.stats());
    }
}

#[test]
fn silence_brings_the_configured_plan_back() {
    let mut world = World::new(Adapt::Savings, Entropy::Zstd(6), 1);
    world.stretch = 10.0;
    world.run(10, 1);
    assert!(world.controller.level() > 0);
    world.demand = 0.0;
    world.run(3, 1);
    assert_eq!((world.stats().level, world.stats().reason), (0, Reason::Configured));
}

#[test]
fn traffic_with_pauses_gets_the_configured_plan() {
    for seed in seeds() {
        let mut world = World::new(Adapt::Savings, Entropy::Zstd(6), seed);
        world.stretch = 2.0;
        world.run(20, 1);
        assert!(world.controller.level() > 0, "seed {seed}");
        world.demand = 0.3 * world.sender_rate(0);
        world.run(20, 1);
        assert_eq!(world.controller.level(), 0, "seed {seed}");
        let changes = world.stats().changes;
        world.run(100, 1);
        assert_eq!(world.stats().changes, changes, "seed {seed}");
    }
}

#[test]
fn switched_off_controller_changes_nothing() {
    let mut world = World::new(Adapt::Off, Entropy::Zstd(19), 1);
    world.stretch = 10.0;
    world.run(30, 1);
    let stats = world.stats();
    assert_eq!((stats.level, stats.levels, stats.reason, stats.changes), (0, 1, Reason::Off, 0));
    assert_eq!(stats.plan, Some(world.plan));
}
