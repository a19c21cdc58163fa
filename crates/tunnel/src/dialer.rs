//! The dialler: as many lanes to a peer as its link wants.
//!
//! It never gives up.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout_at};

use oncewire_codec::wire::{LaneId, LaneRole};
use oncewire_host::tasks::Tasks;
use oncewire_report::LinkState;

use super::lane::tls_tcp::{DIAL_LIMIT, DialError, Dialling, TlsTcp};
use super::lane::{self, Joined};
use super::peer::{Peer, ROLES, role_index};

/// Dials a peer until it ends.
pub async fn run(peer: Arc<Peer>, dialling: Dialling, tasks: Arc<Tasks>) {
    let dialling = Arc::new(dialling);
    let pace = Pace { is_found: peer.settings.found, ..Pace::default() };
    let mut dialler = Dialler { dials: JoinSet::new(), in_progress: [0; 3], pace };
    while !peer.has_ended() {
        if peer.dials.take_stable() {
            dialler.pace.lived_on();
        }
        if peer.dials.take_short_lived() > 0 {
            dialler.pace.failed(false);
        }
        dialler.start_wanted(&peer, &dialling);
        let retry_at = dialler.pace.retry_at;
        tokio::select! {
            () = peer.dials.wanted() => {}
            () = tokio::time::sleep_until(retry_at.unwrap_or_else(Instant::now)), if retry_at.is_some() => {
                dialler.pace.retry_at = None;
            }
            Some(ended) = dialler.dials.join_next(), if !dialler.dials.is_empty() => {
                match dialler.ended(ended) {
                    Some(Ok(joined)) => {
                        dialler.pace.joined();
                        tasks.spawn(lane::run(Arc::clone(&peer), joined));
                    }
                    Some(Err(error)) => dialler.pace.report(&peer, &error),
                    None => {}
                }
            }
        }
    }
}

type Dialled = (LaneRole, Result<Joined<TlsTcp>, DialError>);

struct Dialler {
    dials: JoinSet<Dialled>,
    in_progress: [u32; 3],
    pace: Pace,
}

impl Dialler {
    /// Takes a dial off the count; none if it panicked (a failure like any other).
    fn ended(&mut self, ended: Result<Dialled, JoinError>) -> Option<Result<Joined<TlsTcp>, DialError>> {
        let Ok((role, result)) = ended else {
            // Its role is unknown.
            self.in_progress = [0; 3];
            self.pace.failed(false);
            return None;
        };
        let count = &mut self.in_progress[role_index(role)];
        *count = count.saturating_sub(1);
        Some(result)
    }

    fn start_wanted(&mut self, peer: &Arc<Peer>, dialling: &Arc<Dialling>) {
        let (mut wanted, lanes) = peer.lanes_wanted();
        if lanes == 0 && wanted == [0; 3] {
            wanted[role_index(LaneRole::Control)] = 1;
        }
        for role in ROLES {
            let index = role_index(role);
            while self.in_progress[index] < wanted[index] && self.dials.len() < self.pace.at_once() {
                self.in_progress[index] += 1;
                let (peer, dialling) = (Arc::clone(peer), Arc::clone(dialling));
                self.dials.spawn(async move { (role, dial(&peer, &dialling, role).await) });
            }
        }
    }
}

async fn dial(
    peer: &Arc<Peer>,
    dialling: &Arc<Dialling>,
    role: LaneRole,
) -> Result<Joined<TlsTcp>, DialError> {
    let end = Instant::now() + DIAL_LIMIT;
    let heard = dialling.dial(&peer.wire, end).await?;
    let answering = lane::answer_hello(peer, heard, LaneId(random()), role);
    let Ok(joined) = timeout_at(end, answering).await else {
        return Err(DialError::TimedOut { address: dialling.address.clone() });
    };
    joined
        .inspect(|joined| {
            joined.prepare_for_role(&dialling.options);
            peer.dials.note_address(joined.address());
        })
        .map_err(|source| DialError::Hello { address: dialling.address.clone(), source })
}

/// When the next attempt may begin.
#[derive(Default)]
struct Pace {
    failures: u32,
    retry_at: Option<Instant>,
    /// The last outcome is a joined lane. It may end at once: a peer can refuse it only after the hellos.
    is_joined: bool,
    last_reason: String,
    /// A discovered peer is about to discover us, and refuses us only until then.
    is_found: bool,
}

impl Pace {
    /// While attempts fail, one at a time; none before the wait is over.
    fn at_once(&self) -> usize {
        match (self.retry_at, self.failures) {
            (Some(_), _) => 0,
            (None, 0) => MAX_DIALS,
            (None, _) if self.is_joined => MAX_DIALS,
            (None, _) => 1,
        }
    }

