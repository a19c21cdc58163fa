//! The codec of a link: both halves, their logs and their chunk store.

use std::sync::Arc;

use oncewire_codec::Now;
use oncewire_codec::contract::{Capabilities, Decoder, Encoder, LogWrite, PreparedLog, SavedLog, StoreState};
use oncewire_codec::wanax::hints::PackedTag;
use oncewire_codec::wire::{CodecId, CodecOffers};

use crate::codecs::{CodecFactory, Codecs, sender_config};
use crate::config::LinkConfig;
use crate::event::LaneRefused;

/// Logs of an earlier process.
#[derive(Debug, Default)]
pub struct SavedLogs {
    /// The log of sent bytes.
    pub out: Option<SavedLog>,
    /// The log of received bytes.
    pub inbound: Option<SavedLog>,
}

/// One of the two logs of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSide {
    /// Bytes from this side.
    Out,
    /// Bytes from the peer.
    Inbound,
}

/// Memory of this end for each log, in bytes; at most the log's capacity counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// For the log of sent bytes.
    pub out: u64,
    /// For the log of received bytes.
    pub inbound: u64,
}

/// Logs read again after their release, ready for use.
#[derive(Default)]
pub struct LoadedLogs {
    out: Option<PreparedLog>,
    inbound: Option<SavedLog>,
}

impl LoadedLogs {
    /// Makes saved logs ready for a link of this configuration and agreed capacity; takes as long as hashing them.
    pub fn new(config: &LinkConfig, saved: SavedLogs, capacity: u64) -> Self {
        let sender = sender_config(config);
        Self {
            out: saved.out.map(|log| PreparedLog::new(&sender, log, &config.plan)),
            inbound: saved.inbound.map(|log| log.fit(capacity)),
        }
    }
}

/// Whether released logs were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    No,
    Yes,
}

/// Both halves of the codec in use.
pub(crate) struct Halves {
    codecs: Codecs,
    codec: Arc<dyn CodecFactory>,
    capabilities: Capabilities,
    pub(crate) encoder: Box<dyn Encoder + Send>,
    pub(crate) decoder: Box<dyn Decoder + Send>,
    /// Whether the logs' memory is given back, and whether they were asked for since.
    released: Option<Wanted>,
    /// Bytes of either log until the owner is told; 0 without a wish.
    until_told: LogLimits,
    /// The last limits of the owner.
    limits: Option<LogLimits>,
    /// The last state of the owner's chunk store.
    store_state: Option<StoreState>,
}

impl Halves {
    /// Makes the halves of the preferred codec, with the logs of an earlier process.
    pub(crate) fn new(config: &mut LinkConfig, saved: SavedLogs) -> Self {
        let codecs = Codecs::new(config);
        let codec = codecs.preferred();
        let (encoder, decoder) = (codec.encoder(config, saved.out), codec.decoder(config, saved.inbound));
        if let Some(names) = &mut config.names {
            // The encoder took it, and nothing reads it again.
            names.saved = None;
        }
        Self {
            codecs,
            capabilities: codec.capabilities(),
            codec,
            encoder,
            decoder,
            released: None,
            until_told: LogLimits { out: 0, inbound: 0 },
            limits: None,
            store_state: None,
        }
    }

    /// Returns the list of codecs for the hello.
    pub(crate) fn offers(&self) -> CodecOffers {
        self.codecs.offers()
    }

    /// Returns the codec in use.
    pub(crate) fn id(&self) -> CodecId {
        self.codec.id()
    }

    /// Returns the capabilities of the codec in use.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    /// Makes the halves ready for a new instance of the peer with these codecs. Another codec begins with empty logs.
    ///
    /// # Errors
    /// No shared codec: then nothing has changed. Parameters of no use to the codec: then it is the same as before, and
    /// one of its halves may have taken them.
    pub(crate) fn agree(
        &mut self,
        theirs: &CodecOffers,
        config: &LinkConfig,
        now: Now,
    ) -> Result<(), LaneRefused> {
        let Some(codec) = self.codecs.agree(theirs) else {
            return Err(LaneRefused::NoCommonCodec {
                theirs: theirs.ids().collect(),
                ours: self.codecs.ids(),
            });
        };
        let id = codec.id();
        let parameters = theirs.parameters(id).unwrap_or_default();
        let refused = |fault| LaneRefused::CodecParameters { codec: id, fault };
        if id == self.codec.id() {
            self.encoder.handle_parameters(parameters).map_err(refused)?;
            return self.decoder.handle_parameters(parameters).map_err(refused);
        }
        let (mut encoder, mut decoder) = (codec.encoder(config, None), codec.decoder(config, None));
        encoder.handle_parameters(parameters).map_err(refused)?;
        decoder.handle_parameters(parameters).map_err(refused)?;
        (self.encoder, self.decoder) = (encoder, decoder);
        (self.capabilities, self.codec) = (codec.capabilities(), codec);
        self.released = None;
        if let Some(limits) = self.limits {
            self.set_limits(limits, now);
        }
        if let Some(state) = self.store_state {
            self.set_store_state(state, now);
        }
        Ok(())
    }

    /// Tells the codec about the state of the chunk store.
    pub(crate) fn set_store_state(&mut self, state: StoreState, now: Now) {
        self.store_state = Some(state);
        if let Some(store) = self.decoder.store_mut() {
            store.handle_store_state(state, now);
        }
    }

    /// Returns the steps of both halves for the peer.
    pub(crate) fn work(&self) -> u64 {
        self.decoder.work() + self.encoder.load().work
    }

    /// Returns the memory of unacknowledged items.
    pub(crate) fn kept_bytes(&self) -> u64 {
        self.encoder.load().kept_bytes
    }

