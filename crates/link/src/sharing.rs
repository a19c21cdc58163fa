//! Who sends next: flows of three classes, each with its share.

use std::collections::VecDeque;
use std::fmt;

use oncewire_codec::wire::FlowId;

/// How urgent what a flow sends is. Where classes compete, each has the share of its weight, so none starves; within a
/// class flows take turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// Somebody waits for each byte. Weight 16.
    Interactive,
    /// Everything else, until it has sent much. Weight 4.
    Normal,
    /// What may take its time. Weight 1.
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

/// Shares out by start-time fair queuing [Goyal, Vin, Cheng 1996]: what is sent next is of the class that has had the
/// least for its weight. A class that had nothing to send begins where the others stand, so that nothing is saved up.
#[derive(Debug, Default)]
pub(crate) struct Shares {
    /// Where the class's last turn ended.
    ends: ByClass<u64>,
    /// Where the last turn began.
    now: u64,
}

impl Shares {
    /// Chooses among the classes that have something to send, of equals the most urgent.
    pub(crate) fn pick(&mut self, waits: &ByClass<bool>) -> Option<Priority> {
        let waiting = Priority::ALL.into_iter().filter(|&class| *waits.of(class));
        let next = waiting.min_by_key(|&class| self.start(class))?;
        self.now = self.start(next);
        Some(next)
    }

    /// Counts what was sent of a class.
    pub(crate) fn charge(&mut self, class: Priority, bytes: usize) {
        let share = (bytes as u64).saturating_mul(Priority::Interactive.weight()) / class.weight();
        *self.ends.of_mut(class) = self.start(class).saturating_add(share);
    }

    fn start(&self, class: Priority) -> u64 {
        self.now.max(*self.ends.of(class))
    }
}

/// The flows of a lane that have something to send, in turn.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    queues: ByClass<VecDeque<FlowId>>,
    shares: Shares,
}

impl Turns {
    pub(crate) fn push_back(&mut self, class: Priority, flow: FlowId) {
        self.queues.of_mut(class).push_back(flow);
    }

    pub(crate) fn push_front(&mut self, class: Priority, flow: FlowId) {
        self.queues.of_mut(class).push_front(flow);
    }

    pub(crate) fn pop(&mut self, class: Priority) -> Option<FlowId> {
        self.queues.of_mut(class).pop_front()
    }

    pub(crate) fn remove(&mut self, flow: FlowId) {
        Priority::ALL
            .into_iter()
            .for_each(|class| self.queues.of_mut(class).retain(|&queued| queued != flow));
    }

    /// The classes of which there are flows.
    pub(crate) fn waits(&self) -> ByClass<bool> {
        ByClass(self.queues.0.each_ref().map(|queue| !queue.is_empty()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queues.0.iter().all(VecDeque::is_empty)
    }

    /// Chooses the class whose turn it is.
    pub(crate) fn pick(&mut self) -> Option<Priority> {
        self.shares.pick(&self.waits())
    }

    /// Counts what was sent of a class.
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
    fn classes_that_compete_have_their_weights_and_none_starves() {
        assert_eq!(serve(&mut Shares::default(), [true; 3], 2100), [1600, 400, 100]);
        assert_eq!(serve(&mut Shares::default(), [false, true, true], 500), [0, 400, 100]);
        assert_eq!(serve(&mut Shares::default(), [false, false, true], 7), [0, 0, 7]);
        assert_eq!(Shares::default().pick(&ByClass([false; 3])), None);
    }

    #[test]
    fn idle_time_is_not_saved_up() {
        let mut shares = Shares::default();
        serve(&mut shares, [true, false, false], 10_000);
        // Bulk had nothing for long: it does not get all of that now.
        assert_eq!(serve(&mut shares, [true, false, true], 170), [160, 0, 10]);
    }

    #[test]
    fn whoever_becomes_urgent_is_next() {
        let mut shares = Shares::default();
        serve(&mut shares, [false, true, true], 501);
        assert_eq!(shares.pick(&ByClass([true; 3])), Some(Priority::Interactive));
    }
}
