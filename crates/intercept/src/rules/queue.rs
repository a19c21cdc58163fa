//! The queue of held packets, and the marks in it.

/// How packets get into the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueBy {
    /// By the table itself.
    #[default]
    Nft,
    /// By a rule of iptables and one of ip6tables.
    Iptables,
}

/// Numbers shared by rules and a gateway for held packets: marks with the meaning in the upper half, and the
/// gateway in the lower half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HoldNumbers(pub(super) u16);

impl HoldNumbers {
    /// Returns the number of the queue.
    pub(crate) fn queue(self) -> u16 {
        self.0
    }

    /// Returns the mark of a packet held for an interception.
    pub(super) fn asked(self, index: u8) -> u32 {
        ASKED | u32::from(index) << 16 | u32::from(self.0)
    }

    /// Returns the interception of a mark, by its place in the configuration.
    pub(crate) fn asked_by(self, mark: u32) -> Option<usize> {
        let ours = mark & !INDEX == self.asked(0);
        ours.then_some((mark & INDEX) as usize >> 16)
    }

    pub(crate) fn taken_in(self) -> u32 {
        self.answer(1)
    }

    pub(crate) fn refused(self) -> u32 {
        self.answer(2)
    }

    pub(crate) fn unreachable(self) -> u32 {
        self.answer(3)
    }

    pub(crate) fn prohibited(self) -> u32 {
        self.answer(4)
    }

    fn answer(self, code: u32) -> u32 {
        ANSWERED | code << 16 | u32::from(self.0)
    }
}

/// Base of marks on held packets; the byte behind it is the interception.
pub(super) const ASKED: u32 = 0x6e00_0000;

pub(super) const INDEX: u32 = 0x00ff_0000;

/// Base of marks on answered packets.
pub(super) const ANSWERED: u32 = 0x6d00_0000;
