//! The cost of a partly lost store, next to sound and empty ones.
//!
//! `lost.tsv` is the reviewed answer; `ONCEWIRE_UPDATE=1 cargo test -p oncewire-lab` writes it anew.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fmt::Write as _;

use bytes::Bytes;
use oncewire_codec::wanax::Shape;
use oncewire_codec::wire::FlowId;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::corpus::Corpus;
use oncewire_lab::pair::{Pair, PairConfig};

mod reviewed;

use reviewed::assert_reviewed;

/// The cost of four transfers of the same bytes: into an empty store, then after it lost a share, and twice more.
/// Gateways are started anew before each.
struct Costs {
    transfers: [u64; 4],
    /// Lost bytes.
    lost: u64,
}

impl Costs {
    /// The lost bytes, and the cost of the later transfers, in thousandths of the first.
    fn shares(&self) -> [u64; 4] {
        let [first, second, third, fourth] = self.transfers;
        [self.lost, second, third, fourth].map(|bytes| 1000 * bytes / first)
    }
}

/// How a store is lost.
#[derive(Clone, Copy)]
struct Loss {
    percent: u64,
    /// So many blocks in a row are lost together, as neighbours on a disk.
    run: u64,
    /// Seconds between two transfers.
    later_secs: u64,
    seed: u64,
}

fn mixed(number: u64) -> u64 {
    let mut x = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn costs(data: &[u8], loss: Loss) -> Costs {
    let plan = Some(Plan { layers: Layers::Names, ..Plan::default() });
    let config = PairConfig {
        plan,
        store: Some(Shape::default()),
        log_memory: 16 << 20,
        max_in_flight: 4 << 20,
        ..PairConfig::default()
    };
    let mut pair = Pair::new(config);
    let mut lost = 0;
    let transfers = [0, 1, 2, 3].map(|transfer| {
        let before = pair.totals().wire;
        if transfer > 0 {
            pair.restart(loss.later_secs).unwrap();
        }
        let blocks = send(&mut pair, transfer, data, loss.seed);
        if transfer == 0 {
            let seed = mixed(loss.seed);
            let is_lost = |put| mixed(seed ^ (put / loss.run)) % 100 < loss.percent;
            pair.lose_blocks(is_lost);
            // Nothing comes twice in it, so each block was put.
            lost = (0..).zip(blocks).filter(|(put, _)| is_lost(*put)).map(|(_, len)| len).sum();
        }
        pair.totals().wire - before
    });
    Costs { transfers, lost }
}

/// Sends bytes as from a socket read in pieces, different ones in each transfer: a block ends at the end of a read.
/// Returns the lengths of the blocks.
fn send(pair: &mut Pair, transfer: u32, data: &[u8], seed: u64) -> Vec<u64> {
    let (flow, mut blocks) = (FlowId(transfer), Vec::new());
    let (mut offset, mut read, mut readings) = (0, 0, mixed(seed << 8 | u64::from(transfer)));
    while offset < data.len() {
        if offset == read {
            readings = mixed(readings);
            read = (read + (64 << 10) + (readings % (192 << 10)) as usize).min(data.len());
        }
        let at_end = read == data.len();
        let cut = pair.cut(flow, &data[offset..read], at_end);
        let end = offset + cut.len.clamp(1, read - offset);
        let block = Bytes::copy_from_slice(&data[offset..end]);
        blocks.push(block.len() as u64);
        pair.send_parts(flow, offset as u64, block, end == data.len(), cut.parts).unwrap();
        offset = end;
    }
    pair.finish_flow(flow).unwrap();
    blocks
}

#[test]
fn partly_lost_store_costs_no_more_than_an_empty_one() {
    let mut table = String::from("lost, %\tblocks together\tseconds later\tlost\tsecond\tthird\tfourth\n");
    for (run, later_secs) in [(1, 5), (16, 3600)] {
        for percent in [0, 10, 25, 50, 75, 90, 100] {
            let (mut sums, mut most) = ([0; 4], [0; 4]);
            for seed in 0..SEEDS {
                let data = Corpus::new(seed).random(LEN);
                let shares = costs(&data, Loss { percent, run, later_secs, seed }).shares();
                let at = format!("{percent} % in runs of {run}, seed {seed}: {shares:?}");
                assert!(shares.iter().all(|share| *share <= 1030), "dearer than cold, {at}");
                assert!(shares[2] <= 220 && shares[3] <= 120, "what crossed again is not known, {at}");
                for (place, share) in shares.into_iter().enumerate() {
                    sums[place] += share;
                    most[place] = share.max(most[place]);
                }
            }
            let cells = sums.iter().zip(most).map(|(sum, most)| format!("\t{} ({most})", sum / SEEDS));
            writeln!(table, "{percent}\t{run}\t{later_secs}{}", cells.collect::<String>()).unwrap();
        }
    }
    print!("{table}");
    assert_reviewed("lost.tsv", &table);
}

const SEEDS: u64 = 4;
const LEN: usize = 5_000_000;
