//! Savings for CPU: what the shell saw of the sending half's work, and what is left of plans because of it.

use oncewire_codec::pace::{Controller, Load, PaceStats};
use oncewire_codec::{Now, Plan};

use super::Link;
use crate::config::LinkConfig;
use crate::event::Note;

/// What this end's lanes did in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// How long it was.
    pub span: Now,
    /// Of that: some lane had bytes to send.
    pub active: Now,
    /// Of that: every lane that had bytes to send waited for its socket.
    pub blocked: Now,
    /// The CPU time of [`Link::poll_transmit`].
    pub encoding: Now,
    /// The CPU time of writing what it gave: enciphering, system calls.
    pub writing: Now,
    /// How much of all processors nobody used, in thousandths; 0 where that is unknown.
    pub idle_permille: u32,
}

/// The controller, and what was sent since it was last asked.
pub(super) struct Pacing {
    controller: Controller,
    plain: u64,
    wire: u64,
}

impl Pacing {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let controller = if config.adapt {
            Controller::new(config.plan, &config.other_plans)
        } else {
            Controller::off(config.plan)
        };
        Self { controller, plain: 0, wire: 0 }
    }

    /// Returns what is left of a plan now.
    pub(super) fn apply(&self, plan: &Plan) -> Option<Plan> {
        self.controller.apply(plan)
    }

    /// Notes that a block was encoded.
    pub(super) fn sent(&mut self, plain: usize, wire: usize) {
        self.plain += plain as u64;
        self.wire += wire as u64;
    }

    pub(super) fn stats(&self) -> PaceStats {
        self.controller.stats()
    }
}

impl Link {
    /// Takes what the lanes did since the last call, and lowers or raises how blocks are coded from now on. Without
    /// these calls every plan is carried out as it is.
    pub fn handle_load(&mut self, effort: Effort, now: Now) {
        let Effort { span, active, blocked, encoding, writing, idle_permille } = effort;
        let (plain, wire) = (std::mem::take(&mut self.pacing.plain), std::mem::take(&mut self.pacing.wire));
        let load = Load { span, active, blocked, encoding, writing, idle_permille, plain, wire };
        if self.pacing.controller.handle_load(load, now) {
            self.note(Note::Paced(self.pacing.stats()));
        }
    }

    /// Whether plans are carried out as configured.
    pub fn is_as_configured(&self) -> bool {
        self.pacing.controller.rung() == 0
    }
}
