//! Where the records of a lane end.
//!
//! TLS hands out a record when its last byte is there. On a slow line what shares a record with later frames waits for
//! them: 16 KiB take a quarter of a second at 512 kbit/s, in which nothing is read, rebuilt or granted.

use oncewire_codec::wire::take_frame;

/// The most that a record holds, by TLS.
pub const MAX_RECORD: usize = 16 << 10;
/// Frames share a record until it has so many bytes: what one costs of its own, 22 bytes, is at most a fiftieth of it.
const LEAST_RECORD: usize = 1 << 10;

/// Divides the frames of one [`Link::poll_transmit`](crate::Link::poll_transmit) into records.
///
/// A record ends with the first frame that brings it to 1 KiB, so that no frame waits for one behind it, and what is
/// longer than [`MAX_RECORD`] is divided into as few as possible of equal length. What is no frame comes as one.
pub fn records(frames: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = frames;
    std::iter::from_fn(move || {
        let (group, behind) = rest.split_at_checked(group_len(rest))?;
        rest = behind;
        (!group.is_empty()).then_some(group)
    })
    .flat_map(|group| group.chunks(group.len().div_ceil(group.len().div_ceil(MAX_RECORD).max(1)).max(1)))
}

/// Returns how many bytes the frames have that share records.
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
    fn small_frames_share_a_record_and_no_large_one_waits_for_the_next() {
        assert_eq!(lens(&frames(&[100, 1_948, 5_000, 30, 6_000, 50])), [2_048, 5_000, 6_030, 50]);
        assert_eq!(lens(&[]), Vec::<usize>::new());
    }

    #[test]
    fn what_no_record_holds_is_divided_evenly() {
        assert_eq!(lens(&frames(&[MAX_RECORD])), [MAX_RECORD]);
        assert_eq!(lens(&frames(&[100, MAX_RECORD])), [8_242, 8_242]);
        assert_eq!(lens(&frames(&[65_700, 300])), [13_140, 13_140, 13_140, 13_140, 13_140, 300]);
    }

    #[test]
    fn every_byte_is_in_one_record_whatever_it_is() {
        for bytes in [vec![0xff; 100_000], frames(&[3_000, 20_000])[..9_000].to_vec(), frames(&[9, 80_000])] {
            let all: Vec<&[u8]> = records(&bytes).collect();
            assert!(all.iter().all(|record| (1..=MAX_RECORD).contains(&record.len())), "{:?}", lens(&bytes));
            assert_eq!(all.concat(), bytes);
        }
    }
}