    /// A lane joined: the others need not come one by one. The failures count until it proves stable.
    fn joined(&mut self) {
        self.is_joined = true;
    }

    /// The peer keeps a lane.
    fn lived_on(&mut self) {
        self.failures = 0;
        self.retry_at = None;
        self.last_reason.clear();
    }

    fn failed(&mut self, refused: bool) {
        self.is_joined = false;
        // Dials in progress at the first failure belong to the same failure: one cut of a busy link counts
        // once.
        if self.retry_at.is_some() && !refused {
            return;
        }
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(10));
        let wait = if refused && !self.is_found { REFUSED_WAIT } else { doubled.min(LONGEST_WAIT) };
        self.failures = self.failures.saturating_add(1);
        self.retry_at = Some(Instant::now() + jittered(wait));
    }

    fn report(&mut self, peer: &Peer, error: &DialError) {
        self.failed(error.is_lasting());
        if error.is_transient() {
            tracing::debug!(peer = peer.name(), "{error}; trying again");
            return;
        }
        let state = if error.is_refusal() { LinkState::Refused } else { LinkState::Down };
        let reason = error.to_string();
        // Once per reason, or a night's outage would fill the log.
        if self.last_reason != reason {
            tracing::warn!(peer = peer.name(), "{reason}; trying again until it works");
            self.last_reason.clone_from(&reason);
        }
        peer.dials.note_trouble(state, reason);
    }
}

/// Spreads attempts by a quarter either way, to keep many gateways out of step.
fn jittered(wait: Duration) -> Duration {
    let spread = (random() % 513) as u32;
    wait * (768 + spread) / 1024
}

/// Draws from the operating system; a failure costs only uniqueness, and the link checks that.
pub fn random() -> u64 {
    getrandom::u64().unwrap_or_default()
}

const FIRST_WAIT: Duration = Duration::from_millis(100);

const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// A refusal lasts until an operator acts.
const REFUSED_WAIT: Duration = Duration::from_secs(15);

/// Handshakes to one peer at once.
const MAX_DIALS: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn concurrent_dial_failures_count_once() {
        let mut pace = Pace::default();
        for _ in 0..MAX_DIALS {
            pace.failed(false);
        }
        assert_eq!(pace.failures, 1);
        assert!(pace.retry_at.is_some_and(|at| at < Instant::now() + FIRST_WAIT * 2));
        pace.retry_at = None;
        pace.failed(false);
        assert!(
            pace.retry_at.is_some_and(|at| at > Instant::now() + FIRST_WAIT),
            "the second in a row waits longer"
        );
    }

    #[tokio::test]
    async fn panicked_dial_backs_off_like_a_failure() {
        let mut dialler = Dialler { dials: JoinSet::new(), in_progress: [1; 3], pace: Pace::default() };
        let is_bad = std::env::args().count() > 0;
        dialler.dials.spawn(async move {
            assert!(!is_bad, "on purpose");
            (LaneRole::Control, Err(DialError::TimedOut { address: String::new() }))
        });
        let ended = dialler.dials.join_next().await.unwrap();
        assert!(dialler.ended(ended).is_none());
        assert_eq!((dialler.in_progress, dialler.pace.at_once(), dialler.pace.failures), ([0; 3], 0, 1));
    }

    #[test]
    fn short_lived_lanes_back_off() {
        let mut pace = Pace::default();
        let mut retry_at = None;
        for failures in 1..=10 {
            pace.joined();
            assert_eq!(pace.at_once(), MAX_DIALS, "the others are dialled with it");
            pace.failed(false);
            assert_eq!((pace.failures, pace.at_once()), (failures, 0));
            retry_at = pace.retry_at.take();
            assert_eq!(pace.at_once(), 1);
        }
        assert!(retry_at.is_some_and(|at| at > Instant::now() + FIRST_WAIT * 2));
    }

    #[test]
    fn stable_lane_resets_the_backoff() {
        let mut pace = Pace::default();
        pace.failed(false);
        pace.failed(true);
        pace.joined();
        assert_eq!(pace.at_once(), 0, "others that were under way have failed");
        pace.lived_on();
        assert_eq!((pace.failures, pace.at_once()), (0, MAX_DIALS));
    }

    #[test]
    fn refusal_lengthens_a_running_wait() {
        let mut pace = Pace::default();
        pace.failed(false);
        pace.failed(true);
        assert!(pace.retry_at.is_some_and(|at| at > Instant::now() + REFUSED_WAIT / 2));
    }
}
