//! Bypass of certain policy exclusions, tunnels and guarded networks in the kernel.
//!
//! A chain of the kernel's rules: these connections are forwarded as if there were no gateway. The chain lets
//! a connection pass only if the policies exclude it for every possible peer. Uncertain ones are taken in,
//! and the gateway decides.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use oncewire_report::{Outcome, Reason};
use oncewire_tunnel::accounts::TrafficAccounts;
use parking_lot::Mutex;

use super::arrivals::Losses;
use super::set::RuleSet;
use super::stops;

/// Returns the numbers, from 1, and the conditions of the bypassing policies, in order.
pub(super) fn bypasses(ruleset: &RuleSet) -> Vec<(usize, &str)> {
    let clauses = ruleset.takers.iter().flat_map(|taker| &taker.excluded.0).filter(|clause| clause.passes);
    let numbered = clauses.filter_map(|clause| Some((clause.policy?, clause.conditions.as_str())));
    let mut found: Vec<_> = numbered.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Writes the counters of bypassed connections.
pub(super) fn counters(ruleset: &RuleSet, text: &mut String) {
    for (policy, _) in bypasses(ruleset) {
        let _ = writeln!(text, "\tcounter policy-{policy} {{\n\t}}");
    }
}

/// Adds the kernel's counts of bypassed connections to the gateway's own.
pub(super) struct Bypassed {
    accounts: Arc<TrafficAccounts>,
    /// The kernel's counters at the last read, by policy.
    read: Mutex<BTreeMap<usize, u64>>,
    /// Losses so far.
    losses: Mutex<Losses>,
}

impl Bypassed {
    pub(super) fn new(accounts: Arc<TrafficAccounts>) -> Self {
        Self { accounts, read: Mutex::default(), losses: Mutex::default() }
    }

    /// Reads the counters of a loaded table.
    pub(super) fn look(&self, rules: &RuleSet, table: &str) {
        let conditions: BTreeMap<_, _> = rules.bypasses().into_iter().collect();
        let mut read = self.read.lock();
        for (policy, count) in counts(table) {
            let before = read.insert(policy, count).unwrap_or(0);
            // A lower count is of a table loaded meanwhile by somebody else.
            let more = count.checked_sub(before).unwrap_or(count);
            if let Some(conditions) = conditions.get(&policy).filter(|_| more > 0) {
                let which = format!("(policy {policy}: {conditions})");
                self.accounts.not_coded.count_all(more, None, &which, Outcome::Bypassed, Reason::Policy);
            }
        }
    }

    /// Reads the losses, and logs the reasons for new ones.
    pub(super) fn look_for_losses(&self, rules: &RuleSet, table: &str) {
        let losses = Losses::read(table);
        let before = std::mem::replace(&mut *self.losses.lock(), losses);
        let more = losses.since(before);
        if more != Losses::default() {
            self.accounts.arrivals.tell(more.connections, more.answers, &stops::stops(rules));
        }
    }

    /// Whether the obstacle to intercepted connections is gone.
    pub(super) fn is_mended(&self, rules: &RuleSet) -> bool {
        self.accounts.arrivals.has_reason() && stops::stops(rules).is_empty()
    }

    /// Whether connections were lost lately; they pass until rules are loaded anew.
    pub(super) fn has_losses(&self) -> bool {
        self.accounts.arrivals.sentence().is_some()
    }

    /// Forgets earlier counts: another table begins to count.
    pub(super) fn begin_anew(&self) {
        self.read.lock().clear();
        *self.losses.lock() = Losses::default();
        self.accounts.arrivals.forget();
    }
}

/// Reads each policy's count of passed packets from tables in `nft`'s format.
pub(super) fn counts(tables: &str) -> Vec<(usize, u64)> {
    let mut counts: BTreeMap<usize, u64> = BTreeMap::new();
    let mut lines = tables.lines().map(str::trim);
    while let Some(line) = lines.next() {
        let policy =
            line.strip_prefix("counter policy-").and_then(|rest| rest.strip_suffix(" {")?.parse().ok());
        if let Some(policy) = policy {
            let packets =
                lines.next().and_then(|line| line.strip_prefix("packets ")?.split(' ').next()?.parse().ok());
            *counts.entry(policy).or_default() += packets.unwrap_or(0);
        }
    }
    counts.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use proptest::prelude::*;
    use proptest::sample::subsequence;

    use super::super::exclusions::{Clause, Exclusions};
    use super::*;
    use oncewire_config::{Codec, Network, PathChoice, PeerChoice, PlanChanges, Policies, Policy, unnamed};

    const PORTS: [u16; 4] = [22, 80, 443, 8080];
    const NETWORKS: [&str; 7] =
        ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "0.0.0.0/0", "fd00::/8", "fd00:1::/32", "::/0"];
    const SERVERS: [&str; 7] =
        ["10.1.2.3", "10.1.9.9", "10.9.9.9", "192.0.2.1", "fd00:1::1", "fd00:2::1", "2001:db8::1"];
    const PEERS: [&str; 2] = ["hub", "ship"];

    fn some_of<T: Clone + std::fmt::Debug + 'static>(items: Vec<T>) -> impl Strategy<Value = Option<Vec<T>>> {
        let most = items.len();
        proptest::option::of(subsequence(items, 0..=most))
    }

    fn policy() -> impl Strategy<Value = Policy> {
        let networks = NETWORKS.map(|network| network.parse::<Network>().unwrap()).to_vec();
        let peers = PEERS.map(str::to_owned).to_vec();
        let path = prop_oneof![Just(PathChoice::Link), Just(PathChoice::Direct)];
        (some_of(PORTS.to_vec()), some_of(networks), some_of(peers), path).prop_map(
            |(ports, networks, peers, path)| Policy {
                ports,
                networks,
                peers,
                path,
                codec: Codec::None,
                priority: None,
                changes: PlanChanges::default(),
                log_memory: None,
            },
        )
    }

    /// Returns the policy bypassing a connection, by the kernel's reading of the text; none if it is taken
    /// in.
    fn passes_by(chain: &str, server: SocketAddr) -> Option<usize> {
        let rules = chain.lines().map(str::trim).filter(|line| !line.starts_with("chain") && *line != "}");
        for rule in rules {
            let mut words = rule.split_whitespace();
            let mut policy = None;
            // Until a failed condition: it ends the rule.
            while let Some(word) = words.next() {
                let holds = match word {
                    "ip" | "ip6" => {
                        assert_eq!(words.next(), Some("daddr"));
                        let networks: Vec<Network> =
                            set(&mut words).iter().map(|net| net.parse().unwrap()).collect();
                        assert!(networks.iter().all(|network| network.is_ipv4() == (word == "ip")));
                        networks.iter().any(|network| network.contains(server.ip()))
                    }
                    "tcp" => {
                        assert_eq!(words.next(), Some("dport"));
                        set(&mut words).contains(&server.port().to_string())
                    }
                    "counter" => {
                        assert_eq!(words.next(), Some("name"));
                        let name = words.next().unwrap().trim_matches('"');
                        policy = Some(name.strip_prefix("policy-").unwrap().parse().unwrap());
                        true
                    }
                    "accept" => return policy,
                    "return" => return None,
                    other => panic!("{other}"),
                };
                if !holds {
                    break;
                }
            }
        }
        None
    }

    fn set<'a>(words: &mut impl Iterator<Item = &'a str>) -> Vec<String> {
        assert_eq!(words.next(), Some("{"));
        let items: Vec<_> =
            words.take_while(|word| *word != "}").map(|word| word.trim_end_matches(',').to_owned()).collect();
        assert!(!items.is_empty(), "sets of nothing are no rules");
        items
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn kernel_bypasses_exactly_the_excluded_connections(
            rules in proptest::collection::vec(policy(), 0..6),
            peer in prop_oneof![
                Just(PeerChoice::Auto),
                Just(PeerChoice::Named("hub".to_owned())),
                Just(PeerChoice::Named("ship".to_owned()))
            ],
        ) {
            let policies = Policies { rules };
            let peers = match &peer {
                PeerChoice::Named(name) => vec![Some(name.as_str())],
                PeerChoice::Auto => vec![None, Some("hub"), Some("ship")],
            };
            // With rules differing by a still unknown peer, more is taken in than necessary, and never less.
            let certain = peer != PeerChoice::Auto || policies.rules.iter().all(|rule| rule.peers.is_none());
            let exclusions = Exclusions::of(&policies, &peer, &[]);
            let mut chain = String::new();
            exclusions.chain(&mut chain, "policy-0", "accept", true);
            let mut passed = false;
            for (server, port) in SERVERS.into_iter().flat_map(|server| PORTS.map(|port| (server, port))) {
                let server = SocketAddr::new(server.parse::<IpAddr>().unwrap(), port);
                let outcomes: Vec<_> = peers.iter().map(|peer| policies.decide(&server.into(), *peer)).collect();
                let excluded = outcomes.iter().all(|outcome| outcome.path == PathChoice::Direct);
                let by = passes_by(&chain, server);
                prop_assert!(excluded || by.is_none(), "{} {:?}\n{}", server, outcomes, chain);
                prop_assert!(!certain || excluded == by.is_some(), "{} {:?}\n{}", server, outcomes, chain);
                if let Some(by) = by {
                    prop_assert_eq!(outcomes[0].rule, Some(by), "{}\n{}", server, chain);
                    passed = true;
                }
            }
            prop_assert!(!exclusions.is_empty() || !passed);
        }
    }

    #[test]
    fn policies_without_exclusions_write_nothing() {
        let link = Policy {
            ports: Some(vec![22]),
            networks: None,
            peers: None,
            path: PathChoice::Link,
            codec: Codec::None,
            priority: None,
            changes: PlanChanges::default(),
            log_memory: None,
        };
        let elsewhere =
            Policy { peers: Some(vec!["ship".to_owned()]), path: PathChoice::Direct, ..link.clone() };
        let policies = Policies { rules: vec![link, elsewhere] };
        for peer in [PeerChoice::Auto, PeerChoice::Named("hub".to_owned())] {
            assert!(Exclusions::of(&policies, &peer, &[]).is_empty(), "{peer:?}");
        }
    }

    #[test]
    fn tunnels_are_left_alone_before_any_policy_and_not_counted() {
        let tunnels = ["192.0.2.1:7400", "[2001:db8::1]:7401"].map(|address| address.parse().unwrap());
        let exclusions = Exclusions::of(&Policies { rules: Vec::new() }, &PeerChoice::Auto, &tunnels);
        let mut chain = String::new();
        exclusions.chain(&mut chain, "policy-0", "accept", true);
        let rules: Vec<_> = chain.lines().map(str::trim).collect();
        let expected = [
            "ip daddr { 192.0.2.1/32 } tcp dport { 7400 } accept comment \"tunnel\"",
            "ip6 daddr { 2001:db8::1/128 } tcp dport { 7401 } accept comment \"tunnel\"",
        ];
        assert_eq!(rules[1..3], expected);
        let rules = super::super::text::tests::excluding(exclusions);
        assert!(rules.bypasses().is_empty() && !rules.nft().contains("counter policy-"), "{}", rules.nft());
    }

    #[test]
    fn link_local_addresses_are_bypassed_unless_named() {
        let chain = |named: &[&str]| {
            let named: Vec<Network> = named.iter().map(|network| network.parse().unwrap()).collect();
            let exclusions = Exclusions::default().with_unnamed(unnamed(&named));
            let mut chain = String::new();
            exclusions.chain(&mut chain, "policy-0", "accept", true);
            chain
        };
        for networks in [&[][..], &["0.0.0.0/0", "::/0"]] {
            let chain = chain(networks);
            assert!(
                chain.contains("ip daddr { 169.254.0.0/16, ") && chain.contains("ip6 daddr { fe80::/10, "),
                "{chain}"
            );
            assert_eq!(chain.matches("accept comment \"near\"").count(), 2, "{chain}");
        }
        let chain = chain(&["169.254.169.254"]);
        assert!(!chain.contains("169.254.0.0/16") && chain.contains("fe80::/10"), "{chain}");
    }

    #[test]
    fn counters_are_read_as_nft_lists_them() {
        let table = "table inet oncewire-branch {\n\tcounter policy-2 {\n\t\tpackets 3 bytes 180\n\t}\n\n\
                     \tcounter other {\n\t\tpackets 9 bytes 1\n\t}\n\tcounter policy-10 {\n\t\tpackets 0 bytes 0\n\t}\n\
                     \tchain policy-0 {\n\t\ttcp dport { 22 } counter name \"policy-2\" accept comment \"policy 2\"\n\t}\n}\n";
        assert_eq!(counts(table), [(2, 3), (10, 0)]);
    }

    #[test]
    fn kernel_counts_add_up_once_across_tables() {
        let ssh = Clause {
            policy: Some(2),
            conditions: "ports 22".to_owned(),
            ports: Some(vec![22]),
            networks: None,
            passes: true,
        };
        let rules = super::super::text::tests::excluding(Exclusions(vec![ssh]));
        let table = |packets| format!("\tcounter policy-2 {{\n\t\tpackets {packets} bytes 60\n\t}}\n");
        let accounts = Arc::new(TrafficAccounts::default());
        let bypassed = Bypassed::new(Arc::clone(&accounts));
        let counted = || accounts.not_coded.rows().first().map(|row| row.count);
        bypassed.look(&rules, &table(0));
        assert_eq!(counted(), None);
        for (packets, sum) in [(3, 3), (3, 3), (5, 5), (1, 6)] {
            bypassed.look(&rules, &table(packets));
            assert_eq!(counted(), Some(sum), "{packets}");
        }
        bypassed.begin_anew();
        bypassed.look(&rules, &table(2));
        let row = accounts.not_coded.rows().remove(0);
        assert_eq!((row.destination.as_str(), row.count, row.bytes), ("(policy 2: ports 22)", 8, 0));
        assert_eq!((row.outcome, row.reason), (Outcome::Bypassed, Reason::Policy));
    }
}
