//! Codec settings of one direction, for the daemon and for `measure`.

use serde::Serialize;
use serde::ser::{SerializeMap as _, Serializer};

use oncewire_codec::endre::matcher::MatchParams;
pub use oncewire_codec::entropy::Entropy;
use oncewire_codec::wanax::Shape;
use oncewire_codec::wire::MAX_BLOCK;
use oncewire_codec::{MarkerKind, Matching, Plan, SampleTable};
use oncewire_link::Priority;

use super::codec::Codec;
use super::explain;
use super::policy::Usual;
use super::sample::SampleBytes;
use super::units::Size;

/// The settings of one direction of a link: `[codec]` and `[cache]` after overrides and defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecSettings {
    /// The system for flows without a policy on it.
    pub codec: Codec,
    /// The entropy stage behind it.
    pub entropy: Entropy,
    /// How markers are chosen.
    pub markers: MarkerKind,
    /// How repeats are identified.
    pub matching: Matching,
    /// The mean distance of markers in bytes, `p` of [EndRE §4.1]; 16 to 4096, default 64.
    pub period: u32,
    /// The bytes under one fingerprint, `w` of [EndRE §4.1]; 16 to 64, default 32.
    pub window: u32,
    /// The slots of the fingerprint table for each expected marker; 1 or 2, default 2.
    pub index_slots: u32,
    /// The bytes chosen by the `samplebyte` markers; default the paper's.
    pub sample_bytes: SampleBytes,
    /// The sizes of named chunks; default `mrc:8:128`, the paper's prototype.
    pub chunk_sizes: Shape,
    /// The log's capacity in bytes of plain text; 256 KiB to 2 GiB.
    pub log_memory: u64,
    /// The most log bytes between the oldest unacknowledged block and the head; none means a quarter of the log.
    pub max_in_flight: Option<u64>,
    /// Bytes for knowledge of the peer's chunk store; 64 KiB to 2 GiB. None means the rest of `memory` in a
    /// gateway, and 64 MiB if nothing else needs memory.
    pub hint_memory: Option<u64>,
}

/// Settings free to differ between the flows of a peer, as every block describes its own coding; none leaves
/// a setting unchanged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlanChanges {
    /// The entropy stage.
    pub entropy: Option<Entropy>,
    /// How markers are chosen.
    pub markers: Option<MarkerKind>,
    /// How repeats are identified.
    pub matching: Option<Matching>,
    /// The mean distance of markers in bytes.
    pub period: Option<u32>,
}

impl PlanChanges {
    /// Returns the plan with the changes made.
    pub fn apply(&self, plan: Plan) -> Plan {
        Plan {
            matching: self.matching.unwrap_or(plan.matching),
            markers: self.markers.unwrap_or(plan.markers),
            period: self.period.unwrap_or(plan.period),
            entropy: self.entropy.unwrap_or(plan.entropy),
            ..plan
        }
    }
}

/// Ways of identifying repeats in flows to a peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Matchings {
    /// Max-Match, for some flow: the sending end then keeps the log's bytes.
    pub max: bool,
    /// Some may ask for Chunk-Match.
    pub chunk: bool,
}

impl FromIterator<Plan> for Matchings {
    fn from_iter<T: IntoIterator<Item = Plan>>(plans: T) -> Self {
        let with_log = plans.into_iter().filter(|plan| plan.layers.use_log());
        with_log.fold(Self::default(), |found, plan| match plan.matching {
            Matching::Max => Self { max: true, ..found },
            Matching::Chunk => Self { chunk: true, ..found },
        })
    }
}

/// Why a `--set KEY=VALUE` is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// There is no `=`.
    #[error("{0:?} is not KEY=VALUE; write for example log_memory=64MiB")]
    NoValue(String),
    /// No such key exists, or it concerns the daemon only.
    #[error("{0}")]
    Key(String),
    /// The key is known and the value is invalid.
    #[error("{0}: {1}")]
    Value(String, String),
}

impl CodecSettings {
    /// Returns the defaults of a gateway: a log of 64 MiB and `zstd:3`.
    pub fn for_gateway() -> Self {
        Self {
            codec: Codec::Auto,
            entropy: Entropy::Zstd(3),
            markers: MarkerKind::Maxp,
            matching: Matching::Max,
            period: 64,
            window: 32,
            index_slots: 2,
            sample_bytes: SampleBytes::Table(SampleTable::PAPER),
            chunk_sizes: Shape::default(),
            log_memory: 64 << 20,
            max_in_flight: None,
            hint_memory: None,
        }
    }

