//! Losses of intercepted connections on their way to the gateway.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Recent losses, with reasons.
#[derive(Debug, Default)]
pub struct Arrivals(Mutex<Option<Lost>>);

#[derive(Debug)]
struct Lost {
    connections: u64,
    answers: u64,
    reasons: String,
    at: Instant,
    logged: Instant,
}

impl Arrivals {
    /// Notes lost connections, and lost answers of servers, with the reasons; logs them at a limited rate,
    /// and on every new reason.
    pub fn tell(&self, connections: u64, answers: u64, reasons: &[String]) {
        let now = Instant::now();
        let mut told = self.0.lock();
        let before = told.take().filter(|lost| lost.at.elapsed() < CURRENT);
        let reasons = match (reasons, &before) {
            // It may have been mended since they were lost.
            ([], Some(before)) => before.reasons.clone(),
            ([], None) => NOT_FOUND.to_owned(),
            (reasons, _) => reasons.join("; "),
        };
        let logged =
            before.as_ref().filter(|lost| lost.reasons == reasons && lost.logged.elapsed() < CURRENT);
        let logged = logged.map(|lost| lost.logged);
        let sum = |before: Option<u64>, more: u64| before.unwrap_or(0).saturating_add(more);
        let lost = Lost {
            connections: sum(before.as_ref().map(|lost| lost.connections), connections),
            answers: sum(before.as_ref().map(|lost| lost.answers), answers),
            reasons,
            at: now,
            logged: logged.unwrap_or(now),
        };
        if logged.is_none() {
            tracing::warn!("{}", lost.sentence());
        }
        *told = Some(lost);
    }

    /// Forgets losses: other rules hold.
    pub fn forget(&self) {
        *self.0.lock() = None;
    }

    /// Whether intercepted connections were lost lately.
    pub fn connections_are_lost(&self) -> bool {
        let told = self.0.lock();
        told.as_ref().is_some_and(|lost| lost.connections > 0 && lost.at.elapsed() < CURRENT)
    }

    /// Whether the reason of recent losses is known.
    pub fn has_reason(&self) -> bool {
        let told = self.0.lock();
        told.as_ref().is_some_and(|lost| lost.reasons != NOT_FOUND && lost.at.elapsed() < CURRENT)
    }

    /// Returns recent losses, with reasons, as a sentence.
    pub fn sentence(&self) -> Option<String> {
        let told = self.0.lock();
        told.as_ref().filter(|lost| lost.at.elapsed() < CURRENT).map(Lost::sentence)
    }
}

impl Lost {
    fn sentence(&self) -> String {
        let Self { connections, answers, reasons, .. } = self;
        let mut parts = Vec::new();
        if *connections > 0 {
            parts.push(format!(
                "{connections} packets of connections that were taken in did not arrive, and what is like them goes direct \
                 for 10 min"
            ));
        }
        if *answers > 0 {
            parts.push(format!("{answers} answers of servers to connects in clients' names did not arrive"));
        }
        format!("{}: {reasons}", parts.join(", and "))
    }
}

/// Lifetime of losses: that of elements in the rules' sets.
const CURRENT: Duration = Duration::from_secs(600);

const NOT_FOUND: &str = "no firewall or routing rule was found that explains it; look at what drops or reroutes packets in \
                         the hooks prerouting and input (`nft list ruleset`, `iptables-save`, `ip rule`)";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_add_up_and_name_their_reason_until_rules_change() {
        let arrivals = Arrivals::default();
        assert_eq!(arrivals.sentence(), None);
        arrivals.tell(0, 2, &[]);
        assert!(!arrivals.connections_are_lost() && !arrivals.has_reason());
        assert!(arrivals.sentence().unwrap().starts_with("2 answers of servers"));
        arrivals.tell(3, 0, &["the firewall".to_owned(), "a rule".to_owned()]);
        assert!(arrivals.connections_are_lost() && arrivals.has_reason());
        let sentence = arrivals.sentence().unwrap();
        assert!(sentence.starts_with("3 packets") && sentence.contains("2 answers"), "{sentence}");
        assert!(sentence.ends_with(": the firewall; a rule"), "{sentence}");
        arrivals.tell(1, 0, &[]);
        assert!(
            arrivals.has_reason() && arrivals.sentence().unwrap().ends_with("a rule"),
            "it is mended by now"
        );
        arrivals.forget();
        assert_eq!(arrivals.sentence(), None);
    }
}
