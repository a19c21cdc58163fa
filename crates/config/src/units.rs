//! Sizes, rates and times of the configuration, written for people.
//!
//! | quantity | units | bare integer |
//! |---|---|---|
//! | size | `B`; `kB` `MB` `GB` `TB` (powers of 1000); `KiB` `MiB` `GiB` `TiB` (powers of 1024) | bytes |
//! | rate | `bit/s` `kbit/s` `Mbit/s` `Gbit/s` (powers of 1000) | an error |
//! | time | `ms` `s` `min` `h` `d` | an error, except 0 |
//!
//! A quantity is digits, at most one space, and a unit in its exact case (`kB` and not `KB`: a typing error
//! must not cost a factor of 1.024). Fractions are errors.

use std::fmt;
use std::time::Duration;

use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size(pub u64);

/// A number of bits per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rate(pub u64);

/// A length of time, exact to the millisecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Time(pub Duration);

/// Why a text is not a quantity; the message gives an example.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UnitError {
    /// The text does not start with digits.
    #[error("{0:?} does not start with a number; write for example {1:?}")]
    NoNumber(String, &'static str),
    /// The number has a fraction, or a sign.
    #[error("{0:?} is not a whole number; write for example {1:?}")]
    NotWhole(String, &'static str),
    /// The number has a fraction, and is a whole one in a smaller unit.
    #[error("{0:?} is not a whole number; write \"{1}\"")]
    Fraction(String, String),
    /// The unit is missing.
    #[error("{0:?} has no unit; write for example {1:?}")]
    NoUnit(String, &'static str),
    /// The unit is unknown.
    #[error("unknown unit {0:?}{2}; units are {1}")]
    UnknownUnit(String, &'static str, Meant),
    /// The number does not fit into 64 bits.
    #[error("{0:?} is too large")]
    TooLarge(String),
}

/// The probably intended unit, if one is known with other capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant(Vec<&'static str>);

impl fmt::Display for Meant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, "; did you mean {:?}?", self.0.join("\" or \"")) }
    }
}

/// One kind of quantity: its units with their factors, how they are listed, and an example.
struct Kind {
    units: &'static [(&'static str, u64)],
    listed: &'static str,
    example: &'static str,
}

impl Kind {
    /// Reads a quantity; the factor of a missing unit is `bare`, none if a unit is required.
    fn parse(&self, text: &str, bare: Option<u64>) -> Result<u64, UnitError> {
        let digits = text.bytes().take_while(u8::is_ascii_digit).count();
        let (number, rest) = text.split_at(digits);
        if number.is_empty() {
            return Err(match text.starts_with(['-', '+', '.']) {
                true => self.not_whole(text),
                false => UnitError::NoNumber(text.to_owned(), self.example),
            });
        }
        if rest.starts_with(['.', ',', '_']) {
            return Err(self.not_whole(text));
        }
        let unit = rest.strip_prefix(' ').unwrap_or(rest);
        let factor = match (unit, bare) {
            ("", _) if rest == " " => return Err(UnitError::NoUnit(text.to_owned(), self.example)),
            ("", Some(factor)) => factor,
            ("", None) => return Err(UnitError::NoUnit(text.to_owned(), self.example)),
            (unit, _) => self.factor(unit)?,
        };
        let number: u64 = number.parse().map_err(|_| UnitError::TooLarge(text.to_owned()))?;
        number.checked_mul(factor).ok_or_else(|| UnitError::TooLarge(text.to_owned()))
    }

    /// Describes a fraction, with the same quantity as a whole number of a smaller unit.
    fn not_whole(&self, text: &str) -> UnitError {
        match self.in_smaller_unit(text) {
            Some(whole) => UnitError::Fraction(text.to_owned(), whole),
            None => UnitError::NotWhole(text.to_owned(), self.example),
        }
    }

    /// Writes a fractional quantity as a whole number of the largest possible unit of its kind.
    fn in_smaller_unit(&self, text: &str) -> Option<String> {
        let end = text.find(|char: char| !char.is_ascii_digit() && !".,".contains(char))?;
        let (number, unit) = text.split_at(end);
        let (whole, fraction) = number.split_once(['.', ','])?;
        // With three digits a comma may stand between thousands.
        if fraction.len() > MOST_DECIMALS || (number.contains(',') && fraction.len() == 3) {
            return None;
        }
        let unit = unit.trim();
        let (_, factor) = self.units.iter().find(|(name, _)| *name == unit)?;
        let decimals = u32::try_from(fraction.len()).ok()?;
        let scaled = format!("{whole}{fraction}").parse::<u128>().ok()? * u128::from(*factor);
        let scale = 10_u128.checked_pow(decimals)?;
        let amount = u64::try_from(scaled / scale).ok().filter(|_| scaled % scale == 0)?;
        let of_kind = |name: &str| name == "B" || name.ends_with("iB") == unit.ends_with("iB");
        let smaller = self.units.iter().filter(|(name, size)| size < factor && of_kind(name));
        let (name, size) = smaller.filter(|(_, size)| amount % size == 0).max_by_key(|(_, size)| *size)?;
        Some(format!("{} {name}", amount / size))
    }