    /// Returns the settings of the lab's figures, and of `oncewire train`: EndRE alone, a log of 256 MiB and `zstd:1`.
    pub fn for_lab() -> Self {
        Self { codec: Codec::Endre, entropy: Entropy::Zstd(1), log_memory: 256 << 20, ..Self::for_gateway() }
    }

    /// Applies one `KEY=VALUE`, with the configuration file's leaf names and forms; quotes may be left out.
    ///
    /// # Errors
    /// An unknown key, a key without effect here, or a bad value. Call [`CodecSettings::check`] after the
    /// last.
    pub fn set(&mut self, assignment: &str) -> Result<(), SetError> {
        let (key, value) =
            assignment.split_once('=').ok_or_else(|| SetError::NoValue(assignment.to_owned()))?;
        let (key, value) = (key.trim(), &*unquoted(value.trim()));
        match key {
            "codec" => Codec::parse(value).map(|codec| self.codec = codec),
            "entropy" => entropy(value).map(|entropy| self.entropy = entropy),
            "markers" => markers(value).map(|kind| self.markers = kind),
            "matching" => matching(value).map(|matching| self.matching = matching),
            "period" => integer(value).and_then(period).map(|period| self.period = period),
            "window" => integer(value).and_then(window).map(|window| self.window = window),
            "index_slots" => integer(value).and_then(index_slots).map(|slots| self.index_slots = slots),
            "sample_bytes" => SampleBytes::parse(value).map(|sample| self.sample_bytes = sample),
            "chunk_sizes" => chunk_sizes(value).map(|sizes| self.chunk_sizes = sizes),
            "log_memory" => size(value).and_then(log_memory).map(|bytes| self.log_memory = bytes),
            "max_in_flight" => size(value).map(|bytes| self.max_in_flight = Some(bytes)),
            "hint_memory" => size(value).and_then(hint_memory).map(|bytes| self.hint_memory = Some(bytes)),
            _ => return Err(SetError::Key(explain::unknown_setting(key, &Self::KEYS))),
        }
        .map_err(|message| SetError::Value(key.to_owned(), message))
    }

    /// Checks conditions across keys.
    ///
    /// # Errors
    /// The message names the keys and the bounds.
    pub fn check(&self) -> Result<(), SetError> {
        let fits = max_in_flight(self.max_in_flight, self.log_memory);
        fits.map_err(|message| SetError::Value("max_in_flight".to_owned(), message))
    }

    /// Makes the changes of a section.
    pub(super) fn change(&mut self, changes: &PlanChanges) {
        let Plan { matching, markers, period, entropy, .. } = changes.apply(self.plan());
        (self.matching, self.markers, self.period, self.entropy) = (matching, markers, period, entropy);
    }

    /// Returns the effective `max_in_flight`: the setting, or a quarter of the log.
    pub fn in_flight(&self) -> u64 {
        self.max_in_flight.unwrap_or(self.log_memory / 4)
    }

    /// Returns the effective `hint_memory` if nothing else needs memory.
    pub fn hints(&self) -> u64 {
        self.hint_memory.unwrap_or(MAX_HINTS)
    }

    /// Returns the coding of flows with these settings, if they are coded.
    pub fn plan(&self) -> Plan {
        let Self { matching, markers, period, entropy, .. } = *self;
        let layers = self.codec.layers().unwrap_or_default();
        Plan { layers, matching, markers, period, entropy, ..Plan::default() }
    }

    /// Returns the default coding of flows.
    pub fn usual(&self) -> Usual {
        Usual { coded: self.codec != Codec::None, plan: self.plan() }
    }

    /// Returns the parameters of the fingerprint table for a log with these settings.
    pub fn params(&self) -> MatchParams {
        MatchParams {
            period: self.period as usize,
            window: self.window as usize,
            slots_per_marker: self.index_slots,
            sample: self.sample_bytes.table(),
            sample_adapts: self.sample_bytes == SampleBytes::Adaptive,
        }
    }

