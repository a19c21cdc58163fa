//! The codec that a link speaks.

use std::fmt;

use oncewire_codec::contract::{Decoder, Encoder, SavedLog};
use oncewire_codec::stream::{Receiver, ReceiverConfig, Sender, SenderConfig};

use crate::config::LinkConfig;

/// Makes the two halves of a codec for a link.
pub trait CodecFactory: fmt::Debug + Send + Sync {
    /// Makes the sending half, with the log of an earlier process if one was found.
    fn encoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Encoder + Send>;
    /// Makes the receiving half, likewise.
    fn decoder(&self, config: &LinkConfig, saved: Option<SavedLog>) -> Box<dyn Decoder + Send>;
}

/// EndRE's log, Wanax's names and an entropy stage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Endre;

impl CodecFactory for Endre {
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
