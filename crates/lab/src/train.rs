//! Training of SAMPLEBYTE's table by the greedy method of [EndRE §5.1.4].
//!
//! Max-Match with MAXP markers finds the redundant content. The byte values are ranked by their frequency in it, and
//! are added to the table one at a time, in that order, while savings with SAMPLEBYTE grow. The paper stops at
//! diminishing gains; here training stops after [`PATIENCE`] values in a row with less than [`MIN_GAIN`] above the
//! best before them, and leaves these out again: each value in the table is more markers, hence more work.
//!
//! Rejected: trying all values at each step and taking the best. It costs 256 times as much for a table with rarely
//! any gain, and fits the sample rather than similar content.

use bytes::Bytes;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wire::{Frame, MAX_BLOCK, take_frame};
use oncewire_codec::{MarkerKind, Plan, SampleTable};

use crate::encoder::Encoder;
use crate::frames;

/// How a table is trained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrainConfig {
    /// The mean distance between the table's markers; SAMPLEBYTE skips half of it behind a marker.
    pub period: u32,
    /// Bytes of the log; repeats at a larger distance are not seen.
    pub log_memory: u64,
}

impl Default for TrainConfig {
    fn default() -> Self {
        Self { period: 64, log_memory: 256 << 20 }
    }
}

/// A table, and how it came about.
#[derive(Clone, Debug, PartialEq)]
pub struct Trained {
    /// The table; never empty.
    pub table: SampleTable,
    /// Savings with it, before any entropy stage; as all savings here, of frames against plain bytes.
    pub savings: f64,
    /// Savings with the paper's table.
    pub paper: f64,
    /// Savings with MAXP markers, the goal for the table.
    pub maxp: f64,
    /// All added values, with the savings after each: the table has the first of them, up to its length.
    pub curve: Vec<Addition>,
    /// Bytes examined.
    pub bytes: u64,
    /// Redundant bytes among them.
    pub redundant: u64,
}

/// A value added to the table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Addition {
    /// The value.
    pub byte: u8,
    /// Savings with it and all values before it.
    pub savings: f64,
}

/// Bytes without repeats teach nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("nothing repeats in these bytes")]
pub struct NothingRepeats;

/// Trains a table on `flows`, in their order. `progress` is told of each pass over them as it ends.
///
/// It takes a pass for the ranking, one for the paper's table and one for each value: 10 to 30 as a rule, and
/// [`MAX_VALUES`] and two at most.
///
/// # Errors
/// If nothing in the flows repeats.
pub fn train(
    flows: &[Bytes],
    config: TrainConfig,
    mut progress: impl FnMut(),
) -> Result<Trained, NothingRepeats> {
    let trainer = Trainer { flows, config };
    let mut presence = [0u64; 256];
    let maxp = trainer
        .pass(MarkerKind::Maxp, SampleTable::PAPER, |plain, frame| note_copied(plain, frame, &mut presence));
    progress();
    let redundant: u64 = presence.iter().sum();
    let ranking = ranked(&presence);
    let paper = trainer.savings(SampleTable::PAPER);
    progress();
    let mut curve: Vec<Addition> = Vec::new();
    let mut best: Option<(usize, f64, SampleTable)> = None;
    for byte in ranking {
        let bytes = curve.iter().map(|added| added.byte).chain([byte]);
        let Ok(table) = SampleTable::from_bytes(bytes) else { break };
        let savings = trainer.savings(table);
        progress();
        curve.push(Addition { byte, savings });
        match best {
            Some((at, before, _)) if savings < before + MIN_GAIN => {
                if curve.len() - at >= PATIENCE {
                    break;
                }
            }
            _ => best = Some((curve.len(), savings, table)),
        }
    }
    let (_, savings, table) = best.ok_or(NothingRepeats)?;
    let bytes = flows.iter().map(|flow| flow.len() as u64).sum();
    Ok(Trained { table, savings, paper, maxp, curve, bytes, redundant })
}

struct Trainer<'a> {
    flows: &'a [Bytes],
    config: TrainConfig,
}

