//! Fair sharing among flows of three classes, each with its weight.

use std::collections::VecDeque;
use std::fmt;

use oncewire_codec::wire::FlowId;

use crate::rotation::Rotation;

/// The urgency of a flow's bytes. Competing classes have shares by their weights, so none starves; within a class
/// flows take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for each byte. Weight 16.
    Interactive,
    /// Everything else, until it has sent much. Weight 4.
    Normal,
    /// Bytes without hurry. Weight 1.
    Bulk,
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interactive => "interactive",
            Self::Normal => "normal",
            Self::Bulk => "bulk",
        })
    }
}

impl Priority {
    /// All classes, the most urgent first.
    pub const ALL: [Self; 3] = [Self::Interactive, Self::Normal, Self::Bulk];

    /// Returns the share of the class in relation to the others'.
    pub fn weight(self) -> u64 {
        match self {
            Self::Interactive => 16,
            Self::Normal => 4,
            Self::Bulk => 1,
        }
    }

    fn index(self) -> usize {
        match self {
            Self::Interactive => 0,
            Self::Normal => 1,
            Self::Bulk => 2,
        }
    }
}

/// One thing for each class.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ByClass<T>([T; 3]);

impl<T> ByClass<T> {
    pub(crate) fn of(&self, class: Priority) -> &T {
        &self.0[class.index()]
    }

    pub(crate) fn of_mut(&mut self, class: Priority) -> &mut T {
        &mut self.0[class.index()]
    }
}

impl ByClass<bool> {
    pub(crate) fn any(&self) -> bool {
        self.0.contains(&true)
    }
}

/// Start-time fair queuing [Goyal, Vin, Cheng 1996]: the next item is of the class with the least service for its
/// weight. A class after an idle time begins level with the others, so nothing is saved up.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// The end of the class's last turn.
    ends: ByClass<u64>,
    /// The start of the last turn.
    now: u64,
}

impl Shares {
    /// Chooses among the classes with something to send, of equals the most urgent.
    pub(crate) fn pick(&mut self, waits: &ByClass<bool>) -> Option<Priority> {
        let waiting = Priority::ALL.into_iter().filter(|&class| *waits.of(class));
        let next = waiting.min_by_key(|&class| self.start(class))?;
        self.now = self.start(next);
        Some(next)
    }

    /// Counts sent bytes of a class.
    pub(crate) fn charge(&mut self, class: Priority, bytes: usize) {
        let share = (bytes as u64).saturating_mul(Priority::Interactive.weight()) / class.weight();
        *self.ends.of_mut(class) = self.start(class).saturating_add(share);
    }

    fn start(&self, class: Priority) -> u64 {
        self.now.max(*self.ends.of(class))
    }
}

/// Blocks with requested chunks, in wait for their turn, by class.
#[derive(Debug, Default)]
pub(crate) struct Answers(ByClass<Rotation>);

impl Answers {
    pub(crate) fn insert(&mut self, class: Priority, flow: FlowId, seq: u64) {
        self.0.of_mut(class).insert(flow, seq);
    }

    /// Takes the next block with something for `send` to send, and returns it.
    pub(crate) fn pop(&mut self, class: Priority, send: impl FnMut(u64) -> bool) -> Option<u64> {
        self.0.of_mut(class).pop(send)
    }

    pub(crate) fn wait(&self, class: Priority) -> bool {
        !self.0.of(class).is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.0.iter().map(Rotation::len).sum()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn retain(&mut self, still_wait: impl Fn(u64) -> bool) {
        self.0.0.iter_mut().for_each(|rotation| rotation.retain(&still_wait));
    }
}

/// The chunks of a block in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answered {
    /// Those for the lane of repairs.
    ByRepair,
    /// Those for the block's lane.
    ByLane,
}

/// A lane's items, in turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    /// Flows with something to send.
    queues: ByClass<VecDeque<FlowId>>,
    /// Flows in wait for acknowledgements, in the order of their turns.
    held: ByClass<VecDeque<FlowId>>,
    /// Chunks missing at the peer, of blocks from the lane.
    answers: Answers,
    /// Whether the last turn was an answer's, so the next is a flow's.
    answered: ByClass<bool>,
    shares: Shares,
}

impl Turns {
    pub(crate) fn push_back(&mut self, class: Priority, flow: FlowId) {
        self.queues.of_mut(class).push_back(flow);
    }

    pub(crate) fn pop(&mut self, class: Priority) -> Option<FlowId> {
        *self.answered.of_mut(class) = false;
        self.queues.of_mut(class).pop_front()
    }

    pub(crate) fn remove(&mut self, flow: FlowId) {
        let queues = self.queues.0.iter_mut().chain(&mut self.held.0);
        queues.for_each(|queue| queue.retain(|&queued| queued != flow));
    }

    /// Puts a flow aside to wait for acknowledgements, until [`Self::release`].
    pub(crate) fn hold(&mut self, class: Priority, flow: FlowId) {
        self.held.of_mut(class).push_back(flow);
    }

