//! Speed-up of transfers by the link's rate, with one disk [Wanax Figure 10].

use std::time::Duration;

use bytes::Bytes;
use oncewire_codec::entropy::Entropy;
use oncewire_codec::{Layers, Plan};
use oncewire_lab::simulation::{DiskParams, GatewayConfig, PathConfig, SimulationError, StoreConfig};
use oncewire_netem::tcp::congestion::Policy;

use crate::files::{self, gateways};
use crate::table;

pub(crate) fn run(files: &[Vec<u8>]) -> Result<(), SimulationError> {
    let files: Vec<Bytes> = files.iter().map(|file| Bytes::from(file.clone())).collect();
    let bytes: usize = files.iter().skip(1).map(Bytes::len).sum();
    let notes = format!(
        "Times as fast as without gateways, {} MB behind the first file, over a line with a round trip of {} ms, from \
         one disk of {:.1} ms a read; in brackets without load shedding. Each chunk is a read of its own, but for the \
         last two columns, where small ones lie in containers. All connections are under cubic, in the last column bbr.",
        bytes / 1_000_000,
        ROUND_TRIP.as_millis(),
        DiskParams::default().seek.as_secs_f64() * 1e3
    );
    let columns = [&["link"], &SHAPES[..], &["mrc:8:128, containers", "and bbr"]].concat();
    table::start("Effective bandwidth by the rate of the link", &notes, &columns);
    let plan = Plan { layers: Layers::Names, entropy: Entropy::None, ..Plan::default() };
    for megabits_per_s in RATES {
        let mut cells = vec![format!("{megabits_per_s} Mbit/s")];
        let each = SHAPES.iter().map(|shape| (*shape, false, Policy::Cubic));
        let as_in_the_daemon = [Policy::Cubic, Policy::Bbr].map(|policy| (SHAPES[0], true, policy));
        for (shape, containers, policy) in each.chain(as_in_the_daemon) {
            let Ok(shape) = shape.parse() else { continue };
            let path = PathConfig { policy, ..path(megabits_per_s) };
            let direct = seconds(path, None, &files)?;
            let times = |shed| {
                let store =
                    StoreConfig { disk: DiskParams::default(), disks: 1, memory: 0, containers, shed };
                let gateways = GatewayConfig { window: WINDOW, ..gateways(plan, shape, store) };
                Ok::<f64, SimulationError>(direct / seconds(path, Some(gateways), &files)?)
            };
            cells.push(format!("{:.2} ({:.2})", times(true)?, times(false)?));
        }
        table::row(&cells);
    }
    Ok(())
}

/// Returns how long all files but the first take.
fn seconds(
    path: PathConfig,
    gateways: Option<GatewayConfig>,
    files: &[Bytes],
) -> Result<f64, SimulationError> {
    let transfers = files::transfer(path, gateways, files)?;
    let each = transfers.iter().zip(files).skip(1);
    Ok(each.map(|(got, file)| 8.0 * file.len() as f64 / (got.megabits_per_s * 1e6)).sum())
}

fn path(megabits_per_s: u64) -> PathConfig {
    PathConfig {
        rate_bits_per_s: 1_000_000 * megabits_per_s,
        round_trip: ROUND_TRIP,
        queue: 2 * ROUND_TRIP,
        ..PathConfig::default()
    }
}

const SHAPES: [&str; 6] = ["mrc:8:128", "mrc:4:64", "src:128", "src:1024", "src:8192", "src:65536"];
const RATES: [u64; 9] = [1, 2, 5, 10, 20, 50, 100, 200, 500];
/// Long enough for blocks to be planned before they come, and short beside transfers at the highest rates.
const ROUND_TRIP: Duration = Duration::from_millis(50);
/// Three times the bytes of a round trip on the fastest line.
const WINDOW: u64 = 10 << 20;
