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

/// Resolves the defaults of all peers.
pub(super) fn codec_defaults(
    resolver: &mut Resolver,
    codec: &RawCodec,
    cache: &RawCache,
    link: &RawLink,
) -> CodecSettings {
    let mut settings = CodecSettings::for_gateway();
    let chosen = read(resolver, "codec", codec.codec.as_ref(), |text| Codec::parse(text));
    settings.codec = chosen.unwrap_or(settings.codec);
    let sizes = read(resolver, "chunk_sizes", codec.chunk_sizes.as_ref(), |text| settings::chunk_sizes(text));
    settings.chunk_sizes = sizes.unwrap_or_default();
    let keys = PlanKeys {
        entropy: codec.entropy.as_ref(),
        markers: codec.markers.as_ref(),
        matching: codec.matching.as_ref(),
        period: codec.period.as_ref(),
    };
    settings.change(&plan_changes(resolver, &keys));
    let keys = PeerKeys {
        window: codec.window.as_ref(),
        index_slots: codec.index_slots.as_ref(),
        sample_bytes: codec.sample_bytes.as_ref(),
        log_memory: cache.log_memory.as_ref(),
    };
    apply(resolver, &keys, &mut settings);
    if let Some(in_flight) = &link.max_in_flight {
        settings.max_in_flight = Some(in_flight.get_ref().0);
        let fits = settings::max_in_flight(settings.max_in_flight, settings.log_memory);
        check_fit(resolver, in_flight.span(), "max_in_flight", fits);
    }
    settings.hint_memory =
        read(resolver, "hint_memory", cache.hint_memory.as_ref(), |bytes| settings::hint_memory(bytes.0));
    settings
}

/// Resolves one peer's settings.
pub(super) fn codec_of_peer(
    resolver: &mut Resolver,
    raw: &RawPeer,
    defaults: &CodecSettings,
) -> CodecSettings {
    let mut settings = defaults.clone();
    let chosen = read(resolver, "codec", raw.codec.as_ref(), |text| Codec::parse(text));
    settings.codec = chosen.unwrap_or(settings.codec);
    let keys = PlanKeys {
        entropy: raw.entropy.as_ref(),
        markers: raw.markers.as_ref(),
        matching: raw.matching.as_ref(),
        period: raw.period.as_ref(),
    };
    settings.change(&plan_changes(resolver, &keys));
    let keys = PeerKeys {
        window: raw.window.as_ref(),
        index_slots: raw.index_slots.as_ref(),
        sample_bytes: raw.sample_bytes.as_ref(),
        log_memory: raw.log_memory.as_ref(),
    };
    apply(resolver, &keys, &mut settings);
    // A log out of range was reported and left at the default, known to fit.
    if let Some(log_memory) = raw.log_memory.as_ref().filter(|log| log.get_ref().0 == settings.log_memory) {
        let fits = settings::max_in_flight(settings.max_in_flight, settings.log_memory);
        check_fit(resolver, log_memory.span(), "log_memory", fits);
    }
    settings
}

/// Reports a limit of bytes in flight too large for the log.
fn check_fit(resolver: &mut Resolver, span: Range<usize>, key: &str, fits: Result<(), String>) {
    if let Err(why) = fits {
        resolver.problems.at(span, format_args!("{key}: {why}"));
    }
}

/// Resolves a rule's changes to the coding of its flows.
pub(super) fn changes_of_policy(resolver: &mut Resolver, raw: &RawPolicy) -> PlanChanges {
    plan_changes(
        resolver,
        &PlanKeys {
            entropy: raw.entropy.as_ref(),
            markers: raw.markers.as_ref(),
            matching: raw.matching.as_ref(),
            period: raw.period.as_ref(),
        },
    )
}

fn plan_changes(resolver: &mut Resolver, raw: &PlanKeys<'_>) -> PlanChanges {
    PlanChanges {
        entropy: read(resolver, "entropy", raw.entropy, |text| settings::entropy(text)),
        markers: read(resolver, "markers", raw.markers, |text| settings::markers(text)),
        matching: read(resolver, "matching", raw.matching, |text| settings::matching(text)),
        period: read(resolver, "period", raw.period, |period| settings::period(*period)),
    }
}

