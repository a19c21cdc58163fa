//! A store lost after the gateways' last meeting.

use std::time::Duration;

use oncewire_testnet::{LinkParams, isolated};

use crate::common::data;
use crate::common::lost::{Fetched, Loss, Transfer, Trial, without_gateways};
use crate::common::wait::eventually;

/// Gateways start and stop twice in each try.
const TRIES_LIMIT: Duration = Duration::from_secs(300);

/// After any loss, the next transfer costs as much as the first, and the one after it next to nothing.
fn endure(codec: &'static str) {
    let line = LinkParams {
        rate_bits_per_s: Some(20_000_000),
        delay: Duration::from_millis(20),
        ..LinkParams::default()
    };
    let trial = Trial { line, codec, both: "[link]\nshed = false\n", file: data::random(SEED, LEN) };
    let Some(mut pair) = Fetched::once(crate::binary(), &trial) else { return };
    let cold = pair.cold.wire;
    let Some(without) = without_gateways(crate::binary(), &trial.line, &trial.file) else { return };
    println!("seed {SEED}, {codec}, without gateways: {without}");
    assert!(cold < without.wire + without.wire / 8, "seed {SEED}, {codec}: cold {cold}, else {without}");
    for loss in Loss::ALL {
        // Content found too late in stores on a busy machine crosses again, and rightly so; then from the earlier
        // state.
        eventually(
            &format!("seed {SEED}, {codec}, {loss:?}: what is known crosses no more"),
            TRIES_LIMIT,
            || {
                let [next, again] = pair.after(loss);
                println!("seed {SEED}, {codec}, cold {cold}, {loss:?}: {next}, then {again}");
                assert!(next.wire < cold + cold / 4, "seed {SEED}, {codec}, {loss:?}: {next}, cold {cold}");
                // The loss was noticed at their meeting, or the store reports itself as empty.
                assert_eq!(next.absent, 0, "seed {SEED}, {codec}, {loss:?}: {next}");
                let is_known = |transfer: Transfer| transfer.wire < cold / 2;
                (is_known(again) && (loss != Loss::Nothing || is_known(next))).then_some(())
            },
        );
    }
}

#[test]
fn store_emptied_unknown_to_its_peer_costs_as_cold() {
    isolated(|| endure("wanax"));
}

#[test]
fn lost_store_and_log_cost_no_more_than_cold_ones() {
    isolated(|| endure("auto"));
}

const SEED: u64 = 1;
const LEN: usize = 2_000_000;
