//! Heartbeats: how busy each gateway is, as it tells its neighbours [Wanax §3.4].

use oncewire_codec::Now;
use oncewire_codec::wire::{GroupFrame, Load};

use super::{MemberId, Neighbourhood};

/// How busy a gateway is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Busy {
    /// Its disk.
    pub(super) load: Load,
    /// Bytes it has asked far sides for and not got.
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
/// A disk taking longer for a read is busy without one: a stall leaves this, and it goes by with time.
const SLOW_US: u32 = 100_000;

impl Busy {
    fn is_idle(&self) -> bool {
        self.load.queued == 0 && self.load.service_us <= SLOW_US && self.pending == 0
    }

    /// Both, whichever has changed: one lost does not outlive the next.
    fn frames(self) -> [GroupFrame; 2] {
        [GroupFrame::Load(self.load), GroupFrame::Pending { bytes: self.pending }]
    }
}

#[cfg(test)]
impl Telling {
    pub(super) fn all_is_told(&self) -> bool {
        self.own == self.told
    }
}

impl Neighbourhood {
    /// Takes how busy the own disk is, and how many bytes were asked for over all links to other sites and have not come;
    /// neighbours are told at most every 50 ms.
    pub fn handle_busy(&mut self, load: Load, pending: u64, now: Now) {
        let busy = Busy { load, pending };
        self.telling.own = busy;
        if busy != self.telling.told {
            let at = self.telling.at.get_or_insert(now);
            *at = (*at).min(now.max(self.telling.told_at + TELL_EVERY));
        }
        self.tell(now);
    }

    /// Returns how many bytes the neighbours have asked other sites for and not got, as they said last.
    pub fn pending(&self) -> u64 {
        self.members.values().map(|member| member.busy.pending).fold(0, u64::saturating_add)
    }

    /// Takes what a neighbour says of its disk.
    pub(super) fn hear_load(&mut self, from: MemberId, load: Load, now: Now) {
        if let Some(member) = self.members.get_mut(&from) {
            (member.busy.load, member.busy_said_at) = (load, now);
        }
    }

    /// Takes what a neighbour says it waits for.
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

    /// Forgets what was said so long ago it would have been said again.
    fn forget_void(&mut self, now: Now) {
        for member in self.members.values_mut().filter(|member| member.busy_said_at + VOID_AFTER <= now) {
            let service_us = member.busy.load.service_us.min(SLOW_US);
            member.busy = Busy { load: Load { queued: 0, service_us }, pending: 0 };
        }
    }

    /// Tells a new neighbour everything told to others: it may not have seen we were away.
    pub(super) fn tell_first(&mut self, id: MemberId) {
        for frame in self.telling.told.frames() {
            self.send(id, frame);
        }
    }

