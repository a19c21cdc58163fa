//! The log that outlives the process, what is known of the peer's chunk store, and what the control lane says of both.

use super::{CURVE_HALF_LIFE, PreparedLog, Sender, WORTH_EVERY, WORTH_SELDOM, WORTH_STEP};
use crate::Now;
use crate::contract::{EncoderLog, EncoderNames, LogWrite};
use crate::wanax::hints::{PackedTag, SavePosition, SavedPiece};
use crate::wanax::naming::Naming;
use crate::wire::{Frame, LogWorth, Probe};

impl Sender {
    /// Appends what the log is worth if there is news of it; returns whether there was.
    pub fn poll_worth(&mut self, out: &mut Vec<u8>) -> bool {
        let due = std::mem::take(&mut self.worth.due);
        if due {
            let (serial, limit) = (self.worth.serial, self.limit);
            let curve = self.log.curve_mut().values().to_vec();
            Frame::LogWorth(LogWorth { serial, limit, curve }).encode(out);
        }
        due
    }

    /// Appends the question whether the peer's store has what is believed of it, if one is due; returns whether it was.
    /// Nobody waits for the answer. Only a peer of version 2 or later has a store, and passes over what it does not know.
    pub fn poll_probe(&mut self, out: &mut Vec<u8>) -> bool {
        let probe = self.naming.as_mut().and_then(Naming::poll_probe);
        probe.map(|probe| Frame::Probe(probe).encode(out)).is_some()
    }
}

impl EncoderLog for Sender {
    fn set_limit(&mut self, limit: u64, now: Now) {
        if now >= self.worth.halved_at + CURVE_HALF_LIFE {
            self.worth.halved_at = now;
            self.log.curve_mut().halve();
        }
        let before = self.limit;
        self.limit = limit;
        self.log.set_limit(limit);
        let plain = self.stats.plain - self.worth.plain;
        let every = if plain >= WORTH_STEP { WORTH_EVERY } else { WORTH_SELDOM };
        let news = plain > 0 && now >= self.worth.told_at + every;
        // A receiving half that was told nothing holds as much as it can.
        if self.limit != before || news {
            self.worth.told_at = now;
            self.tell_worth();
        }
    }

    fn clear_log(&mut self) {
        self.log.clear();
        if let Some(naming) = &mut self.naming {
            naming.clear();
        }
        self.start_epoch(self.log.epoch() + 1, "cleared");
    }

    fn release_log(&mut self) -> bool {
        let quiet = self.ledger.is_empty();
        if quiet {
            self.log.release();
            self.diagonals.clear();
        }
        quiet
    }

    fn restore_log(&mut self, log: Option<PreparedLog>) {
        self.log.restore_released(log.map(|log| log.0));
    }

    fn poll_log_write(&mut self) -> Option<LogWrite> {
        self.writes.pop_front()
    }

    fn log_piece(&self, from: u64) -> Option<LogWrite> {
        self.log.piece(from)
    }
}

impl EncoderNames for Sender {
    fn save_hints(&self, at: SavePosition) -> Option<SavedPiece> {
        self.naming.as_ref().map(|naming| naming.hints().save_piece(at))
    }

    fn handle_stored(&mut self, chunks: &[PackedTag], now: Now) {
        if let Some(naming) = &mut self.naming {
            naming.stored(chunks, now);
        }
    }

    fn tell_stored(&mut self, wanted: bool) {
        if let Some(naming) = &mut self.naming {
            naming.tells = wanted;
        }
    }

    fn probe(&self) -> Option<Probe> {
        self.naming.as_ref().and_then(Naming::next_probe)
    }
}
