//! The configuration as typed: one field per key, with its place.
//!
//! `docs/reference/configuration.md` has a paragraph for each key. Keys of later versions are not here but in
//! [`explain`](super::explain): it announces them instead of calling them misspelt.

use std::fmt;

use serde::Deserialize;
use serde::de::{self, Deserializer, SeqAccess, Visitor};
use toml::Spanned;

use super::sample::RawSample;
use super::units::{Rate, Size, Time};

/// A text and its place.
pub(super) type Text = Spanned<String>;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawConfig {
    pub(super) gateway: Spanned<RawGateway>,
    #[serde(default)]
    pub(super) group: Vec<Spanned<RawGroup>>,
    #[serde(default)]
    pub(super) peer: Vec<Spanned<RawPeer>>,
    #[serde(default)]
    pub(super) intercept: Vec<Spanned<RawIntercept>>,
    #[serde(default)]
    pub(super) policy: Vec<Spanned<RawPolicy>>,
    #[serde(default)]
    pub(super) codec: RawCodec,
    #[serde(default)]
    pub(super) cache: RawCache,
    #[serde(default)]
    pub(super) link: RawLink,
}

/// `[gateway]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGateway {
    pub(super) name: Text,
    pub(super) key_file: Text,
    #[serde(default)]
    pub(super) listen: Option<OneOrMany>,
    pub(super) admin: Option<Text>,
    pub(super) admin_token_file: Option<Text>,
    pub(super) state: Option<Text>,
    pub(super) encrypt_key_file: Option<Text>,
    pub(super) drain: Option<Spanned<Time>>,
    pub(super) user: Option<Text>,
    pub(super) watchdog: Option<Spanned<Time>>,
    pub(super) keepalive: Option<Spanned<Time>>,
    pub(super) log_level: Option<Text>,
    pub(super) announce: Option<Spanned<Vec<Text>>>,
    pub(super) site: Option<Text>,
    pub(super) discover_port: Option<Spanned<i64>>,
    pub(super) rule_priority: Option<Spanned<i64>>,
    pub(super) mark: Option<Spanned<i64>>,
}

/// `[[group]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawGroup {
    pub(super) name: Text,
    pub(super) key_file: Text,
    pub(super) discover: Option<Spanned<Vec<Text>>>,
}

/// `[[peer]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPeer {
    pub(super) name: Text,
    pub(super) public_key: OneOrMany,
    pub(super) address: Option<Text>,
    pub(super) group: Option<Text>,
    pub(super) site: Option<Text>,
    pub(super) networks: Option<Vec<Text>>,
    pub(super) accept_networks: Option<Vec<Text>>,
    pub(super) allow: Option<Vec<Text>>,
    pub(super) deny: Option<Vec<Text>>,
    pub(super) allow_sources: Option<Vec<Text>>,
    pub(super) codec: Option<Text>,
    pub(super) entropy: Option<Text>,
    pub(super) markers: Option<Text>,
    pub(super) matching: Option<Text>,
    pub(super) period: Option<Spanned<i64>>,
    pub(super) window: Option<Spanned<i64>>,
    pub(super) index_slots: Option<Spanned<i64>>,
    pub(super) sample_bytes: Option<Spanned<RawSample>>,
    pub(super) log_memory: Option<Spanned<Size>>,
    pub(super) adapt: Option<Spanned<RawAdapt>>,
    pub(super) rate_limit: Option<Spanned<Rate>>,
}

/// `[[intercept]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawIntercept {
    pub(super) mode: Text,
    pub(super) listen: Text,
    pub(super) target: Option<Text>,
    pub(super) proxy_protocol: Option<Text>,
    pub(super) peer: Option<Text>,
    pub(super) users: Option<OneOrMany>,
    pub(super) allow_from: Option<Spanned<Vec<Text>>>,
    pub(super) on_peer_loss: Option<Text>,
    pub(super) interfaces: Option<Vec<Text>>,
    pub(super) ports: Option<Vec<Spanned<RawPort>>>,
    pub(super) networks: Option<Vec<Text>>,
    pub(super) source: Option<Text>,
    pub(super) hold_syn: Option<Spanned<bool>>,
    pub(super) scope: Option<Text>,
    pub(super) groups: Option<Vec<Text>>,
    pub(super) cgroups: Option<Vec<Text>>,
    pub(super) rules: Option<Text>,
    pub(super) rule_priority: Option<Spanned<i64>>,
    pub(super) mark: Option<Spanned<i64>>,
}

