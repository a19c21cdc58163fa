//! Resolution of `[codec]`, `[cache]` and `[link]`, with overrides.

use std::ops::Range;
use std::time::Duration;

use toml::Spanned;

use super::Resolver;
use crate::raw::{RawCache, RawCodec, RawLink, RawPeer, RawPolicy, Text};
use crate::sample::RawSample;
use crate::units::{Rate, Size, Time};
use crate::{Codec, CodecSettings, LinkSettings, PlanChanges, SampleBytes, settings};

/// The keys permitted in `[codec]`, `[[peer]]` and `[[policy]]`.
struct PlanKeys<'a> {
    entropy: Option<&'a Text>,
    markers: Option<&'a Text>,
    matching: Option<&'a Text>,
    period: Option<&'a Spanned<i64>>,
}

/// The keys permitted in `[codec]` or `[cache]`, and in `[[peer]]`.
struct PeerKeys<'a> {
    window: Option<&'a Spanned<i64>>,
    index_slots: Option<&'a Spanned<i64>>,
    sample_bytes: Option<&'a Spanned<RawSample>>,
    log_memory: Option<&'a Spanned<Size>>,
}

impl Resolver {
    /// Resolves the defaults of all peers.
    pub(super) fn codec_defaults(
        &mut self,
        codec: &RawCodec,
        cache: &RawCache,
        link: &RawLink,
    ) -> CodecSettings {
        let mut settings = CodecSettings::for_gateway();
        let chosen = self.read("codec", codec.codec.as_ref(), |text| Codec::parse(text));
        settings.codec = chosen.unwrap_or(settings.codec);
        let sizes = self.read("chunk_sizes", codec.chunk_sizes.as_ref(), |text| settings::chunk_sizes(text));
        settings.chunk_sizes = sizes.unwrap_or_default();
        let keys = PlanKeys {
            entropy: codec.entropy.as_ref(),
            markers: codec.markers.as_ref(),
            matching: codec.matching.as_ref(),
            period: codec.period.as_ref(),
        };
        settings.change(&self.plan_changes(&keys));
        let keys = PeerKeys {
            window: codec.window.as_ref(),
            index_slots: codec.index_slots.as_ref(),
            sample_bytes: codec.sample_bytes.as_ref(),
            log_memory: cache.log_memory.as_ref(),
        };
        self.apply(&keys, &mut settings);
        if let Some(in_flight) = &link.max_in_flight {
            settings.max_in_flight = Some(in_flight.get_ref().0);
            let fits = settings::max_in_flight(settings.max_in_flight, settings.log_memory);
            self.fits(in_flight.span(), "max_in_flight", fits);
        }
        settings.hint_memory =
            self.read("hint_memory", cache.hint_memory.as_ref(), |bytes| settings::hint_memory(bytes.0));
        settings
    }

    /// Resolves one peer's settings.
    pub(super) fn codec_of_peer(&mut self, raw: &RawPeer, defaults: &CodecSettings) -> CodecSettings {
        let mut settings = defaults.clone();
        let chosen = self.read("codec", raw.codec.as_ref(), |text| Codec::parse(text));
        settings.codec = chosen.unwrap_or(settings.codec);
        let keys = PlanKeys {
            entropy: raw.entropy.as_ref(),
            markers: raw.markers.as_ref(),
            matching: raw.matching.as_ref(),
            period: raw.period.as_ref(),
        };
        settings.change(&self.plan_changes(&keys));
        let keys = PeerKeys {
            window: raw.window.as_ref(),
            index_slots: raw.index_slots.as_ref(),
            sample_bytes: raw.sample_bytes.as_ref(),
            log_memory: raw.log_memory.as_ref(),
        };
        self.apply(&keys, &mut settings);
        // A log out of range was reported and left at the default, known to fit.
        if let Some(log_memory) = raw.log_memory.as_ref().filter(|log| log.get_ref().0 == settings.log_memory)
        {
            let fits = settings::max_in_flight(settings.max_in_flight, settings.log_memory);
            self.fits(log_memory.span(), "log_memory", fits);
        }
        settings
    }

    /// Reports a limit of bytes in flight too large for the log.
    fn fits(&mut self, span: Range<usize>, key: &str, fits: Result<(), String>) {
        if let Err(why) = fits {
            self.problems.at(span, format_args!("{key}: {why}"));
        }
    }

    /// Resolves a rule's changes to the coding of its flows.
    pub(super) fn changes_of_policy(&mut self, raw: &RawPolicy) -> PlanChanges {
        self.plan_changes(&PlanKeys {
            entropy: raw.entropy.as_ref(),
            markers: raw.markers.as_ref(),
            matching: raw.matching.as_ref(),
            period: raw.period.as_ref(),
        })
    }

