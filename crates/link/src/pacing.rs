//! Effort for CPU: the shell's view of the encoder's work, and the part of plans in force.

use oncewire_codec::adapt::{AdaptStats, Controller, Load};
use oncewire_codec::contract::SendStats;
use oncewire_codec::{Now, Plan};

use crate::config::LinkConfig;

/// The work of this end's lanes in a stretch of time, a tenth to a quarter of a second by preference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// The length of the stretch.
    pub span: Now,
    /// Of that: some lane had bytes to send.
    pub active: Now,
    /// Of that: every lane with bytes to send waited for its socket.
    pub blocked: Now,
    /// Idle time of all CPUs, in thousandths; 0 if unknown.
    pub idle_permille: u32,
}

/// The controller, and the blocks since its last decision.
pub(crate) struct Pacing {
    controller: Controller,
    plain: u64,
    /// Of that: uncoded, on flows with a plan.
    passed: u64,
    /// New bytes of all coded blocks so far.
    new: u64,
}

impl Pacing {
    /// Starts with plans as configured.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        let controller = Controller::new(config.adapt, config.plan, &config.other_plans);
        Self { controller, plain: 0, passed: 0, new: 0 }
    }

    /// Returns the part of a plan in force.
    pub(crate) fn apply(&self, plan: &Plan) -> Option<Plan> {
        self.controller.apply(plan)
    }

    /// Counts a block, and whether it was left uncoded although its flow has a plan.
    pub(crate) fn sent(&mut self, plain: usize, passed: bool) {
        self.plain += plain as u64;
        self.passed += if passed { plain as u64 } else { 0 };
    }

    /// Takes the work since the last call; returns the new state if plans change.
    pub(crate) fn handle_load(&mut self, effort: Effort, out: &SendStats, now: Now) -> Option<AdaptStats> {
        let Effort { span, active, blocked, idle_permille } = effort;
        let not_new = [out.copied, out.uncoded, out.names.bytes];
        let all_new = not_new.into_iter().fold(out.plain, u64::saturating_sub);
        let coded_new = all_new.saturating_sub(std::mem::replace(&mut self.new, all_new));
        let (plain, passed) = (std::mem::take(&mut self.plain), std::mem::take(&mut self.passed));
        let load = Load { span, active, blocked, idle_permille, plain, new: coded_new + passed };
        self.controller.handle_load(load, now).then(|| self.controller.stats())
    }

    /// Returns the state of the controller.
    pub(crate) fn stats(&self) -> AdaptStats {
        self.controller.stats()
    }

    /// Whether plans are carried out as configured.
    pub(crate) fn is_as_configured(&self) -> bool {
        self.controller.level() == 0
    }
}
