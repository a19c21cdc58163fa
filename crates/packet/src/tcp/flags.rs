//! Flags of TCP.

use std::fmt;
use std::ops::BitOr;

/// A set of flags.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TcpFlags(u16);

impl TcpFlags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The last byte precedes it.
    pub const FIN: Self = Self(1);
    /// Opens a connection.
    pub const SYN: Self = Self(1 << 1);
    /// Breaks a connection.
    pub const RST: Self = Self(1 << 2);
    /// The receiver is to hand over all received bytes.
    pub const PSH: Self = Self(1 << 3);
    /// The acknowledgment counts.
    pub const ACK: Self = Self(1 << 4);
    /// The urgent pointer counts.
    pub const URG: Self = Self(1 << 5);
    /// Echoes a mark of congestion [RFC 3168].
    pub const ECE: Self = Self(1 << 6);
    /// The congestion window was reduced [RFC 3168].
    pub const CWR: Self = Self(1 << 7);
    /// Accurate echo of congestion [RFC 9768], NS of RFC 3540.
    pub const AE: Self = Self(1 << 8);

    /// Returns the flags of the header's thirteenth and fourteenth byte; bits without a name are left out.
    #[must_use]
    pub const fn from_bits(bits: u16) -> Self {
        Self(bits & NAMED)
    }

    /// Returns the flags as they stand in the header's thirteenth and fourteenth byte.
    #[must_use]
    pub const fn bits(self) -> u16 {
        self.0
    }

    /// Says whether all flags of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Returns the flags set in either, as `|` does, in constants, too.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Returns the flags set in both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOr for TcpFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

impl fmt::Debug for TcpFlags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR", "AE"];
        let set = (0..).zip(names).filter(|(at, _)| (self.0 >> at) & 1 == 1).map(|(_, name)| name);
        f.write_str("TcpFlags(")?;
        for (count, name) in set.enumerate() {
            write!(f, "{}{name}", if count > 0 { " | " } else { "" })?;
        }
        f.write_str(")")
    }
}

const NAMED: u16 = 0x1ff;
