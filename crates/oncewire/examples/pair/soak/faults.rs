//! What goes wrong, and when.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::plan::Side;
use crate::common::data::Rng;
use crate::common::gateway::Gateway;
use crate::common::pair::Pair;
use crate::common::wait::pause;

/// Times for which transfers are excused.
#[derive(Default)]
pub(super) struct Excuses {
    windows: Mutex<Vec<Window>>,
}

struct Window {
    killed: bool,
    to: Option<Instant>,
}

impl Excuses {
    fn begin(&self, killed: bool) {
        self.windows.lock().unwrap().push(Window { killed, to: None });
    }

    fn end(&self) {
        if let Some(window) = self.windows.lock().unwrap().last_mut() {
            window.to = Some(Instant::now() + SETTLING);
        }
    }

    /// Whether a gateway was killed since `from`.
    pub(super) fn killed(&self, from: Instant) -> bool {
        self.any(|window| window.killed && window.to.is_none_or(|to| to >= from))
    }

    /// Whether the link was away since `from`, so that flows could be refused.
    pub(super) fn away(&self, from: Instant) -> bool {
        self.any(|window| window.to.is_none_or(|to| to >= from))
    }

    fn any(&self, test: impl Fn(&Window) -> bool) -> bool {
        self.windows.lock().unwrap().iter().any(test)
    }
}

/// How often what went wrong, and what was seen meanwhile.
#[derive(Debug, Default)]
pub(super) struct Toll {
    pub(super) lanes_cut: u32,
    pub(super) all_cut: u32,
    pub(super) outages: u32,
    pub(super) stops: u32,
    pub(super) kills: u32,
    /// The most memory that a gateway had in use.
    pub(super) resident: u64,
}

impl Toll {
    /// Does one thing, and waits until the link is back if it was away.
    pub(super) fn strike(&mut self, pair: &mut Pair, rng: &mut Rng, excuses: &Excuses) {
        let side = [Side::Client, Side::Origin][rng.below(2)];
        match rng.below(100) {
            0..=39 => {
                self.lanes_cut += 1;
                pair.relay.cut_one(rng.below(64));
            }
            40..=61 => {
                self.all_cut += 1;
                pair.relay.cut_all();
            }
            62..=75 => {
                self.outages += 1;
                excuses.begin(false);
                pair.relay.set_down(true);
                rest(rng, 100, 6000);
                pair.relay.set_down(false);
                back(pair, excuses);
            }
            76..=88 => {
                self.stops += 1;
                excuses.begin(false);
                gateway(pair, side).set_stopped(true);
                rest(rng, 500, 1500);
                if rng.below(2) == 0 {
                    pair.relay.cut_all();
                }
                rest(rng, 500, 1500);
                gateway(pair, side).set_stopped(false);
                back(pair, excuses);
            }
            _ => {
                self.kills += 1;
                self.look(pair);
                excuses.begin(true);
                gateway(pair, side).kill();
                rest(rng, 0, 2000);
                gateway(pair, side).start();
                back(pair, excuses);
            }
        }
        self.look(pair);
    }

    /// Checks what must hold at all times.
    pub(super) fn look(&mut self, pair: &Pair) {
        for gateway in [&pair.branch, &pair.hub] {
            self.resident = self.resident.max(gateway.resident());
            assert_eq!(gateway.counter("mismatches"), 0);
        }
    }
}

fn back(pair: &Pair, excuses: &Excuses) {
    pair.wait_until_up();
    excuses.end();
}

fn gateway(pair: &mut Pair, side: Side) -> &mut Gateway {
    match side {
        Side::Client => &mut pair.branch,
        Side::Origin => &mut pair.hub,
    }
}

/// Lets a random time pass.
pub(super) fn rest(rng: &mut Rng, least_ms: u64, most_ms: u64) {
    let span = usize::try_from(most_ms - least_ms).unwrap() + 1;
    let end = Instant::now() + Duration::from_millis(least_ms + rng.below(span) as u64);
    while Instant::now() < end {
        pause();
    }
}

/// What was under way when the link came back may still be told of it.
const SETTLING: Duration = Duration::from_secs(1);
