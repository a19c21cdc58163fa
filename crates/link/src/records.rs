//! The division of a lane's bytes into TLS records.
//!
//! TLS hands out a record with its last byte. On a slow line early frames wait for later ones of the same record: 16
//! KiB take a quarter of a second at 512 kbit/s, without any reading, rebuilding or granting.

use oncewire_codec::wire::take_frame;

/// The most bytes of a record, by TLS.
pub const MAX_RECORD: usize = 16 << 10;
/// Frames share a record up to so many bytes: its overhead of 22 bytes is at most a fiftieth of it.
const LEAST_RECORD: usize = 1 << 10;

/// Divides the frames of one [`Link::poll_transmit`](crate::Link::poll_transmit) into records.
///
/// A record ends with the first frame up to 1 KiB, so no frame waits for one behind it, and more than [`MAX_RECORD`]
/// is divided into as few as possible of equal length. Bytes without frames come as one.
pub fn records(frames: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let (group, behind) = rest.split_at_checked(group_len(rest))?;
        rest = behind;
        (!group.is_empty()).then_some(group)
    })
    .flat_map(|group| group.chunks(group.len().div_ceil(group.len().div_ceil(MAX_RECORD).max(1)).max(1)))
}

/// Returns the bytes of the frames in one record.
fn group_len(frames: &[u8]) -> usize {
    let mut len = 0;
    while len < LEAST_RECORD {
        match take_frame(frames.get(len..).unwrap_or_default()) {
            Ok(Some((.., used))) => len += used,
            _ => return frames.len(),
        }
    }
    len
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Frames of these lengths, of one type.
    fn frames(lens: &[usize]) -> Vec<u8> {
        let mut out = Vec::new();
        for &len in lens {
            let body =
                [len - 2, len - 3, len - 4].into_iter().find(|body| header(*body) + body == len).unwrap();
            out.push(7);
            let mut left = body;
            while left >= 128 {
                out.push(left as u8 | 128);
                left >>= 7;
            }
            out.push(left as u8);
            out.resize(out.len() + body, 1);
        }
        out
    }

    fn header(body: usize) -> usize {
        1 + usize::try_from(body.max(1).ilog2() / 7 + 1).unwrap()
    }

    fn lens(bytes: &[u8]) -> Vec<usize> {
        records(bytes).map(<[u8]>::len).collect()
    }

    #[test]
    fn small_frames_share_a_record_and_large_ones_never_wait() {
        assert_eq!(lens(&frames(&[100, 1_948, 5_000, 30, 6_000, 50])), [2_048, 5_000, 6_030, 50]);
        assert_eq!(lens(&[]), Vec::<usize>::new());
    }

    #[test]
    fn bytes_beyond_a_record_are_divided_evenly() {
        assert_eq!(lens(&frames(&[MAX_RECORD])), [MAX_RECORD]);
        assert_eq!(lens(&frames(&[100, MAX_RECORD])), [8_242, 8_242]);
        assert_eq!(lens(&frames(&[65_700, 300])), [13_140, 13_140, 13_140, 13_140, 13_140, 300]);
    }

    #[test]
    fn every_byte_is_in_one_record() {
        for bytes in [vec![0xff; 100_000], frames(&[3_000, 20_000])[..9_000].to_vec(), frames(&[9, 80_000])] {
            let all: Vec<&[u8]> = records(&bytes).collect();
            assert!(all.iter().all(|record| (1..=MAX_RECORD).contains(&record.len())), "{:?}", lens(&bytes));
            assert_eq!(all.concat(), bytes);
        }
    }
}
