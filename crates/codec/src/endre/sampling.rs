//! The bytes chosen by SAMPLEBYTE in a sending half's traffic, from block to block.

use std::ops::Range;

use oncewire_fingerprint::{Adaptation, SampleTable};

use super::matcher::{Copy, MatchParams};
use crate::log::{Log, LogOffset};
use crate::wire::MAX_BLOCK;

/// The table of a log: the one set, or what was learnt from the traffic.
///
/// Both matchings follow it. It outlives their tables, so what it learnt does not go when a log is released.
pub(crate) struct Sampling {
    set: SampleTable,
    adaptation: Option<Adaptation>,
    /// The distance that markers are to have, as the adaptation knows it.
    period: usize,
}

impl Sampling {
    pub(crate) fn new(params: &MatchParams) -> Self {
        let &MatchParams { sample: set, period, .. } = params;
        let adaptation = params.sample_adapts.then(|| Adaptation::new(set, period));
        Self { set, adaptation, period }
    }

    /// The table for the next block.
    pub(crate) fn table(&self) -> SampleTable {
        self.adaptation.as_ref().map_or(self.set, Adaptation::table)
    }

    /// Takes note of a block with markers by SAMPLEBYTE, and of its copies.
    pub(crate) fn note(&mut self, period: usize, block: &[u8], copies: &[Copy]) {
        let Some(adaptation) = &mut self.adaptation else { return };
        if period != self.period {
            self.period = period;
            adaptation.set_period(period);
        }
        adaptation.note_content(block);
        for copy in copies {
            adaptation.note_copied(block.get(copy.at as usize..copy.end()).unwrap_or_default());
        }
        adaptation.next_table();
    }

    /// Learns from a log found on disk, before it is indexed: its bytes are the traffic that there was.
    pub(crate) fn learn(&mut self, period: usize, log: &Log, range: Range<LogOffset>) {
        if self.adaptation.is_none() {
            return;
        }
        let mut at = range.start.max(range.end.minus(log.capacity()));
        let mut piece = Vec::with_capacity(MAX_BLOCK);
        while at < range.end {
            let len = range.end.since(at).min(MAX_BLOCK as u64);
            piece.clear();
            log.copy_to(at, len as usize, &mut piece);
            self.note(period, &piece, &[]);
            at = at.plus(len);
        }
    }
}
