//! Effort for CPU: the shell's observations of encoding, and the lowered plans.

use oncewire_codec::adapt::{Controller, Load, PaceStats};
use oncewire_codec::{Now, Plan};

use super::Link;
use crate::config::LinkConfig;
use crate::event::Note;

/// The lanes' activity at this end in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// How long it was.
    pub span: Now,
    /// The part with bytes to send on some lane.
    pub active: Now,
    /// The part with every busy lane in wait for its socket.
    pub blocked: Now,
    /// The idle share of all processors, in thousandths; 0 if unknown.
    pub idle_permille: u32,
}

/// The controller, and the sent bytes since its last call.
pub(super) struct Pacing {
    controller: Controller,
    plain: u64,
    /// The uncoded part, on flows meant to be coded.
    passed: u64,
    /// New bytes of all coded blocks so far.
    new: u64,
}

impl Pacing {
    pub(super) fn new(config: &LinkConfig) -> Self {
        let controller = Controller::new(config.adapt, config.plan, &config.other_plans);
        Self { controller, plain: 0, passed: 0, new: 0 }
    }

    /// Returns the present form of a plan.
    pub(super) fn apply(&self, plan: &Plan) -> Option<Plan> {
        self.controller.apply(plan)
    }

    /// Notes a sent block, and whether it was not coded though its flow is to be.
    pub(super) fn sent(&mut self, plain: usize, passed: bool) {
        self.plain += plain as u64;
        self.passed += if passed { plain as u64 } else { 0 };
    }

    pub(super) fn stats(&self) -> PaceStats {
        self.controller.stats()
    }
}

impl Link {
    /// Takes the lanes' activity since the last call, and lowers or raises the effort of coding from now on. Without
    /// these calls every plan is carried out as it is.
    pub fn handle_load(&mut self, effort: Effort, now: Now) {
        let Effort { span, active, blocked, idle_permille } = effort;
        let out = self.sender.stats();
        let not_new = [out.copied, out.uncoded, out.names.bytes];
        let all_new = not_new.into_iter().fold(out.plain, u64::saturating_sub);
        let coded_new = all_new.saturating_sub(std::mem::replace(&mut self.pacing.new, all_new));
        let (plain, passed) =
            (std::mem::take(&mut self.pacing.plain), std::mem::take(&mut self.pacing.passed));
        let load = Load { span, active, blocked, idle_permille, plain, new: coded_new + passed };
        if self.pacing.controller.handle_load(load, now) {
            self.note(Note::Paced(self.pacing.stats()));
        }
    }

    /// Whether plans are carried out as configured.
    pub fn is_as_configured(&self) -> bool {
        self.pacing.controller.rung() == 0
    }
}