impl Trainer<'_> {
    fn savings(&self, table: SampleTable) -> f64 {
        self.pass(MarkerKind::SampleByte, table, |_, _| ())
    }

    /// Encodes all flows from an empty log, shows each block and its frame, and returns the savings.
    fn pass(&self, markers: MarkerKind, sample: SampleTable, mut note: impl FnMut(&[u8], &[u8])) -> f64 {
        let TrainConfig { period, log_memory } = self.config;
        let plan = Plan { markers, period, entropy: Entropy::None, ..Plan::default() };
        let params = MatchParams { period: period as usize, sample, ..MatchParams::default() };
        let mut encoder = Encoder::new(log_memory, params);
        let (mut frame, mut plain_len, mut wire) = (Vec::new(), 0usize, 0usize);
        for flow in self.flows {
            for start in (0..flow.len()).step_by(MAX_BLOCK) {
                let plain = flow.slice(start..flow.len().min(start + MAX_BLOCK));
                frame.clear();
                encoder.encode(plain.clone(), &plan, &mut frame);
                note(&plain, &frame);
                plain_len += plain.len();
                wire += frame.len();
            }
            encoder.next_flow();
        }
        1.0 - wire as f64 / plain_len.max(1) as f64
    }
}

/// Counts the copied bytes of `plain`, according to `frame`.
fn note_copied(plain: &[u8], frame: &[u8], presence: &mut [u64; 256]) {
    let Ok(Some((kind, body, _))) = take_frame(frame) else { return };
    let Ok(Frame::Block(block)) = Frame::decode(kind, body) else { return };
    for copy in frames::copies(&block).into_iter().flatten() {
        for byte in plain.get(copy.at as usize..copy.end()).unwrap_or_default() {
            if let Some(count) = presence.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
    }
}

/// Returns the occurring values, the most frequent first, of equal ones the smaller.
fn ranked(presence: &[u64; 256]) -> Vec<u8> {
    let mut ranking: Vec<u8> =
        (0..=u8::MAX).filter(|byte| presence.get(usize::from(*byte)) > Some(&0)).collect();
    ranking.sort_by_key(|byte| std::cmp::Reverse(presence.get(usize::from(*byte))));
    ranking.truncate(MAX_VALUES);
    ranking
}

/// The gain of a value worth its markers: a tenth of a point of savings.
pub const MIN_GAIN: f64 = 0.001;

/// Values in a row with less than [`MIN_GAIN`] before training stops.
pub const PATIENCE: usize = 4;

/// The most values to try. Far fewer are of use: with p/2 bytes skipped behind a marker, more only cost.
pub const MAX_VALUES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::Corpus;

    fn twice(data: &[u8]) -> Vec<Bytes> {
        // Not the whole of it, so no block of the second begins as one of the first did.
        vec![Bytes::copy_from_slice(data), Bytes::copy_from_slice(&data[1000..])]
    }

    #[test]
    fn table_for_letters_missing_in_the_papers_matches_maxp() {
        let genome: Vec<u8> =
            Corpus::new(1).random(300_000).iter().map(|byte| b"ACGT"[usize::from(byte % 4)]).collect();
        let mut passes = 0;
        let trained = train(&twice(&genome), TrainConfig::default(), || passes += 1).unwrap();
        assert!(trained.table.bytes().all(|byte| b"ACGT".contains(&byte)), "{trained:?}");
        assert!(trained.paper < 0.01 && trained.savings > 0.45, "{trained:?}");
        assert!(trained.savings > trained.maxp * 0.95, "{trained:?}");
        assert_eq!(passes, trained.curve.len() + 2);
        assert_eq!(trained.bytes, 599_000);
        assert!(trained.redundant > 290_000);
    }

    #[test]
    fn values_without_gain_are_left_out_of_the_table() {
        let text = Corpus::new(2).text(400_000);
        let trained = train(&twice(&text), TrainConfig::default(), || ()).unwrap();
        let (kept, dropped) = trained.curve.split_at(trained.table.len());
        assert_eq!(SampleTable::from_bytes(kept.iter().map(|added| added.byte)), Ok(trained.table));
        assert_eq!(kept.last().map(|added| added.savings), Some(trained.savings));
        assert!(dropped.len() <= PATIENCE);
        assert!(dropped.iter().all(|added| added.savings < trained.savings + MIN_GAIN), "{trained:?}");
    }

    #[test]
    fn frequent_values_of_redundant_content_come_first() {
        let mut presence = [0; 256];
        (presence[9], presence[7], presence[200]) = (5, 5, 8);
        assert_eq!(ranked(&presence), [200, 7, 9]);
    }

    #[test]
    fn bytes_without_repeats_teach_nothing() {
        let noise = Bytes::from(Corpus::new(3).random(300_000));
        assert_eq!(train(&[noise], TrainConfig::default(), || ()), Err(NothingRepeats));
        assert_eq!(train(&[], TrainConfig::default(), || ()), Err(NothingRepeats));
    }
}
