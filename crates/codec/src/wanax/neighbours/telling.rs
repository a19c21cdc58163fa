//! Heartbeats: how busy each gateway is, as it tells its neighbours [Wanax §3.4].

use super::{MemberId, Neighbourhood};
use crate::Now;
use crate::wire::{GroupFrame, Load};

/// How busy a gateway is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    /// Its disk.
    pub(super) load: Load,
    /// Bytes that it has asked far sides for and not got.
    pub(super) pending: u64,
}

/// What neighbours are told of this gateway.
#[derive(Debug, Default)]
pub(super) struct Telling {
    pub(super) own: Busy,
    told: Busy,
    told_at: Now,
    /// When they may be told again, if there is something to tell, or are to be told the same again.
    at: Option<Now>,
}

/// The least time between two words on how busy a gateway is.
const TELL_EVERY: Now = Now::from_millis(50);
/// A gateway that is busy says so again after this time.
const AGAIN_EVERY: Now = Now::from_secs(1);
/// And is taken to be idle if it has not for so long: a word may be lost with a lane.
const VOID_AFTER: Now = Now::from_secs(3);

impl Busy {
    fn is_idle(&self) -> bool {
        self.load.queued == 0 && self.pending == 0
    }
}

#[cfg(test)]
impl Telling {
    pub(super) fn all_is_told(&self) -> bool {
        self.own == self.told
    }
}

impl Load {
    /// Returns how long a read waits for the disk.
    pub fn wait(&self) -> Now {
        Now::from_micros(u64::from(self.service_us)).saturating_mul(self.queued.saturating_add(1))
    }
}

impl Neighbourhood {
    /// Takes how busy the own disk is; neighbours are told at most every 50 ms.
    pub fn handle_load(&mut self, load: Load, now: Now) {
        self.handle_busy(Busy { load, ..self.telling.own }, now);
    }

    /// Takes how many bytes were asked for over all links to other sites and have not come; neighbours are told with the
    /// load.
    pub fn handle_pending(&mut self, bytes: u64, now: Now) {
        self.handle_busy(Busy { pending: bytes, ..self.telling.own }, now);
    }

    /// Returns how many bytes the neighbours have asked other sites for and not got, as they said last.
    pub fn pending(&self) -> u64 {
        self.members.values().map(|member| member.busy.pending).fold(0, u64::saturating_add)
    }

    fn handle_busy(&mut self, busy: Busy, now: Now) {
        self.telling.own = busy;
        if busy != self.telling.told {
            let at = self.telling.at.get_or_insert(now);
            *at = (*at).min(now.max(self.telling.told_at + TELL_EVERY));
        }
        self.tell(now);
    }

    /// Takes what a neighbour says of its disk.
    pub(super) fn hear_load(&mut self, from: MemberId, load: Load, now: Now) {
        if let Some(member) = self.members.get_mut(&from) {
            (member.busy.load, member.busy_said_at) = (load, now);
        }
    }

    /// Takes what a neighbour says that it waits for.
    pub(super) fn hear_pending(&mut self, from: MemberId, bytes: u64, now: Now) {
        if let Some(member) = self.members.get_mut(&from) {
            (member.busy.pending, member.busy_said_at) = (bytes, now);
        }
    }

    /// Returns when there is something to tell, or what a neighbour said is void.
    pub(super) fn telling_timeout(&self) -> Option<Now> {
        let busy = self.members.values().filter(|member| !member.busy.is_idle());
        busy.map(|member| member.busy_said_at + VOID_AFTER).chain(self.telling.at).min()
    }

    /// Forgets what was said so long ago that it would have been said again. How long a read takes is no state that ends.
    fn forget_void(&mut self, now: Now) {
        for member in self.members.values_mut().filter(|member| member.busy_said_at + VOID_AFTER <= now) {
            (member.busy.load.queued, member.busy.pending) = (0, 0);
        }
    }

    /// Tells a neighbour that is new what the others were told.
    pub(super) fn tell_first(&mut self, id: MemberId) {
        let told = self.telling.told;
        self.send(id, GroupFrame::Load(told.load));
        self.send(id, GroupFrame::Pending { bytes: told.pending });
    }

