//! A store that was there when the gateways last met, and is not.

use std::time::Duration;

use oncewire_testnet::{LinkParams, isolated};

use crate::common::data;
use crate::common::lost::{Loss, Trial, lose, without_gateways};

/// Whatever is lost, the next transfer costs what the first did, and the one after it next to nothing.
fn endure(codec: &'static str) {
    let line = LinkParams {
        rate_bits_per_s: Some(20_000_000),
        delay: Duration::from_millis(20),
        ..LinkParams::default()
    };
    let trial = Trial { line, codec, file: data::random(SEED, LEN) };
    let Some(seen) = lose(crate::binary(), &trial) else { return };
    let cold = seen.cold.wire;
    let Some(without) = without_gateways(crate::binary(), &trial.line, &trial.file) else { return };
    println!("seed {SEED}, {codec}, without gateways: {without}");
    assert!(cold < without.wire + without.wire / 8, "seed {SEED}, {codec}: cold {cold}, else {without}");
    for (loss, [next, again]) in Loss::ALL.iter().zip(seen.after) {
        println!("seed {SEED}, {codec}, cold {cold}, {loss:?}: {next}, then {again}");
        let most = if *loss == Loss::Nothing { cold / 2 } else { cold + cold / 4 };
        assert!(next.wire < most, "seed {SEED}, {codec}, {loss:?}: {next}, cold {cold}");
        assert!(again.wire < cold / 2, "seed {SEED}, {codec}, {loss:?}: {again}, cold {cold}");
        // What is lost was found out when they met, or the store says that it is empty.
        assert_eq!(next.absent, 0, "seed {SEED}, {codec}, {loss:?}: {next}");
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
