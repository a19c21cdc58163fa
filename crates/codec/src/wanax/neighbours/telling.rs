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
    /// When they may be told again, if there is something to tell.
    pub(super) at: Option<Now>,
}

/// The least time between two words on how busy a gateway is.
const TELL_EVERY: Now = Now::from_millis(50);

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
            self.telling.at.get_or_insert(now);
        }
        self.tell(now);
    }

    /// Tells a neighbour that is new what the others were told.
    pub(super) fn tell_first(&mut self, id: MemberId) {
        let told = self.telling.told;
        self.send(id, GroupFrame::Load(told.load));
        if told.pending > 0 {
            self.send(id, GroupFrame::Pending { bytes: told.pending });
        }
    }

    /// Tells all neighbours what has changed, if it is time.
    pub(super) fn tell(&mut self, now: Now) {
        if self.telling.at.is_none_or(|at| now < at) {
            return;
        }
        self.telling.at = None;
        let (own, told) = (self.telling.own, self.telling.told);
        if own == told {
            return;
        }
        self.telling.told = own;
        self.telling.at = Some(now + TELL_EVERY);
        let load = (own.load != told.load).then_some(GroupFrame::Load(own.load));
        let pending = (own.pending != told.pending).then_some(GroupFrame::Pending { bytes: own.pending });
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
        assert_eq!(sent(&mut machine), [(2, GroupFrame::Load(load(0)))]);
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
        machine.handle_pending(0, due + TELL_EVERY);
        let none = GroupFrame::Pending { bytes: 0 };
        assert_eq!(sent(&mut machine), [(2, none.clone()), (3, none)]);
        machine.handle_timeout(due + 2 * TELL_EVERY);
        assert_eq!((sent(&mut machine), machine.poll_timeout()), (vec![], None));
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