    /// Tells all neighbours what has changed, if it is time, and again what goes on; ends what they said and do not repeat.
    pub(super) fn tell(&mut self, now: Now) {
        self.forget_void(now);
        if self.telling.at.is_none_or(|at| now < at) {
            return;
        }
        let (own, told) = (self.telling.own, self.telling.told);
        let again = own == told && !own.is_idle();
        if own == told && (!again || now < self.telling.told_at + AGAIN_EVERY) {
            self.telling.at = again.then_some(self.telling.told_at + AGAIN_EVERY);
            return;
        }
        (self.telling.told, self.telling.told_at) = (own, now);
        self.telling.at = Some(now + TELL_EVERY);
        let load = (again || own.load != told.load).then_some(GroupFrame::Load(own.load));
        let pending = again || own.pending != told.pending;
        let pending = pending.then_some(GroupFrame::Pending { bytes: own.pending });
        let members: Vec<MemberId> = self.members.keys().copied().collect();
        for frame in [load, pending].into_iter().flatten() {
            members.iter().for_each(|&id| self.send(id, frame.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Output;
    use super::*;
    use crate::wanax::NameKey;

    fn load(queued: u32) -> Load {
        Load { queued, ..Load::default() }
    }

    fn sent(machine: &mut Neighbourhood) -> Vec<(u64, GroupFrame)> {
        std::iter::from_fn(|| machine.poll_output())
            .filter_map(|output| match output {
                Output::Send(MemberId(to), frame) => Some((to, frame)),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn how_busy_a_gateway_is_is_told_at_once_and_then_not_too_often() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        machine.handle_up(MemberId(2));
        let none = GroupFrame::Pending { bytes: 0 };
        assert_eq!(sent(&mut machine), [(2, GroupFrame::Load(load(0))), (2, none.clone())]);
        let start = Now::from_secs(1);
        for queued in 1..=100 {
            let now = start + Now::from_micros(queued.into());
            machine.handle_load(load(queued), now);
            machine.handle_pending(u64::from(queued) * 1000, now);
        }
        assert_eq!(sent(&mut machine), [(2, GroupFrame::Load(load(1)))]);
        let due = machine.poll_timeout().unwrap();
        assert_eq!(due, start + Now::from_micros(1) + TELL_EVERY);
        machine.handle_timeout(due);
        let pending = GroupFrame::Pending { bytes: 100_000 };
        assert_eq!(sent(&mut machine), [(2, GroupFrame::Load(load(100))), (2, pending.clone())]);
        machine.handle_up(MemberId(3));
        assert_eq!(sent(&mut machine), [(3, GroupFrame::Load(load(100))), (3, pending)]);
        machine.handle_load(load(0), due + TELL_EVERY);
        machine.handle_pending(0, due + TELL_EVERY);
        let idle = GroupFrame::Load(load(0));
        assert_eq!(sent(&mut machine), [(2, idle.clone()), (3, idle)]);
        machine.handle_timeout(due + 2 * TELL_EVERY);
        assert_eq!(sent(&mut machine), [(2, none.clone()), (3, none)]);
        machine.handle_timeout(due + 3 * TELL_EVERY);
        assert_eq!((sent(&mut machine), machine.poll_timeout()), (vec![], None));
    }

    #[test]
    fn who_goes_on_waiting_says_so_each_second_and_at_once_what_changes() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        machine.handle_up(MemberId(2));
        let start = Now::from_secs(1);
        machine.handle_pending(500, start);
        sent(&mut machine);
        let mut said = Vec::new();
        while let Some(due) = machine.poll_timeout().filter(|due| *due < start + Now::from_millis(2500)) {
            machine.handle_timeout(due);
            said.extend(sent(&mut machine).into_iter().map(|(_, frame)| (due - start, frame)));
        }
        let (idle, waits) = (GroupFrame::Load(load(0)), GroupFrame::Pending { bytes: 500 });
        let [once, twice] = [1, 2].map(Now::from_secs);
        assert_eq!(said, [(once, idle.clone()), (once, waits.clone()), (twice, idle), (twice, waits)]);
        // Not only when it would be said again.
        machine.handle_pending(70, start + Now::from_millis(2600));
        assert_eq!(sent(&mut machine), [(2, GroupFrame::Pending { bytes: 70 })]);
    }

    #[test]
    fn what_a_neighbour_does_not_repeat_is_void_but_for_what_a_read_takes() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        let mut now = Now::from_secs(1);
        machine.handle_up(MemberId(2));
        machine.handle_frame(MemberId(2), GroupFrame::Load(Load { queued: 9, service_us: 8000 }), now);
        let waits = GroupFrame::Pending { bytes: 500 };
        for _ in 0..5 {
            machine.handle_frame(MemberId(2), waits.clone(), now);
            assert_eq!(machine.poll_timeout(), Some(now + VOID_AFTER));
            now += VOID_AFTER - Now::from_nanos(1);
            machine.handle_timeout(now);
            assert_eq!((machine.pending(), machine.members[&MemberId(2)].busy.load.queued), (500, 9));
        }
        machine.handle_timeout(now + Now::from_nanos(1));
        let busy = Busy { load: Load { queued: 0, service_us: 8000 }, pending: 0 };
        assert_eq!((machine.members[&MemberId(2)].busy, machine.poll_timeout()), (busy, None));
    }

    #[test]
    fn what_neighbours_wait_for_is_what_each_said_last_while_it_is_there() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        let (now, said) = (Now::from_secs(1), |bytes| GroupFrame::Pending { bytes });
        machine.handle_up(MemberId(2));
        machine.handle_up(MemberId(3));
        machine.handle_frame(MemberId(2), said(5000), now);
        machine.handle_frame(MemberId(3), said(u64::MAX), now);
        assert_eq!(machine.pending(), u64::MAX);
        machine.handle_frame(MemberId(3), said(70), now);
        machine.handle_frame(MemberId(4), said(900), now);
        assert_eq!(machine.pending(), 5070);
        machine.handle_down(MemberId(2), now);
        assert_eq!(machine.pending(), 70);
    }
}
