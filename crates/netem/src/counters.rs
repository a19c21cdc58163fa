//! Counters of a link.

/// The fate of a link's packets since its creation.
///
/// `packets` = `queue_full` + `too_big` + `carried`; `carried` + `duplicated` = `lost` + delivered + still on the way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounters {
    /// Packets offered to the link.
    pub packets: u64,
    /// Packets dropped because the queue was full.
    pub queue_full: u64,
    /// Packets dropped because they exceed the MTU.
    pub too_big: u64,
    /// Serialised packets, lost ones included: these used the link's rate.
    pub carried: u64,
    /// Bytes of the carried packets, headers included: the bill of a metered link.
    pub carried_bytes: u64,
    /// Carried packets lost behind the queue.
    pub lost: u64,
    /// Carried packets delivered before earlier ones.
    pub reordered: u64,
    /// Extra copies made of carried packets.
    pub duplicated: u64,
    /// Packets handed out at the far end, copies included.
    pub delivered: u64,
    /// Bytes handed out at the far end, copies included.
    pub delivered_bytes: u64,
}