/// `[[policy]]`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawPolicy {
    #[serde(default, rename = "match")]
    pub(super) conditions: RawMatch,
    pub(super) path: Option<Text>,
    pub(super) codec: Option<Text>,
    pub(super) priority: Option<Text>,
    pub(super) entropy: Option<Text>,
    pub(super) markers: Option<Text>,
    pub(super) matching: Option<Text>,
    pub(super) period: Option<Spanned<i64>>,
    pub(super) log_memory: Option<Spanned<Size>>,
}

/// `match` of a `[[policy]]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawMatch {
    pub(super) ports: Option<Vec<Spanned<i64>>>,
    pub(super) networks: Option<Vec<Text>>,
    pub(super) peers: Option<Vec<Text>>,
}

/// `[codec]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCodec {
    pub(super) codec: Option<Text>,
    pub(super) chunk_sizes: Option<Text>,
    pub(super) entropy: Option<Text>,
    pub(super) markers: Option<Text>,
    pub(super) matching: Option<Text>,
    pub(super) period: Option<Spanned<i64>>,
    pub(super) window: Option<Spanned<i64>>,
    pub(super) index_slots: Option<Spanned<i64>>,
    pub(super) sample_bytes: Option<Spanned<RawSample>>,
    pub(super) adapt: Option<Spanned<RawAdapt>>,
}

/// `[cache]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawCache {
    pub(super) memory: Option<Spanned<Size>>,
    pub(super) log_idle: Option<Spanned<Time>>,
    pub(super) log_memory: Option<Spanned<Size>>,
    pub(super) hint_memory: Option<Spanned<Size>>,
    pub(super) store_disk: Option<Spanned<Size>>,
    pub(super) store_path: Option<Text>,
    pub(super) store_index_memory: Option<Spanned<Size>>,
    pub(super) store_read_latency: Option<Spanned<Time>>,
}

/// `[link]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLink {
    pub(super) resume_window: Option<Spanned<Time>>,
    pub(super) dead_after: Option<Spanned<Time>>,
    pub(super) congestion: Option<Text>,
    pub(super) max_lanes: Option<Spanned<i64>>,
    pub(super) flow_memory: Option<Spanned<Size>>,
    pub(super) max_in_flight: Option<Spanned<Size>>,
    pub(super) rate_limit: Option<Spanned<Rate>>,
    pub(super) bulk_after: Option<Spanned<Size>>,
    pub(super) shed: Option<bool>,
}

/// One text, or a list of texts.
#[derive(Debug)]
pub(super) enum OneOrMany {
    One(Text),
    Many(Vec<Text>),
}

impl OneOrMany {
    /// Returns the texts; a single text is a list of one.
    pub(super) fn texts(&self) -> &[Text] {
        match self {
            Self::One(text) => std::slice::from_ref(text),
            Self::Many(texts) => texts,
        }
    }
}

impl<'de> Deserialize<'de> for OneOrMany {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let spanned = Spanned::<Inner>::deserialize(deserializer)?;
        let span = spanned.span();
        Ok(match spanned.into_inner() {
            Inner::One(text) => Self::One(Spanned::new(span, text)),
            Inner::Many(texts) => Self::Many(texts),
        })
    }
}

/// `adapt`: the text, or a truth value as a text.
#[derive(Debug)]
pub(super) struct RawAdapt(pub(super) String);

impl<'de> Deserialize<'de> for RawAdapt {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AdaptVisitor;

        impl Visitor<'_> for AdaptVisitor {
            type Value = RawAdapt;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"savings\", \"speed\", true or false")
            }

            fn visit_bool<E: de::Error>(self, value: bool) -> Result<RawAdapt, E> {
                Ok(RawAdapt(value.to_string()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawAdapt, E> {
                Ok(RawAdapt(text.to_owned()))
            }
        }

        deserializer.deserialize_any(AdaptVisitor)
    }
}

/// A port as a number, or ports as a text; both are read as texts.
#[derive(Debug)]
pub(super) struct RawPort(pub(super) String);

impl<'de> Deserialize<'de> for RawPort {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PortVisitor;

        impl Visitor<'_> for PortVisitor {
            type Value = RawPort;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a port, or a range such as \"8000-8100\"")
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<RawPort, E> {
                Ok(RawPort(number.to_string()))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawPort, E> {
                Ok(RawPort(text.to_owned()))
            }
        }

        deserializer.deserialize_any(PortVisitor)
    }
}

/// Value of a [`OneOrMany`], without its own place.
enum Inner {
    One(String),
    Many(Vec<Text>),
}

impl<'de> Deserialize<'de> for Inner {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct InnerVisitor;

        impl<'de> Visitor<'de> for InnerVisitor {
            type Value = Inner;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Inner, E> {
                Ok(Inner::One(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Inner, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = seq.next_element()? {
                    texts.push(text);
                }
                Ok(Inner::Many(texts))
            }
        }

        deserializer.deserialize_any(InnerVisitor)
    }
}