    /// Estimates the bytes of the sending end's tables. Max-Match: one or two slots of four bytes for each expected
    /// marker. Chunk-Match: 15.2 bytes for each expected chunk.
    pub fn table_memory(&self, matchings: Matchings) -> u64 {
        let expected = self.log_memory / u64::from(self.period);
        let max = if matchings.max { self.params().table_memory(self.log_memory) } else { 0 };
        let chunk = if matchings.chunk { expected * 76 / 5 } else { 0 };
        max + chunk
    }

    /// Returns the bytes of both directions' logs: the sending end keeps none for Chunk-Match alone.
    pub fn logs_memory(&self, matchings: Matchings) -> u64 {
        self.log_memory * if matchings.max { 2 } else { 1 }
    }

    /// The keys of `--set`.
    pub const KEYS: [&'static str; 12] = [
        "codec",
        "entropy",
        "markers",
        "matching",
        "period",
        "window",
        "index_slots",
        "sample_bytes",
        "chunk_sizes",
        "log_memory",
        "max_in_flight",
        "hint_memory",
    ];
}

impl Serialize for CodecSettings {
    /// Writes every effective key: sizes in bytes, the rest in the configuration's form.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Self::KEYS.len()))?;
        map.serialize_entry("codec", &self.codec.to_string())?;
        map.serialize_entry("entropy", &self.entropy.to_string())?;
        map.serialize_entry("markers", self.plan().effective_markers().name())?;
        map.serialize_entry("matching", &self.matching.to_string())?;
        map.serialize_entry("period", &self.period)?;
        map.serialize_entry("window", &self.window)?;
        map.serialize_entry("index_slots", &self.index_slots)?;
        map.serialize_entry("sample_bytes", &self.sample_bytes)?;
        map.serialize_entry("chunk_sizes", &self.chunk_sizes.to_string())?;
        map.serialize_entry("log_memory", &self.log_memory)?;
        map.serialize_entry("max_in_flight", &self.in_flight())?;
        map.serialize_entry("hint_memory", &self.hints())?;
        map.end()
    }
}

/// Reads the value of `priority`.
pub(super) fn priority(text: &str) -> Result<Priority, String> {
    match text {
        "interactive" => Ok(Priority::Interactive),
        "normal" => Ok(Priority::Normal),
        "bulk" => Ok(Priority::Bulk),
        _ => Err(explain::unknown_value(text, &["interactive", "normal", "bulk"], &[])),
    }
}

/// Reads the value of `entropy`.
pub(super) fn entropy(text: &str) -> Result<Entropy, String> {
    text.parse().map_err(|_| {
        format!("{text:?} is no entropy stage; choose \"none\", \"lz4\", or \"zstd:N\" with a level N from 1 to 19")
    })
}

/// Checks the value of `markers`.
pub(super) fn markers(text: &str) -> Result<MarkerKind, String> {
    let names = MarkerKind::ALL.map(MarkerKind::name);
    text.parse().map_err(|_| explain::unknown_value(text, &names, &[]))
}

/// Reads the value of `matching`.
pub(super) fn matching(text: &str) -> Result<Matching, String> {
    text.parse().map_err(|_| explain::unknown_value(text, &["max", "chunk"], &[]))
}

/// Reads the value of `chunk_sizes`.
pub(super) fn chunk_sizes(text: &str) -> Result<Shape, String> {
    text.parse().map_err(|error| {
        format!("{text:?}: {error}; write \"mrc:DEGREE:LEAF\" such as \"mrc:8:128\", or \"src:SIZE\"")
    })
}

/// Checks the value of `period`.
pub(super) fn period(bytes: i64) -> Result<u32, String> {
    within(bytes, 16, 4096, "a marker is expected every so many bytes")
}

/// Checks the value of `window`.
pub(super) fn window(bytes: i64) -> Result<u32, String> {
    within(bytes, 16, 64, "a fingerprint covers so many bytes")
}

/// Checks the value of `index_slots`.
pub(super) fn index_slots(slots: i64) -> Result<u32, String> {
    within(slots, 1, 2, "the fingerprint table has so many slots for each expected marker")
}

/// Checks the value of `log_memory`.
pub(super) fn log_memory(bytes: u64) -> Result<u64, String> {
    if (MIN_LOG..=MAX_LOG).contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (Size(MIN_LOG), Size(MAX_LOG));
    Err(format!("{} is out of range; a log holds {least} to {most}", Size(bytes).exact()))
}

