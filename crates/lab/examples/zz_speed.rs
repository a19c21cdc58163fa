//! trial
use bytes::Bytes;
use oncewire_codec::contract::*;
use oncewire_codec::endre::matcher::MatchParams;
use oncewire_codec::endre::{Receiver, ReceiverConfig, Sender, SenderConfig};
use oncewire_codec::entropy::Entropy;
use oncewire_codec::wire::{FlowId, Frame, LaneId, take_frame};
use oncewire_codec::{Now, Plan};
use oncewire_lab::cpu::Stopwatch;
fn main() {
    let log: usize = std::env::var("LOG").map_or(1 << 30, |s| s.parse::<usize>().unwrap() << 20);
    let period: u32 = std::env::var("P").map_or(64, |s| s.parse().unwrap());
    let rounds: usize = std::env::var("R").map_or(1, |s| s.parse().unwrap());
    let files: Vec<Vec<u8>> = std::env::args().skip(1).map(|f| std::fs::read(f).unwrap()).collect();
    let total: usize = files.iter().map(Vec::len).sum();
    for _ in 0..rounds {
        let mut ring = vec![1u8; log];
        let mut at = 0;
        let mut sender = Sender::new(SenderConfig {
            capacity: log as u64,
            max_in_flight: Some((log / 4) as u64),
            entropy: Entropy::None,
            contexts: 1,
            params: MatchParams { period: period as usize, ..MatchParams::default() },
            digest_seed: 1,
            persist: false,
        });
        let mut receiver = Receiver::new(ReceiverConfig {
            capacity: log as u64,
            max_in_flight: (log / 4) as u64,
            contexts: 1,
            digest_seed: 1,
            persist: false,
        });
        let plan = Plan { entropy: Entropy::None, period, ..Plan::default() };
        let (mut enc, mut dec, mut cpy) = (Stopwatch::default(), Stopwatch::default(), Stopwatch::default());
        let mut warm = true;
        let mut wire = 0;
        // warm-up pass over the log's pages with noise
        let mut noise = vec![0u8; 65536];
        let mut state = 88172645463325252u64;
        let mut offset = 0u64;
        let mut frames = Vec::new();
        let mut feedback = Vec::new();
        let mut many = |blocks: Vec<(Bytes, u32, u64)>, enc: &mut Stopwatch, dec: &mut Stopwatch| -> usize {
            frames.clear();
            enc.time(|| {
                for (block, flow, offset) in blocks {
                    sender.handle_payload(
                        Payload { flow: FlowId(flow), offset, plain: block, fin: false, plan: Some(plan) },
                        LaneId(0),
                        Now::ZERO,
                        &mut frames,
                    )
                }
            });
            feedback.clear();
            dec.time(|| {
                let mut rest = &frames[..];
                while let Some((kind, body, used)) = take_frame(rest).unwrap() {
                    if let Frame::Block(b) = Frame::decode(kind, body).unwrap() {
                        receiver.handle_block(b, LaneId(0), Now::ZERO).unwrap();
                    }
                    while receiver.poll_payload().is_some() {}
                    receiver.poll_frame(false, &mut feedback);
                    rest = &rest[used..];
                }
            });
            let mut rest = &feedback[..];
            enc.time(|| {
                while let Some((k, b, u)) = take_frame(rest).unwrap() {
                    if let Frame::Ack(a) = Frame::decode(k, b).unwrap() {
                        sender.handle_frame(Feedback::Ack(a), Now::ZERO).unwrap();
                    }
                    rest = &rest[u..];
                }
            });
            while sender.poll_event().is_some() {}
            frames.len()
        };
        let (mut e0, mut d0) = (Stopwatch::default(), Stopwatch::default());
        while warm {
            for c in noise.chunks_mut(8) {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                c.copy_from_slice(&state.to_le_bytes());
            }
            many(vec![(Bytes::copy_from_slice(&noise), 0, offset)], &mut e0, &mut d0);
            offset += 65536;
            warm = (offset as usize) < log;
        }
        let mut copied = 0;
        for (f, file) in files.iter().enumerate() {
            let mut off = 0u64;
            for group in file.chunks(65536 * 16) {
                let mut blocks = Vec::new();
                for block in group.chunks(65536) {
                    blocks.push((Bytes::copy_from_slice(block), f as u32 + 1, off));
                    off += block.len() as u64;
                    copied += 1;
                }
                cpy.time(|| {
                    for (b, _, _) in &blocks {
                        ring[at..at + b.len()].copy_from_slice(&b);
                        at = (at + b.len()) % (log - 65536);
                    }
                });
                wire += many(blocks, &mut enc, &mut dec);
            }
        }
        let g = |s: &Stopwatch| total as f64 / s.spent().as_secs_f64() / 1e9;
        println!(
            "savings {:.3} blocks {copied} memcpy {:.2} enc {:.3} ({:.3}) dec {:.3} ({:.3}) noise enc {:.2} dec {:.2}",
            100.0 * (1.0 - wire as f64 / total as f64),
            g(&cpy),
            g(&enc),
            g(&enc) / g(&cpy),
            g(&dec),
            g(&dec) / g(&cpy),
            log as f64 / e0.spent().as_secs_f64() / 1e9,
            log as f64 / d0.spent().as_secs_f64() / 1e9
        );
    }
}
