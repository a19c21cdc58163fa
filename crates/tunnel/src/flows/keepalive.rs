//! Keep-alive of the application's own host, mirrored at the far end.
//!
//! The kernel answers a host's probes here, so they do not reach the far host, possibly gone. The far gateway
//! learns their interval and probes its host as often. Probes are segments in an otherwise silent connection;
//! our own bring answers of the same look, at a known rate.

use std::convert::Infallible;
use std::future::pending;
use std::time::Duration;

use oncewire_codec::wire::MAX_KEEPALIVE;
use oncewire_host::sockets;
use oncewire_sys::connections::{self, Traffic};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep};

use super::Flow;

/// Watches for probes of the application's host and reports them to the far side; probes the host at the far
/// host's interval.
pub(super) async fn mirror(stream: &TcpStream, flow: &Flow) -> Infallible {
    let own = SockRef::from(stream);
    // Probes unwanted here are none of the far side's either.
    let Some(most) = own.keepalive().is_ok_and(|on| on).then(|| own.tcp_keepalive_time().ok()).flatten()
    else {
        return pending().await;
    };
    let (mut silence, mut told, mut applied, mut wait) = (None::<Silence>, None, most, FIRST_LOOK);
    loop {
        sleep(wait).await;
        wait = (wait * 2).min(LONGEST_WAIT);
        let wanted = flow.far_keepalive().map_or(most, |far| far.min(most));
        if wanted != applied {
            sockets::probe_after(stream, wanted, applied, most);
            applied = wanted;
        }
        let (Ok(Some(seen)), Ok(own)) = (connections::traffic(stream), own.tcp_keepalive_time()) else {
            return pending().await;
        };
        let now = Instant::now();
        match silence.as_ref().filter(|silence| silence.goes_on(&seen, own)) {
            None => silence = Some(Silence { since: now, seen, own }),
            Some(silence) => {
                let lasted = now - silence.since;
                let interval = silence.interval(seen.segments_received, lasted).map(in_seconds);
                if let Some(seconds) = news(interval, told, lasted) {
                    told = Some(seconds).filter(|seconds| *seconds > 0);
                    flow.tell_keepalive(seconds);
                }
            }
        }
    }
}

/// A time with nothing but probes and their answers.
struct Silence {
    since: Instant,
    /// Traffic at its beginning.
    seen: Traffic,
    /// The silence before a probe of ours.
    own: Duration,
}

impl Silence {
    /// Whether it goes on, by the traffic since, with the same probes of ours.
    fn goes_on(&self, seen: &Traffic, own: Duration) -> bool {
        let only_segments = Traffic { segments_received: self.seen.segments_received, ..*seen };
        only_segments == self.seen && !seen.is_pending && own == self.own
    }

    /// Returns the other end's probing interval; none if it does not probe, to present knowledge.
    fn interval(&self, segments_received: u32, lasted: Duration) -> Option<Duration> {
        let came = segments_received.wrapping_sub(self.seen.segments_received);
        // The answers to our probes, and one late acknowledgement.
        let ours = lasted.as_secs_f64() / self.own.as_secs_f64().max(1.0);
        let probes = came.saturating_sub(ours as u32 + 1);
        (probes >= LEAST_PROBES).then(|| lasted / probes)
    }
}

fn in_seconds(interval: Duration) -> u16 {
    let seconds = interval.as_secs_f64().ceil().clamp(1.0, MAX_KEEPALIVE.into());
    seconds as u16
}

/// Returns the interval to report: one different enough from the last report, with precision growing over
/// time, or 0 if no probe came for several intervals.
fn news(seen: Option<u16>, told: Option<u16>, lasted: Duration) -> Option<u16> {
    match (seen.map(u32::from), told.map(u32::from)) {
        (Some(_), None) => seen,
        (Some(seconds), Some(told)) => seen.filter(|_| seconds.abs_diff(told) > (told / 4).max(1)),
        (None, Some(told)) => (lasted >= Duration::from_secs(told.into()) * SEVERAL).then_some(0),
        (None, None) => None,
    }
}

/// So many probes would have come.
const SEVERAL: u32 = 5;

/// Doubled from look to look: most flows end before the first.
const FIRST_LOOK: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(15);

/// One alone may be anything.
const LEAST_PROBES: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const HOURS: Duration = Duration::from_secs(7200);
    const MINUTE: Duration = Duration::from_secs(60);

    fn silence(own: Duration) -> Silence {
        Silence { since: Instant::now(), seen: Traffic { segments_received: 100, ..Traffic::default() }, own }
    }

    /// The interval reported after so many minutes with so many segments each.
    fn told(own: Duration, minutes: u32, each: u32) -> Option<u16> {
        silence(own).interval(100 + minutes * each, MINUTE * minutes).map(in_seconds)
    }

    #[test]
    fn interval_is_close_after_some_probes() {
        assert_eq!(told(HOURS, 2, 1), None);
        assert_eq!(told(HOURS, 3, 1), Some(90));
        assert_eq!(told(HOURS, 10, 1), Some(67));
        assert_eq!(told(HOURS, 60, 1), Some(62));
    }

    #[test]
    fn answers_to_our_own_probes_are_no_probes() {
        assert_eq!(told(MINUTE, 60, 1), None);
        assert_eq!(told(MINUTE, 60, 2), Some(62), "the other end probes as often");
        assert_eq!(told(HOURS, 600, 0), None);
    }

    #[test]
    fn anything_but_segments_ends_a_silence() {
        let silence = silence(HOURS);
        let seen = Traffic { segments_received: 107, ..Traffic::default() };
        assert!(silence.goes_on(&seen, HOURS));
        assert!(!silence.goes_on(&seen, MINUTE));
        for other in [
            Traffic { bytes_received: 1, ..seen },
            Traffic { data_segments_sent: 1, ..seen },
            Traffic { is_pending: true, ..seen },
            Traffic { window: 1, ..seen },
        ] {
            assert!(!silence.goes_on(&other, HOURS), "{other:?}");
        }
    }

    #[test]
    fn only_a_changed_interval_is_reported() {
        let told = |seen, told| news(seen, told, MINUTE);
        assert_eq!([told(Some(60), None), told(Some(60), Some(90))], [Some(60); 2]);
        assert_eq!([told(Some(90), Some(60)), told(Some(1), Some(3))], [Some(90), Some(1)]);
        assert_eq!([told(Some(62), Some(60)), told(Some(2), Some(1)), told(Some(60), Some(75))], [None; 3]);
    }

    #[test]
    fn missing_probes_are_reported_as_ended() {
        assert_eq!([news(None, Some(12), MINUTE), news(None, Some(13), MINUTE)], [Some(0), None]);
        assert_eq!(news(None, None, HOURS), None);
    }
}
