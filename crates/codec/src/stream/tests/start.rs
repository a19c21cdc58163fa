//! Whether a log goes on or starts over: both halves tell the same.

use super::verify::{CAPACITY, Halves, SEED, noise, sender_config};
use crate::contract::{
    Decoder, DecoderLog as _, Encoder, EncoderLog as _, LogStart, LogStarts, ReceiveEvent, SendEvent,
};
use crate::stream::{Receiver, ReceiverConfig, Sender};
use crate::wire::LogClaim;
use crate::{Matching, Plan};

fn sender() -> Sender {
    Sender::new(sender_config(Plan::default(), CAPACITY))
}

fn receiver() -> Receiver {
    Receiver::new(ReceiverConfig {
        capacity: CAPACITY,
        max_in_flight: CAPACITY / 4,
        contexts: 2,
        digest_seed: SEED,
        persist: false,
        store: false,
    })
}

/// Two halves that have met and remember 300,000 bytes.
fn halves() -> Halves {
    let mut halves = Halves::new(Matching::Max);
    halves.reconnect(None);
    (0..6).for_each(|seed| drop(halves.cross(&noise(seed, 50_000))));
    assert_eq!(starts(&halves), [LogStarts::default(); 2], "of a first log there is nothing to say");
    assert_eq!(halves.receiver.poll_event(), None);
    halves
}

fn starts(halves: &Halves) -> [LogStarts; 2] {
    [halves.sender.stats().log_starts, halves.receiver.stats().log_starts]
}

/// Brings the link up with a new peer and sends a block; returns what each half says of the log, for the same epoch.
fn met(halves: &mut Halves, claim: Option<LogClaim>) -> [LogStart; 2] {
    halves.reconnect(claim);
    assert_eq!(halves.receiver.poll_event(), None, "the receiving half told before it can know");
    halves.cross(&noise(100, 1000));
    let Some(ReceiveEvent::LogStarts { epoch, start }) = halves.receiver.poll_event() else {
        panic!("the receiving half does not tell")
    };
    assert_eq!(epoch, halves.sender.stats().epoch);
    let [out, inbound] = starts(halves);
    assert_eq!((out.resumed, out.anew), (inbound.resumed, inbound.anew));
    assert_eq!(inbound.last, Some(start));
    assert_eq!(halves.receiver.poll_event(), None);
    [out.last.unwrap(), start]
}

fn anew(reason: &'static str) -> LogStart {
    LogStart::Anew { reason }
}

#[test]
fn resumed_log_has_the_same_bytes_at_both_ends() {
    let mut halves = halves();
    let claim = halves.receiver.claim();
    let resumed = LogStart::Resumed { bytes: 300_000 };
    assert_eq!(met(&mut halves, claim), [resumed; 2]);
    let claim = halves.receiver.claim();
    let resumed = LogStart::Resumed { bytes: 301_000 };
    assert_eq!(met(&mut halves, claim), [resumed; 2]);
    assert_eq!(starts(&halves).map(|starts| (starts.resumed, starts.anew)), [(2, 0); 2]);
}

#[test]
fn lost_log_of_either_end_starts_over_at_both() {
    let mut receiver_lost = halves();
    receiver_lost.receiver = receiver();
    let here = anew("nothing is left of it here");
    assert_eq!(met(&mut receiver_lost, None), [anew("nothing is left of it at the peer"), here]);

    let mut sender_lost = halves();
    sender_lost.sender = sender();
    let claim = sender_lost.receiver.claim();
    assert_eq!(met(&mut sender_lost, claim), [here, anew("the peer has another log, or none")]);

    let mut another = halves();
    another.sender = sender();
    another.sender.clear_log();
    another.sender.clear_log();
    another.reconnect(None);
    another.receiver = receiver();
    another.cross(&noise(7, 50_000));
    another.receiver = halves().receiver;
    let claim = another.receiver.claim();
    let [out, inbound] = {
        another.reconnect(claim);
        another.cross(&noise(100, 1000));
        starts(&another).map(|starts| starts.last.unwrap())
    };
    let reasons = [anew("the peer has another log"), anew("the peer has another log, or none")];
    assert_eq!([out, inbound], reasons);
}

#[test]
fn log_too_small_to_compare_is_reported_at_both_ends() {
    let mut halves = Halves::new(Matching::Max);
    halves.reconnect(None);
    halves.cross(&noise(1, 160));
    let claim = halves.receiver.claim();
    let too_little = anew("too little is left of it for the ends to compare");
    assert_eq!(met(&mut halves, claim), [too_little; 2]);
}

#[test]
fn sender_with_less_of_the_log_resumes_its_part() {
    let mut halves = halves();
    let claim = halves.receiver.claim();
    halves.sender.set_limit(200_000, halves.now);
    let [out, inbound] = met(&mut halves, claim);
    let LogStart::Resumed { bytes } = out else { panic!("{out:?}") };
    assert!((100_000..=200_000).contains(&bytes), "{bytes}");
    assert_eq!(inbound, LogStart::Resumed { bytes: 300_000 }, "the most that it may be");
}

#[test]
fn cleared_log_starts_over_at_the_receiver_too() {
    let mut halves = halves();
    halves.sender.clear_log();
    let Some(SendEvent::LogStarts { epoch: 2, start }) = std::iter::from_fn(|| halves.sender.poll_event())
        .find(|event| matches!(event, SendEvent::LogStarts { .. }))
    else {
        panic!("the sending half does not tell")
    };
    assert_eq!(start, anew("cleared"));
    halves.cross(&noise(8, 1000));
    let start = anew("the peer has given it up");
    assert_eq!(halves.receiver.poll_event(), Some(ReceiveEvent::LogStarts { epoch: 2, start }));
}