/// Checks the value of `hint_memory`.
pub(super) fn hint_memory(bytes: u64) -> Result<u64, String> {
    match bytes {
        LEAST_HINTS..=MOST_HINTS => Ok(bytes),
        ..LEAST_HINTS => Err(format!(
            "{} is too little to remember by; the least is {}",
            Size(bytes).exact(),
            Size(LEAST_HINTS)
        )),
        _ => Err(format!(
            "{} is more than can be saved; the most is {}",
            Size(bytes).exact(),
            Size(MOST_HINTS)
        )),
    }
}

/// Checks the value of `log_memory` in a rule, a part of its peer's log.
pub(super) fn log_quota(bytes: u64) -> Result<u64, String> {
    if bytes == 0 || (MAX_BLOCK as u64..=MAX_LOG).contains(&bytes) {
        return Ok(bytes);
    }
    let (least, most) = (Size(MAX_BLOCK as u64), Size(MAX_LOG));
    Err(format!(
        "{} is out of range; of a log, the flows of a rule may take {least} to {most}, or 0 to be never remembered",
        Size(bytes).exact(),
    ))
}

/// Checks `max_in_flight` against the log.
///
/// Beyond half of the log, more would be in flight than referenceable: a block may refer only to bytes
/// younger than the log's size less `max_in_flight`.
pub(super) fn max_in_flight(in_flight: Option<u64>, log_memory: u64) -> Result<(), String> {
    let Some(in_flight) = in_flight else { return Ok(()) };
    if (MIN_LOG / 4..=log_memory / 2).contains(&in_flight) {
        return Ok(());
    }
    Err(format!(
        "{} is out of range; with log_memory of {} it goes from {} to {}",
        Size(in_flight).exact(),
        Size(log_memory).exact(),
        Size(MIN_LOG / 4),
        Size(log_memory / 2).exact(),
    ))
}

fn within(number: i64, least: u32, most: u32, what: &str) -> Result<u32, String> {
    match u32::try_from(number) {
        Ok(number) if (least..=most).contains(&number) => Ok(number),
        _ => Err(format!("{number} is out of range: {what}, from {least} to {most}")),
    }
}

/// Reads a text or number in the configuration's form; all else stays unchanged.
fn unquoted(value: &str) -> String {
    let read = toml::from_str::<toml::Table>(&format!("value = {value}"));
    match read.ok().filter(|table| table.len() == 1).and_then(|mut table| table.remove("value")) {
        Some(toml::Value::String(text)) => text,
        Some(toml::Value::Integer(number)) => number.to_string(),
        _ => value.to_owned(),
    }
}

fn integer(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| format!("{text:?} is not a whole number"))
}

fn size(text: &str) -> Result<u64, String> {
    text.parse().map(|size: Size| size.0).map_err(|error| error.to_string())
}

/// Four of the largest blocks: with fewer, nothing could be in flight beside referenced bytes.
const MIN_LOG: u64 = 256 << 10;