    fn factor(&self, unit: &str) -> Result<u64, UnitError> {
        if let Some((_, factor)) = self.units.iter().find(|(name, _)| *name == unit) {
            return Ok(*factor);
        }
        let alike =
            |name: &str| name.eq_ignore_ascii_case(unit) || name.eq_ignore_ascii_case(&format!("{unit}B"));
        let meant = self.units.iter().map(|(name, _)| *name).filter(|name| alike(name)).collect();
        Err(UnitError::UnknownUnit(unit.to_owned(), self.listed, Meant(meant)))
    }
}

impl std::str::FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        SIZE.parse(text, Some(1)).map(Self)
    }
}

impl std::str::FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        RATE.parse(text, None).map(Self)
    }
}

impl std::str::FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        if text == "0" {
            return Ok(Self(Duration::ZERO));
        }
        TIME.parse(text, None).map(|millis| Self(Duration::from_millis(millis)))
    }
}

impl Size {
    /// Writes the exact number, in the largest binary unit dividing it: `2049 MiB`.
    pub(super) fn exact(self) -> String {
        let binary = SIZE.units.iter().filter(|(name, factor)| name.contains('i') && *factor <= self.0);
        let (unit, factor) = binary
            .filter(|(_, factor)| self.0.is_multiple_of(*factor))
            .max_by_key(|(_, factor)| *factor)
            .copied()
            .unwrap_or(("B", 1));
        format!("{} {unit}", self.0 / factor)
    }
}

impl fmt::Display for Size {
    /// Writes the number in its largest binary unit not above it, with one digit after the point unless it is
    /// exact: `64 MiB`, `1.5 GiB`, `999 B`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let binary = SIZE
            .units
            .iter()
            .filter(|(name, factor)| (name.contains('i') || *factor == 1) && *factor <= self.0);
        let (unit, factor) = binary.max_by_key(|(_, factor)| *factor).copied().unwrap_or(("B", 1));
        f.pad(&scaled(self.0, factor, unit))
    }
}

impl fmt::Display for Rate {
    /// Writes the number in its largest unit not above it: `20 Mbit/s`, `1.5 Gbit/s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit =
            RATE.units.iter().filter(|(_, factor)| *factor <= self.0).max_by_key(|(_, factor)| *factor);
        let (unit, factor) = unit.copied().unwrap_or(("bit/s", 1));
        f.pad(&scaled(self.0, factor, unit))
    }
}

impl fmt::Display for Time {
    /// Writes the length in its largest dividing unit: `2 min`, `250 ms`, `0 s`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millis = u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX);
        if millis == 0 {
            return f.pad("0 s");
        }
        let unit = TIME.units.iter().filter(|(_, factor)| millis.is_multiple_of(*factor));
        let (unit, factor) = unit.max_by_key(|(_, factor)| *factor).copied().unwrap_or(("ms", 1));
        f.pad(&format!("{} {unit}", millis / factor))
    }
}

/// Writes a fractional quantity of any kind as a whole number of a smaller unit: `1.9 Mbit/s` as `1900
/// kbit/s`.
pub(super) fn in_whole_units(text: &str) -> Option<String> {
    [SIZE, RATE, TIME].iter().find_map(|kind| kind.in_smaller_unit(text))
}

/// Writes `number / factor unit` with one digit after the point, or none when it is exact.
fn scaled(number: u64, factor: u64, unit: &str) -> String {
    if number.is_multiple_of(factor) {
        return format!("{} {unit}", number / factor);
    }
    // For people: the error of a double is far below the digit shown.
    format!("{:.1} {unit}", number as f64 / factor as f64)
}

/// Reads a quantity from a TOML string or integer.
struct QuantityVisitor<T> {
    expecting: &'static str,
    parse: fn(&str) -> Result<T, UnitError>,
    /// Whether an integer without unit is one.
    bare: bool,
}

impl<T> Visitor<'_> for QuantityVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expecting)
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<T, E> {
        (self.parse)(text).map_err(E::custom)
    }

    fn visit_i64<E: de::Error>(self, number: i64) -> Result<T, E> {
        if !self.bare && number != 0 {
            return Err(E::custom(format_args!("{number} has no unit; expected {}", self.expecting)));
        }
        (self.parse)(&number.to_string()).map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a size such as \"64 MiB\" or a number of bytes";
        deserializer.deserialize_any(QuantityVisitor { expecting, parse: str::parse::<Self>, bare: true })
    }
}

