//! The CPU of a gateway's machine: one core, busy for the time of its work.

use std::time::Duration;

use oncewire_codec::Now;
use oncewire_codec::wire::take_frame;

/// The speed of a host. The default takes no time for anything.
///
/// `oncewire measure` prints a real machine's rates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostConfig {
    /// Plain bytes encoded a second; `None`: in no time.
    pub encode_bytes_per_s: Option<u64>,
    /// Plain bytes decoded a second; `None`: in no time.
    pub decode_bytes_per_s: Option<u64>,
    /// The time for each frame, sent or received.
    pub per_frame: Duration,
}

/// A host, and its work so far.
#[derive(Debug, Default)]
pub(super) struct Host {
    config: HostConfig,
    busy_until: Now,
    worked: Duration,
}

impl Host {
    pub(super) fn new(config: HostConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Whether some work takes time here.
    pub(super) fn is_modelled(&self) -> bool {
        self.config != HostConfig::default()
    }

    /// Whether earlier work is not done yet.
    pub(super) fn is_busy(&self, now: Now) -> bool {
        self.busy_until > now
    }

    /// Returns the end of all work so far, or the time itself.
    pub(super) fn free_at(&self, now: Now) -> Now {
        self.busy_until.max(now)
    }

    /// Takes the encoding of plain bytes into frames.
    pub(super) fn encode(&mut self, plain: u64, frames: &[u8], now: Now) {
        self.work(plain, self.config.encode_bytes_per_s, count_frames(frames), now);
    }

    /// Takes the arrival of frames.
    pub(super) fn receive(&mut self, frames: u32, now: Now) {
        self.work(0, None, frames, now);
    }

    /// Takes the decoding of plain bytes.
    pub(super) fn decode(&mut self, plain: u64, now: Now) {
        self.work(plain, self.config.decode_bytes_per_s, 0, now);
    }

    /// Returns the time of all work.
    pub(super) fn worked(&self) -> Duration {
        self.worked
    }

    fn work(&mut self, bytes: u64, bytes_per_s: Option<u64>, frames: u32, now: Now) {
        let of_bytes = bytes_per_s.map_or(0, |rate| {
            let nanos = u128::from(bytes) * 1_000_000_000 / u128::from(rate.max(1));
            u64::try_from(nanos).unwrap_or(u64::MAX)
        });
        let time = Duration::from_nanos(of_bytes) + self.config.per_frame * frames;
        self.busy_until = self.free_at(now) + time;
        self.worked += time;
    }
}

/// Returns the number of whole frames at the front of some bytes.
pub(super) fn count_frames(mut frames: &[u8]) -> u32 {
    let mut count = 0;
    while let Ok(Some((.., used))) = take_frame(frames) {
        count += 1;
        frames = frames.get(used..).unwrap_or_default();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_queues_behind_earlier_work() {
        let config = HostConfig { encode_bytes_per_s: Some(1_000_000), ..HostConfig::default() };
        let mut host = Host::new(config);
        let at = Now::from_millis;
        host.encode(2_000, &[], at(10));
        host.encode(1_000, &[], at(11));
        assert_eq!((host.free_at(at(11)), host.worked()), (at(13), at(3)));
        host.decode(1_000_000, at(11));
        assert_eq!(host.free_at(at(20)), at(20), "decoding takes no time here");
        assert!(host.is_busy(at(12)) && !host.is_busy(at(13)));
    }

    #[test]
    fn frames_cost_by_their_number() {
        let mut host = Host::new(HostConfig { per_frame: Duration::from_millis(2), ..HostConfig::default() });
        host.encode(100, &[7, 1, 0, 7, 2, 0, 0], Now::ZERO);
        host.receive(3, Now::ZERO);
        assert_eq!(host.worked(), Duration::from_millis(10));
    }
}
