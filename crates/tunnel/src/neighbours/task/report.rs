//! The task's reports on its groups.

use oncewire_report::GroupReport;

use super::{Group, Task};

impl Task {
    /// Updates the groups' reports.
    pub(super) fn report(&self) {
        let came = self.inbox.neighbours.shared.came.lock().clone();
        let unheard = self.inbox.neighbours.shared.unheard.lock().clone();
        let report = |group: &Group| {
            let stats = group.machine.stats();
            let (announced, forgotten) = group.announcer.stats();
            let (new, missed) = came.get(group.key.bytes()).copied().unwrap_or_default();
            let unheard = unheard.get(group.key.bytes()).copied().unwrap_or_default();
            GroupReport {
                name: group.name.clone(),
                neighbours: stats.members,
                neighbours_pending_bytes: group.machine.pending(),
                asked: stats.asked,
                found: stats.found,
                found_bytes: stats.found_bytes,
                absent: stats.absent,
                late: stats.late,
                wrong: stats.wrong,
                waited: stats.waited,
                spared: stats.spared,
                served: stats.served,
                given: stats.given,
                given_bytes: stats.given_bytes,
                not_given: stats.not_offered,
                taken: stats.taken,
                new,
                announced,
                not_announced: forgotten + missed,
                heard: group.heard,
                not_heard: unheard.tags,
                turned_away: unheard.frames,
            }
        };
        *self.inbox.neighbours.shared.reports.write() = self.groups.iter().map(report).collect();
    }
}
