//! The codecs of a link, and the choice among those of both ends.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use oncewire_codec::contract::{Capabilities, Decoder, Encoder, SavedLog};
use oncewire_codec::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};
use oncewire_codec::wire::{CodecId, CodecOffer, CodecOffers};

use crate::config::{ConfigError, LinkConfig};

/// Makes the two halves of a codec for a link.
pub trait CodecFactory: fmt::Debug + Send + Sync {
    /// Returns the codec's number in hellos.
    fn id(&self) -> CodecId;
    /// Returns what the codec needs of lanes and promises to applications.
    fn capabilities(&self) -> Capabilities {
        Capabilities::STREAM
    }
    /// Returns this end's parameters for the hello, at most
    /// [`MAX_CODEC_PARAMETERS`](oncewire_codec::wire::MAX_CODEC_PARAMETERS) bytes: the peer's halves get them by
    /// [`Encoder::handle_parameters`] and [`Decoder::handle_parameters`].
    fn parameters(&self, _config: &LinkConfig) -> Vec<u8> {
        Vec::new()
    }
    /// Makes the sending half, with the log of an earlier process if one was found.
    fn encoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Encoder + Send>;
    /// Makes the receiving half, likewise.
    fn decoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Decoder + Send>;
}

/// EndRE's log, Wanax's names and an entropy stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endre;

impl CodecFactory for Endre {
    fn id(&self) -> CodecId {
        CodecId::ENDRE
    }

    fn encoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Encoder + Send> {
        let sender = sender_config(config);
        Box::new(match saved {
            None => Sender::new(sender),
            Some(log) => Sender::with_log(sender, log, &config.plan),
        })
    }

    fn decoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Decoder + Send> {
        let receiver = ReceiverConfig {
            capacity: config.log_capacity,
            max_in_flight: config.log_capacity,
            contexts: config.contexts as usize,
            digest_seed: 0,
            persist: config.persist,
            store: config.store.is_some(),
        };
        Box::new(match saved {
            None => Receiver::new(receiver),
            Some(log) => Receiver::with_log(receiver, log),
        })
    }
}

/// A codec without parameters and without a log of an earlier process: its halves start from their defaults.
pub struct DefaultCodec<E, D> {
    id: CodecId,
    capabilities: Capabilities,
    halves: PhantomData<fn() -> (E, D)>,
}

impl<E, D> DefaultCodec<E, D> {
    /// Makes the factory of a codec with this number.
    pub fn new(id: CodecId, capabilities: Capabilities) -> Self {
        Self { id, capabilities, halves: PhantomData }
    }
}

impl<E, D> fmt::Debug for DefaultCodec<E, D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "codec {}", self.id)
    }
}