    /// Tells all neighbours of changes, if it is time, and again of lasting states; ends their own unrepeated ones.
    pub(super) fn tell(&mut self, now: Now) {
        self.forget_void(now);
        if self.telling.at.is_none_or(|at| now < at) {
            return;
        }
        let own = self.telling.own;
        let again_at = (!own.is_idle()).then(|| self.telling.told_at + AGAIN_EVERY);
        if own == self.telling.told && again_at.is_none_or(|at| now < at) {
            self.telling.at = again_at;
            return;
        }
        (self.telling.told, self.telling.told_at) = (own, now);
        self.telling.at = Some(now + TELL_EVERY);
        let members: Vec<MemberId> = self.members.keys().copied().collect();
        for frame in own.frames() {
            members.iter().for_each(|&id| self.send(id, frame.clone()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Output;
    use super::*;
    use oncewire_codec::wanax::NameKey;

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

    fn words(to: u64, queued: u32, pending: u64) -> [(u64, GroupFrame); 2] {
        Busy { load: load(queued), pending }.frames().map(|frame| (to, frame))
    }

    #[test]
    fn load_is_told_at_once_and_then_rarely() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        machine.handle_up(MemberId(2));
        assert_eq!(sent(&mut machine), words(2, 0, 0));
        let start = Now::from_secs(1);
        for queued in 1..=100 {
            let now = start + Now::from_micros(queued.into());
            machine.handle_busy(load(queued), u64::from(queued) * 1000, now);
        }
        assert_eq!(sent(&mut machine), words(2, 1, 1000));
        let due = machine.poll_timeout().unwrap();
        assert_eq!(due, start + Now::from_micros(1) + TELL_EVERY);
        machine.handle_timeout(due);
        assert_eq!(sent(&mut machine), words(2, 100, 100_000));
        machine.handle_up(MemberId(3));
        assert_eq!(sent(&mut machine), words(3, 100, 100_000));
        machine.handle_busy(load(0), 0, due + TELL_EVERY);
        let both = words(2, 0, 0).into_iter().zip(words(3, 0, 0));
        assert_eq!(sent(&mut machine), both.flat_map(|(a, b)| [a, b]).collect::<Vec<_>>());
        machine.handle_timeout(due + 2 * TELL_EVERY);
        assert_eq!((sent(&mut machine), machine.poll_timeout()), (vec![], None));
    }

    #[test]
    fn continued_wait_is_told_each_second_changes_at_once() {
        let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
        machine.handle_up(MemberId(2));
        let start = Now::from_secs(1);
        machine.handle_busy(load(0), 500, start);
        sent(&mut machine);
        let mut said = Vec::new();
        while let Some(due) = machine.poll_timeout().filter(|due| *due < start + Now::from_millis(2500)) {
            machine.handle_timeout(due);
            said.extend(sent(&mut machine).into_iter().map(|word| (due - start, word)));
        }
        let again = |seconds| words(2, 0, 500).map(|word| (Now::from_secs(seconds), word));
        assert_eq!(said, [again(1), again(2)].concat());
        // Not only when it would be said again.
        machine.handle_busy(load(0), 70, start + Now::from_millis(2600));
        assert_eq!(sent(&mut machine), words(2, 0, 70));
    }

    #[test]
    fn unrepeated_load_is_void_and_a_stall_is_capped() {
        for (said_us, void_us) in [(8000, 8000), (900_000, SLOW_US)] {
            let mut machine = Neighbourhood::new(MemberId(1), NameKey::new([1; 32]), 1);
            let mut now = Now::from_secs(1);
            machine.handle_up(MemberId(2));
            let said = Busy { load: Load { queued: 9, service_us: said_us }, pending: 500 };
            for _ in 0..5 {
                said.frames().into_iter().for_each(|frame| machine.handle_frame(MemberId(2), frame, now));
                assert_eq!(machine.poll_timeout(), Some(now + VOID_AFTER));
                now += VOID_AFTER - Now::from_nanos(1);
                machine.handle_timeout(now);
                assert_eq!(machine.members[&MemberId(2)].busy, said);
            }
            machine.handle_timeout(now + Now::from_nanos(1));
            let void = Busy { load: Load { queued: 0, service_us: void_us }, pending: 0 };
            assert_eq!((machine.members[&MemberId(2)].busy, machine.poll_timeout()), (void, None));
        }
    }

    #[test]
    fn lost_report_does_not_outlive_the_next() {
        let [mut ours, mut theirs] =
            [1, 2].map(|id| Neighbourhood::new(MemberId(id), NameKey::new([1; 32]), 1));
        ours.handle_up(MemberId(2));
        theirs.handle_up(MemberId(1));
        let mut now = Now::from_secs(1);
        let mut step = |queued, pending, is_lost: bool| {
            now += TELL_EVERY;
            ours.handle_busy(load(queued), pending, now);
            let words = sent(&mut ours).into_iter().filter(|_| !is_lost);
            words.for_each(|(_, frame)| theirs.handle_frame(MemberId(1), frame, now));
            theirs.members[&MemberId(1)].busy
        };
        step(1, 500, false);
        assert_eq!(step(1, 0, true).pending, 500);
        assert_eq!(step(2, 0, false), Busy { load: load(2), pending: 0 });
        assert_eq!(step(0, 0, true).load, load(2));
        assert_eq!(step(0, 30, false), Busy { load: load(0), pending: 30 });
    }

    #[test]
    fn neighbours_pending_bytes_are_their_last_reports() {
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