fn apply(resolver: &mut Resolver, raw: &PeerKeys<'_>, settings: &mut CodecSettings) {
    let window = read(resolver, "window", raw.window, |window| settings::window(*window));
    settings.window = window.unwrap_or(settings.window);
    let index_slots = read(resolver, "index_slots", raw.index_slots, |slots| settings::index_slots(*slots));
    settings.index_slots = index_slots.unwrap_or(settings.index_slots);
    let sample_bytes = read(resolver, "sample_bytes", raw.sample_bytes, SampleBytes::resolve);
    settings.sample_bytes = sample_bytes.unwrap_or(settings.sample_bytes);
    let log_memory = read(resolver, "log_memory", raw.log_memory, |log| settings::log_memory(log.0));
    settings.log_memory = log_memory.unwrap_or(settings.log_memory);
}

/// Reads a key if it is there; a bad value is reported and counts as none.
pub(super) fn read<V, T>(
    resolver: &mut Resolver,
    key: &str,
    value: Option<&Spanned<V>>,
    read: impl FnOnce(&V) -> Result<T, String>,
) -> Option<T> {
    let value = value?;
    resolver.problems.check(value.span(), key, read(value.get_ref()))
}

/// Resolves `[link]`.
pub(super) fn link(resolver: &mut Resolver, raw: &RawLink) -> LinkSettings {
    let resume_window = raw.resume_window.as_ref().and_then(|time| {
        read_time(resolver, "resume_window", time, Duration::ZERO, Duration::from_secs(24 * 3600))
    });
    let dead_after = raw.dead_after.as_ref().and_then(|time| {
        read_time(resolver, "dead_after", time, Duration::from_secs(1), Duration::from_secs(3600))
    });
    let max_lanes = raw.max_lanes.as_ref().and_then(|lanes| resolver.within("max_lanes", lanes, 1..1025));
    LinkSettings {
        resume_window: resume_window.unwrap_or(RESUME_WINDOW),
        dead_after,
        congestion: congestion(resolver, raw.congestion.as_ref()),
        congestion_chosen: raw.congestion.is_some(),
        rate_limit: rate_limit(resolver, raw.rate_limit.as_ref()),
        bulk_after: raw.bulk_after.as_ref().map_or(BULK_AFTER, |size| size.get_ref().0),
        max_lanes: max_lanes.unwrap_or(MAX_LANES),
        shed: raw.shed.unwrap_or(true),
    }
}

/// Reads the maximum send rate.
pub(super) fn rate_limit(resolver: &mut Resolver, rate: Option<&Spanned<Rate>>) -> Option<u64> {
    read(resolver, "rate_limit", rate, |&Rate(rate)| match rate {
        LEAST_RATE.. => Ok(rate),
        _ => Err(format!("{} is too little for a link; the least is {}", Rate(rate), Rate(LEAST_RATE))),
    })
}

/// Reads a time within bounds.
pub(super) fn read_time(
    resolver: &mut Resolver,
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
    resolver.problems.check(time.span(), key, read)
}

/// Reads the name of a congestion control, and warns if this kernel does not offer it.
fn congestion(resolver: &mut Resolver, text: Option<&Text>) -> String {
    let Some(text) = text else { return CONGESTION.to_owned() };
    let name = text.get_ref();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    if !(1..16).contains(&name.len()) || !name.bytes().all(plain) {
        let message =
            format!("congestion: {name:?} is no name of a congestion control; write \"bbr\" or \"cubic\"");
        resolver.problems.at_value(text.span(), message);
    }
    let known =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap_or_default();
    if !known.is_empty() && !known.split_whitespace().any(|known| known == name) {
        resolver.warnings.push(format!(
            "congestion: this kernel offers {} and not {name}; lanes use its default unless `modprobe tcp_{name}` \
             brings it",
            known.split_whitespace().collect::<Vec<_>>().join(", "),
        ));
    }
    name.clone()
}

const RESUME_WINDOW: Duration = Duration::from_secs(120);
const MAX_LANES: u32 = 64;
const BULK_AFTER: u64 = 1 << 20;
/// Below it one block takes seconds.
const LEAST_RATE: u64 = 8_000;
/// Finds the rate of a lossy link, where loss-based controls collapse; without it, lanes use the kernel's
/// default.
const CONGESTION: &str = "bbr";