    /// Sets the memory of this end for each log.
    pub(crate) fn set_limits(&mut self, limits: LogLimits, now: Now) {
        self.limits = Some(limits);
        if let Some(log) = self.encoder.log_mut() {
            log.set_limit(limits.out, now);
        }
        if let Some(log) = self.decoder.log_mut() {
            log.set_limit(limits.inbound);
        }
    }

    /// Asks to be told after about so many more bytes in either log.
    pub(crate) fn tell_when_filled(&mut self, more: LogLimits) {
        self.until_told = more;
    }

    /// Counts bytes in a log; returns whether the owner is to be told.
    pub(crate) fn fill(&mut self, side: LogSide, bytes: usize) -> bool {
        let left = match side {
            LogSide::Out => &mut self.until_told.out,
            LogSide::Inbound => &mut self.until_told.inbound,
        };
        let fills = *left > 0 && *left <= bytes as u64;
        *left = left.saturating_sub(bytes as u64);
        if fills {
            self.until_told = LogLimits { out: 0, inbound: 0 };
        }
        fills
    }

    /// Gives the memory of both logs back, unless anything is under way; returns whether it did.
    pub(crate) fn release_logs(&mut self) -> bool {
        let is_quiet = self.encoder.stats().unacked == 0
            && self.decoder.log_mut().is_some_and(|log| log.release_log())
            && self.encoder.log_mut().is_some_and(|log| log.release_log());
        if is_quiet {
            self.released.get_or_insert(Wanted::No);
        }
        is_quiet
    }

    /// Takes released logs back.
    pub(crate) fn restore_logs(&mut self, loaded: LoadedLogs, now: Now) {
        self.released = None;
        if let Some(log) = self.encoder.log_mut() {
            log.restore_log(loaded.out);
        }
        if let Some(log) = self.decoder.log_mut() {
            log.restore_log(loaded.inbound, now);
        }
    }

    /// Forgets both logs.
    pub(crate) fn clear_logs(&mut self) {
        self.released = None;
        if let Some(log) = self.encoder.log_mut() {
            log.clear_log();
        }
        if let Some(log) = self.decoder.log_mut() {
            log.clear_log();
        }
    }

    /// Whether the logs' memory is given back.
    pub(crate) fn is_released(&self) -> bool {
        self.released.is_some()
    }

    /// Notes a use for released logs; returns whether they are to be asked for.
    pub(crate) fn want_logs(&mut self) -> bool {
        let is_news = self.released == Some(Wanted::No);
        if is_news {
            self.released = Some(Wanted::Yes);
        }
        is_news
    }

    /// Takes the next piece of log for the disk.
    pub(crate) fn poll_log_write(&mut self) -> Option<(LogSide, LogWrite)> {
        let out = self.encoder.log_mut().and_then(|log| log.poll_log_write());
        out.map(|write| (LogSide::Out, write)).or_else(|| {
            let inbound = self.decoder.log_mut().and_then(|log| log.poll_log_write());
            inbound.map(|write| (LogSide::Inbound, write))
        })
    }

    /// Returns a log's first piece from an offset on.
    pub(crate) fn log_piece(&self, side: LogSide, from: u64) -> Option<LogWrite> {
        match side {
            LogSide::Out => self.encoder.log().and_then(|log| log.log_piece(from)),
            LogSide::Inbound => self.decoder.log().and_then(|log| log.log_piece(from)),
        }
    }

    /// Takes chunks in reach of the peer, for naming.
    pub(crate) fn handle_stored(&mut self, chunks: &[PackedTag], now: Now) {
        if let Some(names) = self.encoder.names_mut() {
            names.handle_stored(chunks, now);
        }
    }

    /// Says whether news of the peer's store are wanted.
    pub(crate) fn tell_stored(&mut self, wanted: bool) {
        if let Some(names) = self.encoder.names_mut() {
            names.tell_stored(wanted);
        }
    }
}

#[cfg(test)]
mod tests {
    use oncewire_codec::wire::CodecOffer;

    use super::*;

    fn halves() -> Halves {
        Halves::new(&mut LinkConfig::default(), SavedLogs::default())
    }

    #[test]
    fn owner_is_told_once_when_either_log_fills() {
        let mut halves = halves();
        assert!(!halves.fill(LogSide::Out, 100), "without a wish");
        halves.tell_when_filled(LogLimits { out: 100, inbound: 50 });
        assert!(!halves.fill(LogSide::Out, 99));
        assert!(halves.fill(LogSide::Inbound, 60));
        assert!(!halves.fill(LogSide::Out, 1));
    }

    #[test]
    fn released_logs_are_asked_for_once() {
        let mut halves = halves();
        assert!(!halves.want_logs(), "they are there");
        assert!(halves.release_logs() && halves.is_released());
        assert!(halves.want_logs() && !halves.want_logs());
        assert!(halves.release_logs() && !halves.want_logs());
        halves.restore_logs(LoadedLogs::default(), Now::ZERO);
        assert!(!halves.is_released());
    }

    #[test]
    fn list_without_shared_codec_changes_nothing() {
        let mut halves = halves();
        let offer = CodecOffer { id: CodecId::PACK, parameters: Vec::new() };
        let theirs = CodecOffers::new(vec![offer]).unwrap();
        assert!(halves.release_logs());
        assert!(halves.agree(&theirs, &LinkConfig::default(), Now::ZERO).is_err());
        assert!(halves.is_released() && halves.id() == CodecId::ENDRE);
        halves.agree(&CodecOffers::default(), &LinkConfig::default(), Now::ZERO).unwrap();
        assert!(halves.is_released());
    }
}