impl<E, D> CodecFactory for DefaultCodec<E, D>
where
    E: Encoder + Default + Send + 'static,
    D: Decoder + Default + Send + 'static,
{
    fn id(&self) -> CodecId {
        self.id
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn encoder(&self, _: &LinkConfig, _: Option<SavedLog>) -> Box<dyn Encoder + Send> {
        Box::<E>::default()
    }

    fn decoder(&self, _: &LinkConfig, _: Option<SavedLog>) -> Box<dyn Decoder + Send> {
        Box::<D>::default()
    }
}

/// The codecs of one end of a link, the preferred one first.
#[derive(Clone, Debug)]
pub(crate) struct Codecs {
    list: Vec<Arc<dyn CodecFactory>>,
    /// The same for all hellos, whatever a factory says later.
    offers: CodecOffers,
}

impl Codecs {
    /// Takes the configured codecs; where a link cannot go by them it has EndRE's.
    pub(crate) fn new(config: &LinkConfig) -> Self {
        match Self::offered(config) {
            Ok(offers) => Self { list: config.codecs.clone(), offers },
            Err(_) => Self { list: vec![Arc::new(Endre)], offers: CodecOffers::default() },
        }
    }

    /// Checks the configured codecs.
    ///
    /// # Errors
    /// A list without a codec, with too many or too long parameters, with the id of none, or with a codec for something
    /// else than links.
    pub(crate) fn check(config: &LinkConfig) -> Result<(), ConfigError> {
        Self::offered(config).map(drop)
    }

    fn offered(config: &LinkConfig) -> Result<CodecOffers, ConfigError> {
        if let Some(other) = config.codecs.iter().find(|codec| !codec.capabilities().fits_link()) {
            return Err(ConfigError::CodecOfOtherService(other.id()));
        }
        if config.codecs.iter().any(|codec| codec.id() == CodecId::NONE) {
            return Err(ConfigError::Codecs);
        }
        let offer = |codec: &Arc<dyn CodecFactory>| CodecOffer {
            id: codec.id(),
            parameters: codec.parameters(config),
        };
        CodecOffers::new(config.codecs.iter().map(offer).collect()).ok_or(ConfigError::Codecs)
    }

    /// Returns the list for the hello.
    pub(crate) fn offers(&self) -> CodecOffers {
        self.offers.clone()
    }

    /// Returns the preferred codec.
    pub(crate) fn preferred(&self) -> Arc<dyn CodecFactory> {
        self.list.first().map_or_else(|| Arc::new(Endre) as Arc<dyn CodecFactory>, Arc::clone)
    }

    /// Returns the codec of a link to a peer with these: of the shared ones that with the smallest sum of places in both
    /// lists, and of several the one with the smallest id. Both ends come to the same.
    pub(crate) fn agree(&self, theirs: &CodecOffers) -> Option<Arc<dyn CodecFactory>> {
        let place = |id| theirs.ids().position(|other| other == id);
        let shared = self.list.iter().enumerate();
        let shared = shared.filter_map(|(at, codec)| Some((at + place(codec.id())?, codec.id(), codec)));
        shared.min_by_key(|(places, id, _)| (*places, *id)).map(|(.., codec)| Arc::clone(codec))
    }

    /// Returns the ids, the preferred one first.
    pub(crate) fn ids(&self) -> Vec<CodecId> {
        self.list.iter().map(|codec| codec.id()).collect()
    }
}

pub(crate) fn sender_config(config: &LinkConfig) -> SenderConfig {
    SenderConfig {
        capacity: config.log_capacity,
        max_in_flight: config.max_in_flight,
        entropy: config.plan.entropy,
        contexts: config.contexts as usize,
        params: config.params,
        keeps_bytes: config.keeps_bytes,
        digest_seed: config.secret,
        persist: config.persist,
        names: config.names.clone(),
    }
}

#[cfg(test)]
mod tests {
    use oncewire_codec::contract::Service;

    use super::*;

    /// EndRE under another number.
    #[derive(Debug)]
    struct Numbered(u16, Capabilities);

    impl CodecFactory for Numbered {
        fn id(&self) -> CodecId {
            CodecId(self.0)
        }

        fn capabilities(&self) -> Capabilities {
            self.1
        }

        fn encoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Encoder + Send> {
            Endre.encoder(config, saved)
        }

        fn decoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Decoder + Send> {
            Endre.decoder(config, saved)
        }
    }

    fn config(ids: &[u16]) -> LinkConfig {
        let codec = |id: &u16| Arc::new(Numbered(*id, Capabilities::STREAM)) as Arc<dyn CodecFactory>;
        LinkConfig { codecs: ids.iter().map(codec).collect(), ..LinkConfig::default() }
    }

    fn agreed(ours: &[u16], theirs: &[u16]) -> [Option<u16>; 2] {
        let (ours, theirs) = (config(ours), config(theirs));
        let agree = |near: &LinkConfig, far: &LinkConfig| {
            let offers = Codecs::new(far).offers();
            Codecs::new(near).agree(&offers).map(|codec| codec.id().0)
        };
        [agree(&ours, &theirs), agree(&theirs, &ours)]
    }

    #[test]
    fn both_ends_choose_the_same_codec() {
        for (ours, theirs, codec) in [
            (&[1][..], &[1][..], Some(1)),
            (&[7, 1], &[1], Some(1)),
            (&[7, 1], &[1, 7], Some(1)),
            (&[7, 9, 1], &[9, 1, 7], Some(9)),
            (&[7, 9], &[8, 1], None),
        ] {
            assert_eq!(agreed(ours, theirs), [codec; 2], "{ours:?} {theirs:?}");
        }
    }

    #[test]
    fn lists_of_no_use_are_errors() {
        assert_eq!(config(&[1]).check(), Ok(()));
        assert_eq!(config(&[]).check(), Err(ConfigError::Codecs));
        assert_eq!(config(&[7, 7]).check(), Err(ConfigError::Codecs));
        assert_eq!(config(&[7, CodecId::NONE.0]).check(), Err(ConfigError::Codecs));
        let packets = Capabilities { service: Service::Datagram, ..Capabilities::STREAM };
        for capabilities in [packets, Capabilities { one_to_many: true, ..Capabilities::STREAM }] {
            let codecs: Vec<Arc<dyn CodecFactory>> = vec![Arc::new(Numbered(3, capabilities))];
            let config = LinkConfig { codecs, ..LinkConfig::default() };
            assert_eq!(config.check(), Err(ConfigError::CodecOfOtherService(CodecId::PACKET)));
            assert_eq!(Codecs::new(&config).ids(), [CodecId::ENDRE]);
        }
    }
}
