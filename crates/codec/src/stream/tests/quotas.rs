//! Shares of the log: the bytes one class of flows may push out, bytes in flight, and content remembered again.

use bytes::Bytes;
use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::{Rng, SeedableRng};

use crate::contract::{Encoder, Feedback, Parts, Payload, PeerState};
use crate::entropy::Entropy;
use crate::stream::{Sender, SenderConfig};
use crate::wire::{Ack, FlowId, LaneId, MAX_BLOCK};
use crate::{Now, Plan, Quota};

const CAPACITY: u64 = 1 << 20;

fn sender() -> Sender {
    Sender::new(config())
}

fn config() -> SenderConfig {
    SenderConfig {
        capacity: CAPACITY,
        max_in_flight: None,
        entropy: Entropy::None,
        contexts: 1,
        params: Default::default(),
        keeps_bytes: true,
        digest_seed: 5,
        persist: false,
        names: None,
    }
}

fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    (0..len).map(|_| (rng.next_u64() >> 9) as u8).collect()
}

/// Sends bytes, each block acknowledged at once; returns how many were copied, and how many remembered.
fn send(sender: &mut Sender, flow: u32, bytes: &[u8], quota: Option<Quota>) -> (u64, u64) {
    let before = sender.stats();
    for block in bytes.chunks(MAX_BLOCK) {
        let plan = Some(Plan { entropy: Entropy::None, quota, ..Plan::default() });
        let plain = Bytes::copy_from_slice(block);
        let payload =
            Payload { flow: FlowId(flow), offset: 0, plain, fin: false, plan, parts: Parts::default() };
        sender.handle_payload(payload, LaneId(1), Now::ZERO, &mut Vec::new());
        let ack = Ack { next: sender.stats().blocks, ranges: Vec::new() };
        sender.handle_feedback(Feedback::Ack(ack), Now::ZERO).unwrap();
    }
    let after = sender.stats();
    (after.copied - before.copied, after.remembered - before.remembered)
}

#[test]
fn found_repeats_count_for_the_logs_size() {
    let mut sender = sender();
    sender.set_least_in_flight(CAPACITY / 16);
    let page = noise(1, 60_000);
    send(&mut sender, 1, &page, None);
    // With little in flight, what lies further back than three quarters of the log is found.
    send(&mut sender, 2, &noise(2, 800_000), None);
    let (copied, _) = send(&mut sender, 3, &page, None);
    assert!(copied > 59_000, "{copied}");
    let curve = sender.stats().curve;
    assert_eq!((curve.saved_by(CAPACITY), curve.saved_by(CAPACITY / 2)), (copied, 0));
}

#[test]
fn backup_within_its_quota_leaves_others_their_log() {
    let (page, backup) = (noise(1, 100_000), noise(2, 4 << 20));
    let again = |quota| {
        let mut sender = sender();
        send(&mut sender, 1, &page, None);
        let (_, remembered) = send(&mut sender, 2, &backup, quota);
        (remembered, send(&mut sender, 3, &page, None).0)
    };
    assert_eq!(again(None), (4 << 20, 0));
    let (remembered, copied) = again(Some(Quota { class: 0, bytes: 256 << 10 }));
    assert_eq!(remembered, 256 << 10);
    assert!(copied > 99_000, "{copied}");
}

#[test]
fn class_with_an_empty_quota_still_copies_from_others() {
    let page = noise(1, 200_000);
    let mut sender = sender();
    send(&mut sender, 1, &page, None);
    let nothing = Some(Quota { class: 3, bytes: 0 });
    let mut edited = page.clone();
    edited.iter_mut().step_by(4000).for_each(|byte| *byte ^= 1);
    let (copied, remembered) = send(&mut sender, 2, &edited, nothing);
    assert!(copied > 190_000, "{copied}");
    assert_eq!(remembered, 0);
    assert_eq!(sender.stats().not_remembered, 200_000);
}

#[test]
fn a_class_goes_on_when_others_pushed_its_bytes_out() {
    let quota = Some(Quota { class: 1, bytes: 256 << 10 });
    let mut sender = sender();
    assert_eq!(send(&mut sender, 1, &noise(1, 512 << 10), quota).1, 256 << 10);
    assert_eq!(send(&mut sender, 2, &noise(2, 512 << 10), quota).1, 0, "the class has what it may have");
    send(&mut sender, 3, &noise(3, 1 << 20), None);
    assert_eq!(send(&mut sender, 4, &noise(4, 512 << 10), quota).1, 256 << 10);
}

#[test]
fn a_new_log_has_nothing_of_a_class() {
    let quota = Some(Quota { class: 1, bytes: 256 << 10 });
    let mut sender = sender();
    send(&mut sender, 1, &noise(1, 512 << 10), quota);
    sender.handle_peer(PeerState { capacity: CAPACITY, contexts: 1, ..PeerState::default() });
    let plan = Some(Plan { entropy: Entropy::None, quota, ..Plan::default() });
    let plain = Bytes::from(noise(2, MAX_BLOCK));
    let payload = Payload { flow: FlowId(1), offset: 0, plain, fin: false, plan, parts: Parts::default() };
    let before = sender.stats().remembered;
    sender.handle_payload(payload, LaneId(1), Now::ZERO, &mut Vec::new());
    assert_eq!(sender.stats().remembered - before, MAX_BLOCK as u64);
}

#[test]
fn bytes_in_flight_leave_half_of_a_smaller_log() {
    let page = noise(1, 100_000);
    for in_flight in [CAPACITY / 2, 2 * CAPACITY] {
        let own = SenderConfig { capacity: 4 * CAPACITY, max_in_flight: Some(in_flight), ..config() };
        let mut sender = Sender::new(own);
        sender.handle_peer(PeerState { capacity: CAPACITY, contexts: 1, ..PeerState::default() });
        send(&mut sender, 1, &page, None);
        send(&mut sender, 2, &noise(2, 400_000), None);
        let (copied, _) = send(&mut sender, 3, &page, None);
        assert!(copied > 99_000, "{copied} with {in_flight}");
    }
}

#[test]
fn block_mostly_within_lasting_reach_is_not_remembered_again() {
    let page = noise(1, MAX_BLOCK);
    for (old, again) in [(500, 0), (2000, MAX_BLOCK as u64)] {
        let (first, rest) = page.split_at(old);
        let mut sender = sender();
        send(&mut sender, 1, first, None);
        send(&mut sender, 2, &noise(2, 300_000), None);
        send(&mut sender, 3, rest, None);
        assert_eq!(send(&mut sender, 4, &page, None), (MAX_BLOCK as u64, again), "{old} bytes far back");
    }
}
