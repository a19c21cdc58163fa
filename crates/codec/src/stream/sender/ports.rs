//! Ports: the log outliving the process, and the hints of the peer's chunk store.

use super::{PreparedLog, Sender};
use crate::Now;
use crate::contract::{EncoderLog, EncoderNames, LogWrite};
use crate::wanax::hints::{PackedTag, SavePosition, SavedPiece};
use crate::wanax::naming::Naming;
use crate::wire::{Frame, Probe};

impl Sender {
    /// Appends the log's savings if there is news of them; returns whether there was.
    pub(in crate::stream) fn poll_savings(&mut self, out: &mut Vec<u8>) -> bool {
        let report = self.log.savings.poll(&self.log.remote.curve());
        report.map(|report| Frame::SavingsCurve(report).encode(out)).is_some()
    }

    /// Appends the question whether the peer's store has the chunks believed to be there, if one is due; returns whether it
    /// was. Nobody waits for the answer. Only a peer of version 2 or later has a store, and passes over unknown frames.
    pub fn poll_probe(&mut self, out: &mut Vec<u8>) -> bool {
        let probe = self.naming.as_mut().and_then(Naming::poll_probe);
        probe.map(|probe| Frame::Probe(probe).encode(out)).is_some()
    }
}

impl EncoderLog for Sender {
    fn set_limit(&mut self, limit: u64, now: Now) {
        self.log.remote.set_limit(limit);
        self.log.savings.set_limit(limit, self.stats.plain, self.log.remote.curve_mut(), now);
    }

    fn clear_log(&mut self) {
        let start = self.log.clear();
        self.naming.iter_mut().for_each(Naming::clear);
        self.note_start(start);
    }

    fn release_log(&mut self) -> bool {
        let quiet = self.transfer.buffer.is_empty();
        if quiet {
            self.log.release();
        }
        quiet
    }

    fn restore_log(&mut self, log: Option<PreparedLog>) {
        self.log.remote.restore_released(log.map(|log| log.0));
    }

    fn poll_log_write(&mut self) -> Option<LogWrite> {
        self.log.poll_write()
    }

    fn log_piece(&self, from: u64) -> Option<LogWrite> {
        self.log.remote.piece(from)
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
