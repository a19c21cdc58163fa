//! A store that was there when the gateways last met, and is not.

use std::time::Duration;

use oncewire_testnet::{LinkParams, isolated};

use crate::common::data;
use crate::common::lost::{Fetched, Loss, Transfer, Trial, without_gateways};
use crate::common::wait::eventually;

/// Gateways start and stop twice in each try.
const TRIES_LIMIT: Duration = Duration::from_secs(300);

/// Whatever is lost, the next transfer costs what the first did, and the one after it next to nothing.
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
        // What a busy machine finds too late in stores crosses again, and rightly so; then from the state as it was.
        eventually(
            &format!("seed {SEED}, {codec}, {loss:?}: what is known crosses no more"),
            TRIES_LIMIT,
            || {
                let [next, again] = pair.after(loss);
                println!("seed {SEED}, {codec}, cold {cold}, {loss:?}: {next}, then {again}");
                assert!(next.wire < cold + cold / 4, "seed {SEED}, {codec}, {loss:?}: {next}, cold {cold}");
                // What is lost was found out when they met, or the store says that it is empty.
                assert_eq!(next.absent, 0, "seed {SEED}, {codec}, {loss:?}: {next}");
                let is_known = |transfer: Transfer| transfer.wire < cold / 2;
                (is_known(again) && (loss != Loss::Nothing || is_known(next))).then_some(())
            },
        );
    }
}

#[test]
fn a_store_without_what_its_peer_believes_in_it_costs_no_more_than_a_cold_one() {
    isolated(|| endure("wanax"));
}

#[test]
fn a_store_and_a_log_that_are_lost_cost_no_more_than_cold_ones() {
    isolated(|| endure("auto"));
}

const SEED: u64 = 1;
const LEN: usize = 2_000_000;