    /// Gives the flows put aside their turns back; returns whether any flow has something to send.
    pub(crate) fn release(&mut self) -> bool {
        for (queue, held) in self.queues.0.iter_mut().zip(&mut self.held.0) {
            held.append(queue);
            std::mem::swap(queue, held);
        }
        self.queues.0.iter().any(|queue| !queue.is_empty())
    }

    /// Has chunks of a block wait for their turn.
    pub(crate) fn push_answer(&mut self, class: Priority, flow: FlowId, seq: u64) {
        self.answers.insert(class, flow, seq);
    }

    /// Has `send` send the next answer, those for the lane of repairs before the lane's own; returns its block, none
    /// if it is a flow's turn. Answers and flows have every second turn, so nobody waits for all of the others'
    /// answers.
    pub(crate) fn pop_answer(
        &mut self,
        class: Priority,
        of_repairs: Option<&mut Answers>,
        mut send: impl FnMut(u64, Answered) -> bool,
    ) -> Option<u64> {
        if *self.answered.of(class) && !self.queues.of(class).is_empty() {
            return None;
        }
        let repair = of_repairs.and_then(|answers| answers.pop(class, |seq| send(seq, Answered::ByRepair)));
        repair.or_else(|| self.answers.pop(class, |seq| send(seq, Answered::ByLane)))
    }

    /// An answer was sent.
    pub(crate) fn note_answered(&mut self, class: Priority) {
        *self.answered.of_mut(class) = true;
    }

    /// The classes with flows ready to send, or answers.
    pub(crate) fn waits(&self) -> ByClass<bool> {
        ByClass(Priority::ALL.map(|class| !self.queues.of(class).is_empty() || self.answers.wait(class)))
    }

    /// Chooses the class of the next turn.
    pub(crate) fn pick(&mut self) -> Option<Priority> {
        self.shares.pick(&self.waits())
    }

    /// Counts sent bytes of a class.
    pub(crate) fn charge(&mut self, class: Priority, bytes: usize) {
        self.shares.charge(class, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Serves items of 1,000 bytes and returns how many each class had.
    fn serve(shares: &mut Shares, waits: [bool; 3], items: usize) -> [usize; 3] {
        let mut served = [0; 3];
        for _ in 0..items {
            let class = shares.pick(&ByClass(waits)).unwrap();
            shares.charge(class, 1000);
            served[class.index()] += 1;
        }
        served
    }

    #[test]
    fn competing_classes_have_their_weights_and_none_starves() {
        assert_eq!(serve(&mut Shares::default(), [true; 3], 2100), [1600, 400, 100]);
        assert_eq!(serve(&mut Shares::default(), [false, true, true], 500), [0, 400, 100]);
        assert_eq!(serve(&mut Shares::default(), [false, false, true], 7), [0, 0, 7]);
        assert_eq!(Shares::default().pick(&ByClass([false; 3])), None);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut shares = Shares::default();
        serve(&mut shares, [true, false, false], 10_000);
        // Bulk had nothing for long: it does not get all of its missed share now.
        assert_eq!(serve(&mut shares, [true, false, true], 170), [160, 0, 10]);
    }

    #[test]
    fn newly_urgent_class_is_next() {
        let mut shares = Shares::default();
        serve(&mut shares, [false, true, true], 501);
        assert_eq!(shares.pick(&ByClass([true; 3])), Some(Priority::Interactive));
    }

    #[test]
    fn held_flows_keep_their_turns() {
        let (class, mut turns) = (Priority::Bulk, Turns::default());
        (1..4).for_each(|flow| turns.push_back(class, FlowId(flow)));
        for _ in 0..2 {
            let flow = turns.pop(class).unwrap();
            turns.hold(class, flow);
        }
        turns.pop(class);
        assert!(!turns.waits().any());
        turns.push_back(class, FlowId(4));
        turns.hold(class, FlowId(5));
        turns.remove(FlowId(2));
        assert!(turns.release());
        let order: Vec<_> = std::iter::from_fn(|| turns.pop(class)).map(|flow| flow.0).collect();
        assert_eq!(order, [1, 5, 4]);
        assert!(!turns.release());
    }

    #[test]
    fn answers_and_flows_take_turns() {
        let (class, mut turns, mut repairs) = (Priority::Normal, Turns::default(), Answers::default());
        (1..3).for_each(|flow| turns.push_back(class, FlowId(flow)));
        [9, 8].into_iter().for_each(|seq| turns.push_answer(class, FlowId(1), seq));
        repairs.insert(class, FlowId(1), 10);
        let mut order = Vec::new();
        while turns.waits().any() {
            match turns.pop_answer(class, Some(&mut repairs), |_, _| true) {
                Some(seq) => {
                    turns.note_answered(class);
                    order.push(seq);
                }
                None => order.extend(turns.pop(class).map(|flow| u64::from(flow.0))),
            }
        }
        assert_eq!(order, [10, 1, 8, 2, 9]);
    }
}
