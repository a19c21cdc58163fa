//! Replays the fuzzers' corpora; a failure prints the file that did it last.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test that reads files")]

#[path = "../../../fuzz/bodies/codec.rs"]
mod bodies;
#[path = "../../../fuzz/bodies/replay.rs"]
mod replay;

use replay::{random, replay};

#[test]
fn hello_survives_its_corpus() {
    replay("hello", bodies::hello);
}

#[test]
fn frames_survives_its_corpus() {
    replay("frames", bodies::frames);
}

#[test]
fn tokens_survives_its_corpus() {
    replay("tokens", bodies::tokens);
}

#[test]
fn entropy_survives_its_corpus() {
    replay("entropy", bodies::entropy);
}

#[test]
fn receiver_survives_its_corpus() {
    replay("receiver", bodies::receiver);
}

#[test]
fn codec_pair_survives_its_corpus() {
    replay("codec_pair", bodies::codec_pair);
}

#[test]
fn both_halves_survive_random_scripts() {
    random(200, 2000, bodies::codec_pair);
}

#[test]
fn steps_grow_no_faster_than_input_in_the_corpus() {
    replay("steps", bodies::steps::steps);
}

#[test]
fn steps_grow_no_faster_than_tenfold_input() {
    use bodies::steps::{Attack, Hostile};
    // What does not arrive may be 32,768 numbers ahead.
    let copies = Attack::Copies { count: 15_000, from: 0, len: 1 << 16 };
    let wait = Attack::Wait { count: 40 };
    let fill = |count, down| Attack::Fill { count, from: 0, stride: 2, down };
    let scripts: [&[Attack]; 5] = [
        &[fill(160_000, false), copies, wait, copies, wait],
        &[copies, fill(240_000, false), copies, wait],
        &[copies, fill(240_000, true), copies, wait],
        &[Attack::Wrong { count: 32_700 }, Attack::Resets { count: 160_000 }],
        &[Attack::Scattered { count: 1000, from: 1, copies: 16_000 }, fill(160_000, true), wait],
    ];
    for script in scripts {
        let mut peer = Hostile::new();
        script.iter().for_each(|attack| peer.run(attack, &mut |_| ()));
        let (taken, bytes) = (peer.steps(), peer.bytes);
        println!("{taken} steps for {bytes} bytes: {script:?}");
        assert!(taken <= bytes, "{taken} steps for {bytes} bytes: {script:?}");
    }
}

#[test]
fn blocks_waiting_for_one_byte_wake_in_turns() {
    use bodies::steps::{Attack, Hostile};
    use oncewire_codec::contract::Decoder as _;
    let mut peer = Hostile::new();
    let (mut before, mut most) = (0, 0);
    let mut note = |receiver: &oncewire_codec::stream::Receiver| {
        most = most.max(receiver.work() - std::mem::replace(&mut before, receiver.work()));
    };
    peer.run(&Attack::Scattered { count: 100, from: 1, copies: 16_000 }, &mut note);
    // The last byte of all comes, and they lack the one before.
    peer.run(&Attack::Fill { count: 2, from: 49 * 15_998, stride: 2, down: true }, &mut note);
    assert!(peer.receiver.poll_timeout().is_some_and(|due| due.is_zero()), "some have their turn later");
    assert!(most <= 2 * (128 << 10), "{most} steps at once");
}

#[test]
fn wrong_blocks_sent_again_end_the_lane_after_a_few() {
    use bodies::steps::{Attack, Hostile};
    let mut peer = Hostile::new();
    let (mut taken, mut last) = (0, 0);
    peer.run(&Attack::Fill { count: 2, from: 0, stride: 1, down: false }, &mut |_| ());
    peer.run(&Attack::Again { count: 1000, copies: 21_000 }, &mut |receiver| {
        use oncewire_codec::contract::Decoder as _;
        let mismatches = receiver.stats().mismatches;
        taken += u64::from(mismatches > std::mem::replace(&mut last, mismatches));
    });
    assert!((2..=20).contains(&taken), "{taken} of 1000");
}
