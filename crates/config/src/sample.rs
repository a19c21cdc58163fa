//! The value of `sample_bytes`: bytes chosen by the `samplebyte` markers.

use std::fmt;

use serde::de::{self, Deserialize, Deserializer, SeqAccess, Visitor};
use serde::ser::{Serialize, Serializer};

use oncewire_codec::SampleTable;

/// The bytes chosen by the `samplebyte` markers [EndRE §5.1.4].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleBytes {
    /// These, always.
    Table(SampleTable),
    /// The paper's at first, then bytes chosen by the traffic.
    Adaptive,
}

impl SampleBytes {
    /// Returns the bytes to begin with.
    pub fn table(self) -> SampleTable {
        match self {
            Self::Table(table) => table,
            Self::Adaptive => SampleTable::PAPER,
        }
    }

    /// Reads a name, or numbers with commas between them, as `--set` has it: in brackets too, as the configuration has them
    /// and `oncewire train` prints them.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let listed = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match listed.unwrap_or(text) {
            "paper" if listed.is_none() => Ok(Self::Table(SampleTable::PAPER)),
            "adaptive" if listed.is_none() => Ok(Self::Adaptive),
            text if text.starts_with(|first: char| first.is_ascii_alphabetic()) => {
                Err(format!("{text:?} is neither \"paper\" nor \"adaptive\" nor a list of bytes"))
            }
            text => text.parse().map(Self::Table).map_err(|error| format!("{error}")),
        }
    }

    /// Takes the configured value.
    pub(super) fn resolve(raw: &RawSample) -> Result<Self, String> {
        match raw {
            RawSample::Name(name) => Self::parse(name),
            RawSample::List(numbers) => {
                let byte = |number: &i64| {
                    u8::try_from(*number).map_err(|_| format!("{number} is no byte; bytes go from 0 to 255"))
                };
                let bytes = numbers.iter().map(byte).collect::<Result<Vec<u8>, _>>()?;
                SampleTable::from_bytes(bytes).map(Self::Table).map_err(|error| error.to_string())
            }
        }
    }
}

impl fmt::Display for SampleBytes {
    /// Writes numbers with commas between them, or `adaptive`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Table(table) => table.fmt(f),
            Self::Adaptive => f.pad("adaptive"),
        }
    }
}

impl Serialize for SampleBytes {
    /// Writes a list of numbers, or `"adaptive"`: the configuration's format.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Table(table) => serializer.collect_seq(table.bytes()),
            Self::Adaptive => serializer.serialize_str("adaptive"),
        }
    }
}

/// The typed value of `sample_bytes`.
#[derive(Debug)]
pub(super) enum RawSample {
    /// A name.
    Name(String),
    /// Numbers, bytes or not.
    List(Vec<i64>),
}

impl<'de> Deserialize<'de> for RawSample {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SampleVisitor;

        impl<'de> Visitor<'de> for SampleVisitor {
            type Value = RawSample;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of bytes, \"paper\" or \"adaptive\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<RawSample, E> {
                Ok(RawSample::Name(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawSample, A::Error> {
                let mut numbers = Vec::new();
                while let Some(number) = seq.next_element()? {
                    numbers.push(number);
                }
                Ok(RawSample::List(numbers))
            }
        }

        deserializer.deserialize_any(SampleVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_numbers_are_read_and_come_back() {
        let table =
            |bytes: &[u8]| SampleBytes::Table(SampleTable::from_bytes(bytes.iter().copied()).unwrap());
        assert_eq!(SampleBytes::parse("adaptive"), Ok(SampleBytes::Adaptive));
        assert_eq!(SampleBytes::parse("paper"), Ok(SampleBytes::Table(SampleTable::PAPER)));
        assert_eq!(SampleBytes::parse("65, 67,71"), Ok(table(b"ACG")));
        assert_eq!(table(b"ACG").to_string(), "65,67,71");
        assert_eq!(serde_json::to_string(&table(b"CA")).unwrap(), "[65,67]");
        assert_eq!(serde_json::to_string(&SampleBytes::Adaptive).unwrap(), "\"adaptive\"");
    }

    #[test]
    fn invalid_byte_lists_are_explained() {
        let list = |numbers: &[i64]| SampleBytes::resolve(&RawSample::List(numbers.to_vec())).unwrap_err();
        assert!(list(&[]).contains("no byte is chosen"));
        assert!(list(&[32, 256]).contains("256 is no byte"));
        assert!(list(&[-1]).contains("-1 is no byte"));
        assert!(list(&(0..256).collect::<Vec<_>>()).contains("all bytes"));
        assert_eq!(SampleBytes::parse(" [32, 101]"), SampleBytes::parse("32,101"));
        for no_list in ["[", "[]", "[paper]", "[1,2", "1,2]"] {
            assert!(SampleBytes::parse(no_list).is_err(), "{no_list}");
        }
        assert!(SampleBytes::parse("papers").unwrap_err().contains("\"paper\""));
        assert!(SampleBytes::parse("1,x").unwrap_err().contains("0 to 255"));
    }
}
