//! The checksum of IP, TCP, UDP and ICMP [RFC 1071], and its update [RFC 1624].

/// A sum of 16-bit words in ones' complement.
///
/// Pieces are added in any order. A piece of odd length counts as if a zero byte followed, so only the last
/// piece of a message may be odd.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// Adds a piece of the message.
    #[must_use]
    pub fn with(self, bytes: &[u8]) -> Self {
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(self, |sum, word| sum.with_word(u64::from_be_bytes(*word)));
        let mut last = [0; 8];
        last.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
        sum.with_word(u64::from_be_bytes(last))
    }

    /// Adds one word.
    #[must_use]
    pub fn with_u16(self, word: u16) -> Self {
        self.with_word(word.into())
    }

    /// Returns the checksum: the complement of the sum.
    #[must_use]
    pub fn finish(self) -> u16 {
        !self.fold()
    }

    /// Four words at once: 2^16 is 1 in this arithmetic, so a carry goes around to the lowest bit.
    fn with_word(self, word: u64) -> Self {
        let (sum, carry) = self.0.overflowing_add(word);
        Self(sum.wrapping_add(carry.into()))
    }

    fn fold(self) -> u16 {
        let sum = (self.0 >> 32) + (self.0 & 0xffff_ffff);
        let sum = (sum >> 32) + (sum & 0xffff_ffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        let sum = (sum >> 16) + (sum & 0xffff);
        sum as u16
    }
}

/// Computes the checksum of a message; its own checksum field must be zero.
#[must_use]
pub fn compute(message: &[u8]) -> u16 {
    Sum::default().with(message).finish()
}

/// Says whether the checksum in a message is right.
#[must_use]
pub fn verify(message: &[u8]) -> bool {
    compute(message) == 0
}

/// Returns the checksum after one word of the message has changed [RFC 1624 §3, equation 3].
///
/// A checksum of UDP needs [`update_udp`].
#[must_use]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    Sum::default().with_u16(!checksum).with_u16(!old).with_u16(new).finish()
}

/// Returns the checksum after bytes at an even offset have changed to as many others.
///
/// A checksum of UDP needs [`update_udp`].
#[must_use]
pub fn update_bytes(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    let old = Sum::default().with(old).fold();
    Sum::default().with_u16(!checksum).with_u16(!old).with(new).finish()
}

/// Like [`update_bytes`], for UDP: zero stands for no checksum there [RFC 768].
#[must_use]
pub fn update_udp(checksum: u16, old: &[u8], new: &[u8]) -> u16 {
    if checksum == 0 { 0 } else { never_zero(update_bytes(checksum, old, new)) }
}

/// Returns a checksum in the form of UDP: zero is sent as its other form.
pub(crate) fn never_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_equals_the_example_of_rfc_1071() {
        let sum = Sum::default().with(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]);
        assert_eq!(sum.fold(), 0xddf2);
        assert_eq!(sum.finish(), 0x220d);
    }

    #[test]
    fn update_equals_the_example_of_rfc_1624() {
        // §4: an update by equation 2 gives 0xffff here.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
        assert_eq!(update_bytes(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0x0000);
    }

    #[test]
    fn carries_go_around_at_every_width() {
        for len in 0..64 {
            let ones = vec![0xff; len];
            let padded = if len % 2 == 1 { !0xff00_u16 } else { 0 };
            assert_eq!(compute(&ones), if len == 0 { 0xffff } else { padded }, "{len} bytes");
        }
        assert_eq!(Sum(u64::MAX).with_u16(1).finish(), !1);
    }

    #[test]
    fn udp_keeps_no_checksum_and_never_gets_zero() {
        assert_eq!(update_udp(0, &[1, 2], &[3, 4]), 0);
        assert_eq!(update_udp(0xdd2f, &[0x55, 0x55], &[0x32, 0x85]), 0xffff);
    }
}
