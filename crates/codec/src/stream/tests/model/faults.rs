//! What goes wrong, or changes: lanes, processes, logs.

use std::collections::VecDeque;

use rand_pcg::rand_core::Rng as _;

use super::halves::{Begin, peer_sender, receiver, saved, sender, sender_config};
use super::{CAPACITY, Model};
use crate::Plan;
use crate::contract::{
    Decoder as _, DecoderLog as _, Encoder as _, EncoderLog as _, EncoderNames as _, Repair,
};
use crate::stream::PreparedLog;
use crate::wanax::hints::save_by;
use crate::wire::{FlowId, Frame, take_frame};

impl Model {
    /// Kills a lane: its content is lost, or some of it arrives late, beside the repairs.
    pub(crate) fn kill_lane(&mut self) {
        let lane = self.some_lane();
        let mut held = self.lanes.remove(&lane).unwrap();
        let keep = self.below(held.len() as u64 + 1) as usize;
        held.truncate(keep);
        self.late.push((lane, held));
        self.add_lane();
        self.sender.handle_lane_lost(lane);
        // Acknowledgements that were under way on it are lost too.
        let keep = self.below(self.feedback.len() as u64 + 1) as usize;
        self.feedback.truncate(keep);
        self.sender.resend_control_state();
        self.receiver.resend_control_state(self.now);
        self.resend_lost();
    }

    fn resend_lost(&mut self) {
        let ids: Vec<FlowId> = self.flows.keys().copied().collect();
        for id in ids {
            if self.sender.pending(id).lost {
                let lane = self.lane_of(id);
                let mut out = Vec::new();
                while self.sender.poll_repair(Repair::Lost(id, lane), &mut out) {}
                self.put(lane, &out);
            }
        }
    }

    /// All lanes at once: an outage.
    pub(crate) fn reconnect(&mut self) {
        for _ in 0..self.lanes.len() {
            self.kill_lane();
        }
    }

    fn write_to_disk(&mut self) {
        self.disk[0].extend(std::iter::from_fn(|| self.sender.poll_log_write()));
        self.disk[1].extend(std::iter::from_fn(|| self.receiver.poll_log_write()));
    }

    /// One side is a new process; with `keep_log` it found what it had written of its log.
    pub(crate) fn restart(&mut self, keep_log: bool, sending_side: bool) {
        self.write_to_disk();
        let rng = &mut self.rng;
        let disk = &mut self.disk[usize::from(!sending_side)];
        let found = if keep_log { saved(disk, |bound| rng.next_u64() % bound) } else { None };
        // The next life finds the same content, and its own writes.
        let (saved, left) = found.unzip();
        *disk = left.unwrap_or_default();
        self.flows.clear();
        self.late.clear();
        self.feedback.clear();
        self.curves.clear();
        self.lanes.values_mut().for_each(VecDeque::clear);
        if sending_side {
            let hints = save_by(|at| self.sender.save_hints(at)).filter(|_| keep_log);
            let planted = self.sender.has_planted_error();
            self.sender = sender(self.entropy, self.keeps_bytes, Begin { planted, saved, hints });
        } else {
            self.receiver = receiver(self.store.is_some(), saved);
            self.limit_receiver();
        }
        if self.changes_capacity {
            self.agreed = [CAPACITY, CAPACITY / 4 * 3][self.below(2) as usize];
        }
        let claim = self.receiver.claim();
        self.receiver.handle_peer(peer_sender(self.agreed, self.strong));
        self.meet(claim);
        self.sender.resend_control_state();
        self.receiver.resend_control_state(self.now);
        let mut out = Vec::new();
        if self.sender.poll_probe(&mut out) {
            let (kind, body, _) = take_frame(&out).unwrap().unwrap();
            let Frame::Probe(probe) = Frame::decode(kind, body).unwrap() else { panic!("not a probe") };
            self.receiver.handle_probe(probe);
            self.collect();
        }
    }

    /// Either end gets more memory or less, or forgets everything.
    pub(crate) fn change_logs(&mut self) {
        let limit = match self.below(3) {
            0 => CAPACITY,
            _ => self.below(CAPACITY + 1000),
        };
        match self.below(20) {
            0 => self.sender.clear_log(),
            1 => self.receiver.clear_log(),
            // Idle, or nearly so.
            16 | 17 => {
                self.settle();
                assert!(self.sender.release_log());
                self.receiver.release_log();
            }
            18 | 19 => drop(self.receiver.release_log()),
            2..9 => self.sender.set_limit(limit, self.now),
            _ => self.receiver.set_limit(limit),
        }
        let mut out = Vec::new();
        if self.sender.poll_savings(&mut out) {
            let (kind, body, _) = take_frame(&out).unwrap().unwrap();
            let Frame::SavingsCurve(worth) = Frame::decode(kind, body).unwrap() else {
                panic!("not a worth")
            };
            self.curves.push_back(worth);
        }
        self.poll_feedback(false);
    }

    /// Logs come back from disk, as far as they were there; mostly soon.
    pub(crate) fn restore_logs(&mut self) {
        let [out, inbound] = [self.sender.stats().released, self.receiver.stats().released];
        self.restored += u64::from(out) + u64::from(inbound);
        if out || inbound {
            self.write_to_disk();
        }
        let Self { rng, disk, .. } = self;
        if out {
            let found = saved(&disk[0], |bound| rng.next_u64() % bound);
            let config = sender_config(self.entropy, self.keeps_bytes);
            self.sender.restore_log(
                found.map(|(found, _)| {
                    PreparedLog::new(&config, found, &Plan { period: 16, ..Plan::default() })
                }),
            );
        }
        if inbound {
            let found = saved(&disk[1], |bound| rng.next_u64() % bound);
            self.receiver.restore_log(found.map(|(found, _)| found), self.now);
            self.collect();
        }
    }

    /// What a log is worth comes late, or is overtaken.
    pub(crate) fn hear_worth(&mut self) {
        let pick = self.below(self.curves.len() as u64) as usize;
        if let Some(worth) = self.curves.remove(pick) {
            self.receiver.handle_savings(&worth);
            self.poll_feedback(false);
        }
    }
}