impl<'de> Deserialize<'de> for Rate {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a rate such as \"20 Mbit/s\"";
        deserializer.deserialize_any(QuantityVisitor { expecting, parse: str::parse::<Self>, bare: false })
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let expecting = "a time such as \"250 ms\" or \"2 min\"";
        deserializer.deserialize_any(QuantityVisitor { expecting, parse: str::parse::<Self>, bare: false })
    }
}

/// Digits understood after the point, for a proposal.
const MOST_DECIMALS: usize = 9;

const SIZE: Kind = Kind {
    units: &[
        ("B", 1),
        ("kB", 1000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
    ],
    listed: "B, kB, MB, GB, TB, KiB, MiB, GiB and TiB",
    example: "64 MiB",
};

const RATE: Kind = Kind {
    units: &[("bit/s", 1), ("kbit/s", 1000), ("Mbit/s", 1_000_000), ("Gbit/s", 1_000_000_000)],
    listed: "bit/s, kbit/s, Mbit/s and Gbit/s",
    example: "20 Mbit/s",
};

const TIME: Kind = Kind {
    units: &[("ms", 1), ("s", 1000), ("min", 60_000), ("h", 3_600_000), ("d", 86_400_000)],
    listed: "ms, s, min, h and d",
    example: "2 min",
};

#[cfg(test)]
mod tests {
    use super::*;

    fn size(text: &str) -> Result<u64, String> {
        text.parse::<Size>().map(|size| size.0).map_err(|error| error.to_string())
    }

    fn millis(text: &str) -> Result<u128, String> {
        text.parse::<Time>().map(|time| time.0.as_millis()).map_err(|error| error.to_string())
    }

    #[test]
    fn sizes_are_read_in_powers_of_1000_and_1024() {
        let cases = [
            ("0", 0),
            ("4096", 4096),
            ("4096B", 4096),
            ("1 kB", 1000),
            ("1 KiB", 1024),
            ("3MB", 3_000_000),
            ("64 MiB", 64 << 20),
            ("2 GB", 2_000_000_000),
            ("4 GiB", 4 << 30),
            ("1 TB", 1_000_000_000_000),
            ("1 TiB", 1 << 40),
        ];
        for (text, bytes) in cases {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn malformed_size_is_explained() {
        let cases = [
            ("", "does not start with a number"),
            ("lots", "does not start with a number"),
            (" 4 GiB", "does not start with a number"),
            ("-4 GiB", "not a whole number"),
            ("1.5 GiB", "not a whole number"),
            ("1_000", "not a whole number"),
            ("4  GiB", "unknown unit \" GiB\""),
            ("4 ", "has no unit"),
            ("4 KB", "did you mean \"kB\"?"),
            ("4 gib", "did you mean \"GiB\"?"),
            ("4 M", "did you mean \"MB\"?"),
            ("4 furlongs", "units are B, kB"),
            ("99999999999999999999", "too large"),
            ("17000000 TiB", "too large"),
        ];
        for (text, message) in cases {
            let error = size(text).unwrap_err();
            assert!(error.contains(message), "{text:?}: {error}");
        }
    }

    #[test]
    fn times_need_a_unit_unless_zero() {
        assert_eq!(millis("250 ms"), Ok(250));
        assert_eq!(millis("2 min"), Ok(120_000));
        assert_eq!(millis("10s"), Ok(10_000));
        assert_eq!(millis("1 h"), Ok(3_600_000));
        assert_eq!(millis("7 d"), Ok(604_800_000));
        assert_eq!(millis("0"), Ok(0));
        assert!(millis("10").unwrap_err().contains("no unit"));
        assert!(millis("10 m").unwrap_err().contains("units are ms, s, min"));
    }

    #[test]
    fn rates_need_a_unit() {
        assert_eq!("20 Mbit/s".parse(), Ok(Rate(20_000_000)));
        assert_eq!("9600 bit/s".parse(), Ok(Rate(9600)));
        assert!("20".parse::<Rate>().is_err());
        assert!("20 MB/s".parse::<Rate>().is_err());
    }

    #[test]
    fn quantities_are_shown_in_fitting_units() {
        assert_eq!(Size(0).to_string(), "0 B");
        assert_eq!(Size(999).to_string(), "999 B");
        assert_eq!(Size(64 << 20).to_string(), "64 MiB");
        assert_eq!(Size((3 << 30) / 2).to_string(), "1.5 GiB");
        assert_eq!(Rate(20_000_000).to_string(), "20 Mbit/s");
        assert_eq!(Time(Duration::from_secs(120)).to_string(), "2 min");
        assert_eq!(Time(Duration::from_millis(1500)).to_string(), "1500 ms");
        assert_eq!(Time(Duration::ZERO).to_string(), "0 s");
    }
}