    fn plan_changes(&mut self, raw: &PlanKeys<'_>) -> PlanChanges {
        PlanChanges {
            entropy: self.read("entropy", raw.entropy, |text| settings::entropy(text)),
            markers: self.read("markers", raw.markers, |text| settings::markers(text)),
            matching: self.read("matching", raw.matching, |text| settings::matching(text)),
            period: self.read("period", raw.period, |period| settings::period(*period)),
        }
    }

    fn apply(&mut self, raw: &PeerKeys<'_>, settings: &mut CodecSettings) {
        let window = self.read("window", raw.window, |window| settings::window(*window));
        settings.window = window.unwrap_or(settings.window);
        let index_slots = self.read("index_slots", raw.index_slots, |slots| settings::index_slots(*slots));
        settings.index_slots = index_slots.unwrap_or(settings.index_slots);
        let sample_bytes = self.read("sample_bytes", raw.sample_bytes, SampleBytes::resolve);
        settings.sample_bytes = sample_bytes.unwrap_or(settings.sample_bytes);
        let log_memory = self.read("log_memory", raw.log_memory, |log| settings::log_memory(log.0));
        settings.log_memory = log_memory.unwrap_or(settings.log_memory);
    }

    /// Reads a key if it is there; a bad value is reported and counts as none.
    pub(super) fn read<V, T>(
        &mut self,
        key: &str,
        value: Option<&Spanned<V>>,
        read: impl FnOnce(&V) -> Result<T, String>,
    ) -> Option<T> {
        let value = value?;
        self.problems.check(value.span(), key, read(value.get_ref()))
    }

    /// Resolves `[link]`.
    pub(super) fn link(&mut self, raw: &RawLink) -> LinkSettings {
        let resume_window = raw.resume_window.as_ref().and_then(|time| {
            self.time("resume_window", time, Duration::ZERO, Duration::from_secs(24 * 3600))
        });
        let dead_after = raw.dead_after.as_ref().and_then(|time| {
            self.time("dead_after", time, Duration::from_secs(1), Duration::from_secs(3600))
        });
        let max_lanes = raw.max_lanes.as_ref().and_then(|lanes| self.within("max_lanes", lanes, 1..1025));
        LinkSettings {
            resume_window: resume_window.unwrap_or(RESUME_WINDOW),
            dead_after,
            congestion: self.congestion(raw.congestion.as_ref()),
            congestion_chosen: raw.congestion.is_some(),
            rate_limit: self.rate_limit(raw.rate_limit.as_ref()),
            bulk_after: raw.bulk_after.as_ref().map_or(BULK_AFTER, |size| size.get_ref().0),
            max_lanes: max_lanes.unwrap_or(MAX_LANES),
            shed: raw.shed.unwrap_or(true),
        }
    }

    /// Reads the maximum send rate.
    pub(super) fn rate_limit(&mut self, rate: Option<&Spanned<Rate>>) -> Option<u64> {
        self.read("rate_limit", rate, |&Rate(rate)| match rate {
            LEAST_RATE.. => Ok(rate),
            _ => Err(format!("{} is too little for a link; the least is {}", Rate(rate), Rate(LEAST_RATE))),
        })
    }

    /// Reads a time within bounds.
    pub(super) fn time(
        &mut self,
        key: &str,
        time: &Spanned<Time>,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let Time(value) = *time.get_ref();
        let read = if (least..=most).contains(&value) {
            Ok(value)
        } else {
            Err(format!("{} is out of range, which is {} to {}", Time(value), Time(least), Time(most)))
        };
        self.problems.check(time.span(), key, read)
    }

    /// Reads the name of a congestion control, and warns if this kernel does not offer it.
    fn congestion(&mut self, text: Option<&Text>) -> String {
        let Some(text) = text else { return CONGESTION.to_owned() };
        let name = text.get_ref();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        if !(1..16).contains(&name.len()) || !name.bytes().all(plain) {
            let message = format!(
                "congestion: {name:?} is no name of a congestion control; write \"bbr\" or \"cubic\""
            );
            self.problems.at_value(text.span(), message);
        }
        let known = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control")
            .unwrap_or_default();
        if !known.is_empty() && !known.split_whitespace().any(|known| known == name) {
            self.warnings.push(format!(
                "congestion: this kernel offers {} and not {name}; lanes use its default unless `modprobe tcp_{name}` \
                 brings it",
                known.split_whitespace().collect::<Vec<_>>().join(", "),
            ));
        }
        name.clone()
    }
}

const RESUME_WINDOW: Duration = Duration::from_secs(120);
const MAX_LANES: u32 = 64;
const BULK_AFTER: u64 = 1 << 20;
/// Below it one block takes seconds.
const LEAST_RATE: u64 = 8_000;
/// Finds the rate of a lossy link, where loss-based controls collapse; without it, lanes use the kernel's
/// default.
const CONGESTION: &str = "bbr";
