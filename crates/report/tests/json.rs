//! The JSON contract: documented examples of `status` and `flows` round-trip.
//!
//! The examples in `docs/reference/json.md` must equal this build's output. So must the names of metrics.

#![allow(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use oncewire_codec::adapt::Reason as AdaptReason;
use oncewire_report::{
    ClearReport, CompactReport, FlowsReport, Outcome, Reason, Refusal, StatusReport, StoreCondition,
    VerifyReport, encode_metrics,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const DOCUMENT: &str = include_str!("../../../docs/reference/json.md");

/// Returns the example below a heading.
fn example(heading: &str) -> Value {
    let below = DOCUMENT.split(&format!("## `oncewire {heading} --json`")).nth(1).unwrap();
    let json = below.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    serde_json::from_str(json).unwrap()
}

/// Reads an example and writes it again: a key missing in the document, or in excess, shows up as a
/// difference.
fn assert_round_trip<T: DeserializeOwned + Serialize>(heading: &str) {
    let documented = example(heading);
    let report: T = serde_json::from_value(documented.clone()).unwrap();
    assert_eq!(serde_json::to_value(report).unwrap(), documented, "{heading}");
}

#[test]
fn documented_status_equals_the_output() {
    assert_round_trip::<StatusReport>("status");
}

#[test]
fn documented_flows_equal_the_output() {
    assert_round_trip::<FlowsReport>("flows");
}

#[test]
fn documented_clearing_equals_the_output() {
    assert_round_trip::<ClearReport>("cache clear");
}

#[test]
fn documented_store_tools_equal_the_output() {
    assert_round_trip::<VerifyReport>("store verify");
    assert_round_trip::<CompactReport>("store compact");
}

#[test]
fn documented_measure_settings_are_the_defaults() {
    let settings = oncewire_config::CodecSettings::for_gateway();
    assert_eq!(serde_json::to_value(settings).unwrap(), example("measure")["config"]);
}

#[test]
fn every_word_of_the_contract_is_documented() {
    let reasons = [
        Reason::Policy,
        Reason::PeerPolicy,
        Reason::Tls,
        Reason::Ssh,
        Reason::PeerLost,
        Reason::NoPeer,
        Reason::Tunnel,
        Reason::TooManyFlows,
    ];
    let outcomes = [Outcome::Coded, Outcome::Uncoded, Outcome::Direct, Outcome::Bypassed, Outcome::Refused];
    let paces = [
        AdaptReason::Configured,
        AdaptReason::Off,
        AdaptReason::EncoderBound,
        AdaptReason::Recovering,
        AdaptReason::Probe,
    ];
    let refusals = Refusal::ALL.iter().map(|refusal| refusal.name());
    let words =
        reasons.iter().map(|reason| reason.name()).chain(outcomes.iter().map(|o| o.name())).chain(refusals);
    let words = words.chain(paces.iter().map(|reason| reason.name()));
    let stores = [
        StoreCondition::Open,
        StoreCondition::Opening,
        StoreCondition::Hanging,
        StoreCondition::Clearing,
        StoreCondition::ReadOnly,
        StoreCondition::Failed,
    ];
    let words = words.chain(stores.iter().map(|state| state.name()));
    for word in words {
        assert!(DOCUMENT.contains(&format!("`{word}`")), "{word}");
    }
}

#[test]
fn every_metric_is_documented() {
    let metrics = encode_metrics(&serde_json::from_value(example("status")).unwrap());
    let names: Vec<&str> =
        metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next()).collect();
    assert!(names.len() > 40, "{names:?}");
    for name in names {
        assert!(DOCUMENT.contains(&format!("`{name}`")), "{name}");
    }
}

#[test]
fn readers_pass_over_keys_of_later_versions() {
    let mut status = example("status");
    status["peers"][0]["temperature"] = 451.into();
    serde_json::from_value::<StatusReport>(status).unwrap();
}
