//! Marker bytes of SAMPLEBYTE [EndRE §5.1.4].

mod adapt;

use std::fmt;
use std::str::FromStr;

pub use adapt::Adaptation;

/// The set of marker bytes: at least one of them, and not all.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SampleTable {
    /// Bit `byte % 64` of word `byte / 64` is set if `byte` is chosen.
    words: [u64; 4],
}

impl SampleTable {
    /// The paper's, trained on the traffic of a company's network: 0, 32, 48, 101, 105, 115, 116 and 255.
    pub const PAPER: Self = {
        let mut words = [1, 0, 0, 1 << 63];
        words[0] |= 1 << 32 | 1 << 48;
        words[1] |= 1 << (101 - 64) | 1 << (105 - 64) | 1 << (115 - 64) | 1 << (116 - 64);
        Self { words }
    };

    /// Creates the table of `bytes`, in any order and as often as you like.
    ///
    /// # Errors
    /// None or all of the byte values: nothing would be found, or every position be a marker.
    pub fn from_bytes(bytes: impl IntoIterator<Item = u8>) -> Result<Self, SampleTableError> {
        let mut words = [0u64; 4];
        for byte in bytes {
            if let Some(word) = words.get_mut(usize::from(byte / 64)) {
                *word |= 1 << (byte % 64);
            }
        }
        match words {
            [0, 0, 0, 0] => Err(SampleTableError::Empty),
            [u64::MAX, u64::MAX, u64::MAX, u64::MAX] => Err(SampleTableError::Full),
            words => Ok(Self { words }),
        }
    }

    /// Returns whether `byte` is chosen.
    #[inline(always)]
    pub fn contains(&self, byte: u8) -> bool {
        self.words.get(usize::from(byte / 64)).is_some_and(|word| word >> (byte % 64) & 1 == 1)
    }

    /// Returns the chosen bytes in ascending order.
    pub fn bytes(&self) -> impl Iterator<Item = u8> {
        let table = *self;
        (0..=u8::MAX).filter(move |&byte| table.contains(byte))
    }

    /// Returns how many bytes are chosen, from 1 to 255.
    #[expect(clippy::len_without_is_empty, reason = "no table is empty")]
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
}

impl Default for SampleTable {
    /// Returns [`Self::PAPER`].
    fn default() -> Self {
        Self::PAPER
    }
}

impl fmt::Display for SampleTable {
    /// Writes the chosen bytes as decimal numbers: `0,32,48`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let numbers: Vec<String> = self.bytes().map(|byte| byte.to_string()).collect();
        f.pad(&numbers.join(","))
    }
}

impl fmt::Debug for SampleTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SampleTable({self})")
    }
}

impl FromStr for SampleTable {
    type Err = SampleTableError;

    /// Reads decimal numbers with commas between them; spaces around a number are ignored.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim().is_empty() {
            return Err(SampleTableError::Empty);
        }
        let number = |text: &str| text.trim().parse::<u8>().map_err(|_| SampleTableError::NoByte);
        Self::from_bytes(text.split(',').map(number).collect::<Result<Vec<u8>, _>>()?)
    }
}

/// Why something is no [`SampleTable`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SampleTableError {
    /// No byte is chosen.
    Empty,
    /// All 256 bytes are chosen.
    Full,
    /// Something between the commas is no number from 0 to 255.
    NoByte,
}

impl fmt::Display for SampleTableError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "no byte is chosen, so nothing would be found",
            Self::Full => "all bytes are chosen, which chooses nothing",
            Self::NoByte => "a byte is a number from 0 to 255, with commas between them: 0,32,48",
        })
    }
}

impl std::error::Error for SampleTableError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_survives_being_written_and_read() {
        assert_eq!(SampleTable::PAPER.to_string(), "0,32,48,101,105,115,116,255");
        assert_eq!(SampleTable::PAPER.to_string().parse(), Ok(SampleTable::PAPER));
        assert_eq!(SampleTable::PAPER.len(), 8);
        for byte in 0..=u8::MAX {
            let table = SampleTable::from_bytes([byte, byte]).unwrap();
            assert!(table.bytes().eq([byte]), "{table}");
            assert_eq!(table.to_string().parse(), Ok(table));
            let others = SampleTable::from_bytes((0..=u8::MAX).filter(|&other| other != byte)).unwrap();
            assert_eq!((others.len(), others.contains(byte)), (255, false));
            assert_eq!(others.to_string().parse(), Ok(others));
        }
    }

    #[test]
    fn order_spaces_and_repetitions_do_not_matter() {
        assert_eq!(" 48, 0 ,32,32".parse(), SampleTable::from_bytes([0, 32, 48]));
    }

    #[test]
    fn invalid_table_is_an_error() {
        assert_eq!(SampleTable::from_bytes([]), Err(SampleTableError::Empty));
        assert_eq!(SampleTable::from_bytes(0..=u8::MAX), Err(SampleTableError::Full));
        for (text, error) in [
            ("", SampleTableError::Empty),
            ("  ", SampleTableError::Empty),
            ("256", SampleTableError::NoByte),
            ("-1", SampleTableError::NoByte),
            ("0,,1", SampleTableError::NoByte),
            ("0,1,", SampleTableError::NoByte),
            ("0 1", SampleTableError::NoByte),
            ("x", SampleTableError::NoByte),
        ] {
            assert_eq!(text.parse::<SampleTable>(), Err(error), "{text:?}");
        }
    }
}
