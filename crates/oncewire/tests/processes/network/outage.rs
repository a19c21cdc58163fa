//! Real programs in the middle of an outage.

use std::time::Duration;

use oncewire_testnet::isolated;

use crate::common::outage::{Ordeal, Outage, Survived, survive};

/// Runs one long enough for both gateways to notice.
fn endure(outage: Outage) -> Option<Survived> {
    let ordeal = Ordeal {
        outage,
        away: Duration::from_secs(6),
        len: 6 << 20,
        both: "[link]\ndead_after = \"2 s\"\n".into(),
    };
    let seen = survive(crate::binary(), &ordeal)?;
    println!("download | upload | ssh session | lines logged by branch, hub: {seen}");
    Some(seen)
}

#[test]
fn transfers_and_ssh_session_outlive_a_silent_path() {
    isolated(|| {
        endure(Outage::Silent([true, true]));
    });
}

#[test]
fn transfers_and_ssh_session_outlive_a_refusing_path() {
    isolated(|| {
        endure(Outage::Refused);
    });
}

#[test]
fn flapping_peer_ends_no_flow_and_fills_no_log() {
    isolated(|| {
        let Some(seen) = endure(Outage::Flapping) else { return };
        // It went and came three times: a line for each at most, and some for flows under way.
        assert!(seen.log_lines.iter().all(|lines| *lines <= 30), "{:?}", seen.log_lines);
    });
}
