//! Answers in parts: the content of each, and the rest.

use super::*;
use crate::contract::{PendingChunks, Repair};
use crate::wire::LaneId;

/// A block of many known chunks, named and under way, and requested; with its entries.
struct Asked {
    halves: Halves,
    seq: u64,
    plain: Vec<u8>,
    entries: Vec<NameEntry>,
}

impl Asked {
    fn new(reason: ChunkReason) -> Self {
        let (mut halves, old) = (Halves::new(SHORT_BELOW), noise(11, 600_000));
        halves.cross(&old);
        let plain: Vec<u8> = (0..20).flat_map(|part| old[part * 30_000..][..3000].to_vec()).collect();
        let seq = halves.sender.stats().blocks;
        let frames = halves.send(plain.clone());
        let (kind, body, _) = take_frame(&frames).unwrap().unwrap();
        let Frame::Block(Block { body: BlockBody::Coded(body), .. }) = Frame::decode(kind, body).unwrap()
        else {
            panic!("not a coded block")
        };
        let entries = body.names;
        assert!(entries.len() > 20, "{} names", entries.len());
        let mut asked = Self { halves, seq, plain, entries };
        asked.ask(reason);
        asked
    }

    fn ask(&mut self, reason: ChunkReason) {
        let request = ChunkRequest { seq: self.seq, reason, indexes: self.all() };
        self.halves.sender.handle_feedback(Feedback::Chunks(request), self.halves.now).unwrap();
    }

    fn all(&self) -> Vec<u32> {
        (0..self.entries.len() as u32).collect()
    }

    /// Takes an answer of so many bytes at most, and checks it; returns whose chunks it has.
    fn answer(&mut self, lane: Option<LaneId>, most: usize) -> Option<Vec<u32>> {
        let mut out = Vec::new();
        if !self.halves.sender.poll_repair(Repair::ChunksOf { seq: self.seq, lane, most }, &mut out) {
            assert!(out.is_empty());
            return None;
        }
        let (kind, body, used) = take_frame(&out).unwrap().unwrap();
        assert_eq!(used, out.len(), "one frame");
        let Frame::Chunks(chunks) = Frame::decode(kind, body).unwrap() else { panic!("not chunks") };
        let ranges = chunks.indexes.iter().map(|&index| self.entries[index as usize].range());
        let right: Vec<u8> = ranges.flat_map(|range| self.plain[range].to_vec()).collect();
        assert_eq!((chunks.seq, chunks.entropy, chunks.bytes), (self.seq, None, &right[..]));
        assert!(right.len() <= most || chunks.indexes.len() == 1, "{} bytes", right.len());
        Some(chunks.indexes)
    }

    fn waits(&self) -> Option<PendingChunks> {
        self.halves.sender.pending_chunks(self.seq)
    }
}

/// Both reasons for requests, and the lanes of their answers.
const WAYS: [(ChunkReason, Option<LaneId>); 2] =
    [(ChunkReason::Shed, None), (ChunkReason::Absent, Some(LANE))];

#[test]
fn requested_chunks_come_in_parts_each_once() {
    for ((reason, lane), most) in WAYS.into_iter().flat_map(|way| [0, 1000, 5000].map(|most| (way, most))) {
        let mut asked = Asked::new(reason);
        let flow = FlowId(1);
        assert_eq!(asked.waits(), Some(PendingChunks { flow, any_lane: lane.is_none(), lane }));
        // Neither another lane nor the other way takes any of it.
        assert_eq!(asked.answer(Some(LaneId(77)), most), None);
        let mut parts: Vec<Vec<u32>> = std::iter::from_fn(|| asked.answer(lane, most)).collect();
        assert!(parts.len() > 3, "{} parts", parts.len());
        assert_eq!((parts.concat(), asked.waits()), (asked.all(), None));
        // Without a bound it is one answer.
        if reason == ChunkReason::Absent {
            asked.ask(reason);
            parts = std::iter::from_fn(|| asked.answer(lane, usize::MAX)).collect();
            assert_eq!(parts, [asked.all()]);
        }
    }
}

#[test]
fn rest_of_an_answer_ends_with_the_acknowledgement() {
    for (reason, lane) in WAYS {
        let mut asked = Asked::new(reason);
        assert!(asked.answer(lane, 5000).is_some() && asked.waits().is_some());
        let ack = Ack { next: asked.seq + 1, ranges: Vec::new() };
        asked.halves.sender.handle_feedback(Feedback::Ack(ack), asked.halves.now).unwrap();
        assert_eq!((asked.waits(), asked.answer(lane, 5000)), (None, None));
        assert!(!asked.halves.sender.load().has_pending_chunks);
    }
}

#[test]
fn shed_rest_of_a_lost_lanes_block_is_sent() {
    for (reason, lane) in WAYS {
        let mut asked = Asked::new(reason);
        let first = asked.answer(lane, 5000).unwrap();
        asked.halves.sender.handle_lane_lost(LANE);
        let rest = asked.answer(lane, usize::MAX);
        match reason {
            ChunkReason::Shed => assert_eq!([first, rest.unwrap()].concat(), asked.all()),
            // It comes again without names.
            ChunkReason::Absent => assert_eq!(rest, None),
        }
        assert_eq!(asked.waits(), None);
    }
}
