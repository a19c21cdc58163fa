//! Where a block ends that a flow begins with.
//!
//! Under a limit a block is short, since one that has begun cannot be overtaken. What the log has already crosses as one
//! copy however long it is, so as long as a flow goes on repeating what it repeated, its blocks are long all the same.

use oncewire_fingerprint::common_prefix;

use super::Sender;
use crate::contract::Behind;
use crate::endre::remote_log::Emulation;
use crate::log::LogOffset;
use crate::wire::{FlowId, MAX_BLOCK};
use crate::{Now, Plan};

impl Sender {
    /// Returns how long the block should be that `bytes` begin with; see
    /// [`Encoder::block_end`](crate::contract::Encoder::block_end).
    pub(crate) fn cut(
        &mut self,
        flow: FlowId,
        plan: &Plan,
        bytes: &[u8],
        behind: Behind,
        most: usize,
        now: Now,
    ) -> usize {
        let bytes = bytes.get(..MAX_BLOCK).unwrap_or(bytes);
        if bytes.len() > most {
            let repeated = self.repeated(flow, plan, bytes);
            if repeated > most {
                return repeated;
            }
        }
        match &mut self.naming {
            Some(naming) if plan.layers.use_names() && naming.is_met() => {
                naming.block_end(bytes, behind, most, &self.ledger, now)
            }
            _ => bytes.len().min(most),
        }
    }

    /// Returns how many of the bytes go on with what the flow's last block repeated.
    fn repeated(&self, flow: FlowId, plan: &Plan, bytes: &[u8]) -> usize {
        match self.diagonals.get(&flow) {
            Some(&source) if plan.layers.use_log() => self.log.equal_at(source, self.floor(), bytes),
            _ => 0,
        }
    }
}

impl Emulation {
    /// Returns how many bytes are in the log from `source` on, which may be anywhere, as far as a block may refer to
    /// them: from `floor` on, and not where the receiver has a hole.
    fn equal_at(&self, source: LogOffset, floor: u64, bytes: &[u8]) -> usize {
        let end = self.holes().from(source.0).map_or(u64::MAX, |hole| hole.start).min(self.head());
        let Some(log) = self.bytes().filter(|_| (floor..end).contains(&source.0)) else { return 0 };
        let known = bytes.get(..(end - source.0).min(bytes.len() as u64) as usize).unwrap_or(bytes);
        let (first, second) = log.slices(source, known.len());
        let equal = common_prefix(known, first);
        if equal < first.len() {
            return equal;
        }
        equal + common_prefix(known.get(equal..).unwrap_or_default(), second)
    }
}