/// The fingerprint table's slots hold a position of 31 bits and the rest as a tag.
const MAX_LOG: u64 = 2 << 30;
/// Some ten thousand chunks.
const LEAST_HINTS: u64 = 64 << 10;
/// The default with enough room: half of it are hints for a quarter of a terabyte in chunks of 64 KiB;
/// smaller ones are forgotten sooner.
pub(super) const MAX_HINTS: u64 = 64 << 20;
/// A quarter of a billion chunks; they are saved and read again whole.
const MOST_HINTS: u64 = 2 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_can_be_set_and_is_reported() {
        let mut settings = CodecSettings::for_lab();
        for assignment in [
            "codec=none",
            "entropy=lz4",
            "markers=maxp",
            "matching=max",
            "period=32",
            "window=48",
            "index_slots=1",
            "sample_bytes=32,101",
            "chunk_sizes=mrc:4:1024",
            "log_memory=1MiB",
            "max_in_flight=131072",
            "hint_memory=2MiB",
        ] {
            settings.set(assignment).unwrap();
        }
        settings.check().unwrap();
        let reported = serde_json::to_value(&settings).unwrap();
        let expected = serde_json::json!({
            "codec": "none", "entropy": "lz4", "markers": "maxp", "matching": "max", "period": 32, "window": 48,
            "index_slots": 1, "sample_bytes": [32, 101], "chunk_sizes": "mrc:4:1024",
            "log_memory": 1 << 20, "max_in_flight": 131_072, "hint_memory": 2 << 20,
        });
        assert_eq!(reported, expected);
        assert_eq!(reported.as_object().unwrap().len(), CodecSettings::KEYS.len());
    }

    #[test]
    fn values_may_be_written_as_in_the_configuration() {
        for (assignment, key, expected) in [
            ("log_memory = \"1 MiB\"", "log_memory", serde_json::json!(1 << 20)),
            ("log_memory=0x100_000", "log_memory", serde_json::json!(1 << 20)),
            ("entropy='lz4'", "entropy", serde_json::json!("lz4")),
            ("sample_bytes=[32, 101]", "sample_bytes", serde_json::json!([32, 101])),
            ("sample_bytes=\"adaptive\"", "sample_bytes", serde_json::json!("adaptive")),
        ] {
            let mut settings = CodecSettings::for_lab();
            settings.set(assignment).unwrap_or_else(|error| panic!("{assignment}: {error}"));
            assert_eq!(serde_json::to_value(&settings).unwrap()[key], expected, "{assignment}");
        }
    }

    #[test]
    fn setting_without_effect_is_a_helpful_error() {
        let error = |assignment: &str| CodecSettings::for_lab().set(assignment).unwrap_err().to_string();
        assert!(error("log_memory").contains("KEY=VALUE"));
        assert!(
            error("log_memroy=1MiB").contains("did you mean `log_memory`?"),
            "{}",
            error("log_memroy=1MiB")
        );
        assert!(error("max_lanes=4").contains("no effect here"), "{}", error("max_lanes=4"));
        assert!(error("bytes=32").contains("did you mean `sample_bytes`?"), "{}", error("bytes=32"));
        assert!(error("share=flow").contains("not in this version"), "{}", error("share=flow"));
        assert!(error("codec=pack").contains("not in this version"));
        assert!(error("codec=zip").contains("auto, endre, wanax and none"));
        assert!(error("chunk_sizes=64KiB").contains("mrc:8:128"));
        assert!(error("markers=maxq").contains("did you mean \"maxp\"?"));
        assert!(error("matching=chunks").contains("did you mean \"chunk\"?"));
        assert!(error("entropy=zstd:99").contains("1 to 19"));
        assert!(error("entropy=gzip").contains("zstd:N"));
        assert!(error("period=8").contains("16 to 4096"));
        assert!(error("window=five").contains("not a whole number"));
        assert!(error("log_memory=1KiB").contains("256 KiB"));
        assert!(error("log_memory=2049MiB").starts_with("log_memory: 2049 MiB is out of range"));
        assert!(error("hint_memory=1KiB").contains("64 KiB"));
    }

    #[test]
    fn more_in_flight_than_half_the_log_is_refused() {
        let mut settings = CodecSettings::for_lab();
        settings.set("log_memory=1MiB").unwrap();
        settings.set("max_in_flight=1MiB").unwrap();
        let said = settings.check().unwrap_err().to_string();
        assert!(
            said.starts_with("max_in_flight: 1 MiB is out of range") && said.ends_with("512 KiB"),
            "{said}"
        );
    }

    #[test]
    fn table_takes_an_eighth_or_sixteenth_of_the_log() {
        let mut settings = CodecSettings::for_gateway();
        let matchings = Matchings { max: true, chunk: false };
        assert_eq!(settings.table_memory(matchings), 8 << 20);
        settings.set("index_slots=1").unwrap();
        assert_eq!(settings.table_memory(matchings), 4 << 20);
        assert_eq!(settings.params().slots_per_marker, 1);
        settings.set("log_memory=96MiB").unwrap();
        assert_eq!(settings.table_memory(matchings), 6 << 20);
    }

    #[test]
    fn chunk_match_takes_a_table_in_place_of_a_log() {
        let mut settings = CodecSettings::for_gateway();
        settings.set("matching=chunk").unwrap();
        let chunk = Matchings::from_iter([settings.plan()]);
        assert_eq!((settings.logs_memory(chunk), settings.table_memory(chunk) >> 20), (64 << 20, 15));
        let both = Matchings::from_iter([Plan::default(), settings.plan()]);
        assert_eq!((settings.logs_memory(both), settings.table_memory(both) >> 20), (128 << 20, 23));
        let reported = serde_json::to_value(&settings).unwrap();
        assert_eq!((&reported["matching"], &reported["markers"]), (&"chunk".into(), &"modp".into()));
    }
}
