//! One round of all faults.

use std::time::Duration;

use oncewire_testnet::isolated;

use crate::common::soak::{Soak, run};

#[test]
fn round_of_all_faults_costs_no_byte_and_leaves_nothing() {
    isolated(|| {
        let longest = Duration::from_secs(6);
        let soak = Soak { seed: 1, lasts: Duration::ZERO, longest, workers: 12, store: false };
        run(crate::binary(), &soak);
    });
}
