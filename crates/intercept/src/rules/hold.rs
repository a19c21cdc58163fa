//! Rules for holding SYNs until the server has answered.
//!
//! A chain ahead of all others marks and queues SYNs, and the intercepting chain reads the returned marks.
//! Kernels without nftables queues mostly have iptables' target for it, reached by one rule for marked
//! packets: predicates and the sign of life stand in one place all the same.

use std::fmt::Write as _;

use super::commands::{LoadError, Programs};
use super::commands::{filter, nft};
use super::conditions;
use super::queue::{HoldNumbers, INDEX, QueueBy};
use super::set::{How, RuleSet, Taker};
use super::words::SYN;

/// Returns the numbers for held packets; none if none are held.
pub(super) fn hold_numbers(ruleset: &RuleSet) -> Option<HoldNumbers> {
    let holds = ruleset.takers.iter().any(|taker| taker.hold.is_some());
    // The lower half is this gateway's own.
    holds.then(|| HoldNumbers((ruleset.routing_table() & 0xffff) as u16))
}

/// Chooses the kernel's way of queueing packets, if any are held; without the privilege to ask, the most
/// common one.
pub(super) fn with_queue(ruleset: RuleSet) -> RuleSet {
    if hold_numbers(&ruleset).is_none() {
        return ruleset;
    }
    let queue_by = match nft(&["--check", "-f", "-"], PROBE) {
        Err(LoadError::Refused { said, .. }) if said.contains("No such file") => QueueBy::Iptables,
        _ => QueueBy::Nft,
    };
    RuleSet { queue_by, ..ruleset }
}

/// Writes the marking and queueing chain.
pub(super) fn hold_chain(ruleset: &RuleSet, text: &mut String) {
    let Some(numbers) = hold_numbers(ruleset) else { return };
    let takers = || ruleset.takers.iter().filter(|taker| taker.how == How::Tproxy).enumerate();
    let excludes = |taker: &Taker| taker.hold.is_some() && !taker.excluded.is_empty();
    for (number, taker) in takers().filter(|(_, taker)| excludes(taker)) {
        // They are counted together with unheld ones.
        taker.excluded.chain(text, &format!("hold-policy-{number}"), "accept", false);
    }
    let priority = "filter hook prerouting priority -310";
    let _ = write!(text, "\tchain hold {{\n\t\ttype {priority}; policy accept;\n\t\t{SYN} jump aside\n");
    for (number, taker) in takers() {
        let verdict = match (taker.hold, ruleset.queue_by) {
            // Packets it takes in are not for later ones.
            (None, _) => "accept".to_owned(),
            (Some(index), QueueBy::Iptables) => {
                format!("meta mark set {:#x} accept", numbers.asked(index))
            }
            (Some(index), QueueBy::Nft) => {
                let (mark, queue) = (numbers.asked(index), numbers.queue());
                format!("meta mark set {mark:#x} queue num {queue} bypass")
            }
        };
        for condition in conditions::conditions(ruleset, taker) {
            let condition = format!("{condition} fib daddr type != local");
            if excludes(taker) {
                let _ = writeln!(text, "\t\t{condition} jump hold-policy-{number}");
            }
            let _ = writeln!(text, "\t\t{condition} {verdict}");
        }
    }
    text.push_str("\t}\n");
}

/// Returns the rules carrying out the answers; intercepted packets lose their mark there.
pub(super) fn answers(ruleset: &RuleSet) -> Vec<String> {
    let Some(numbers) = hold_numbers(ruleset) else { return Vec::new() };
    let (refused, unreachable) = (numbers.refused(), numbers.unreachable());
    vec![
        format!("meta mark {refused:#x} meta l4proto tcp reject with tcp reset"),
        format!("meta mark {unreachable:#x} reject with icmpx type host-unreachable"),
        format!("meta mark {:#x} reject with icmpx type admin-prohibited", numbers.prohibited()),
        format!("meta mark {:#x} meta mark set 0x0", numbers.taken_in()),
        // Without a reader, or beyond the limit of held packets.
        format!("meta mark & {:#x} == {:#x} meta mark set 0x0", !INDEX, numbers.asked(0)),
    ]
}

/// Returns the rule of iptables and ip6tables for queueing marked packets, to follow `-A`, `-C` or `-D`;
/// none if the table does that itself.
pub(super) fn queue_rule(ruleset: &RuleSet) -> Option<String> {
    let numbers = hold_numbers(ruleset).filter(|_| ruleset.queue_by == QueueBy::Iptables)?;
    let (mark, queue) = (numbers.asked(0), numbers.queue());
    let mask = !INDEX;
    Some(format!(
        "PREROUTING -m mark --mark {mark:#x}/{mask:#x} -j NFQUEUE --queue-num {queue} --queue-bypass"
    ))
}

impl Programs<'_> {
    /// Adds missing rules for queueing packets marked by the table.
    pub(super) fn install_queue(&self) -> Result<(), LoadError> {
        let Some(rule) = queue_rule(self.0) else { return Ok(()) };
        for program in FILTERS {
            if !is_there(program, &rule)? {
                filter(program, &format!("-A {rule}"))?;
            }
        }
        Ok(())
    }

    /// Removes them, if present.
    ///
    /// # Errors
    /// If another process holds the lock of those programs. The rest then has no effect without the table.
    pub(super) fn remove_queue(&self) -> Result<(), LoadError> {
        let Some(rule) = queue_rule(self.0) else { return Ok(()) };
        for program in FILTERS {
            // There is one lock for both.
            unless_locked(filter(program, &format!("-D {rule}")))?;
        }
        Ok(())
    }

    /// Writes the present ones in their programs' format.
    ///
    /// # Errors
    /// If another process holds the lock of those programs.
    pub(super) fn installed_queue(&self) -> Result<String, LoadError> {
        let Some(rule) = queue_rule(self.0) else { return Ok(String::new()) };
        let mut installed = String::new();
        for program in FILTERS {
            if is_there(program, &rule)? {
                let _ = writeln!(installed, "{program} -t raw -A {rule}");
            }
        }
        Ok(installed)
    }
}

/// Whether a rule is present; fails only if the programs' lock prevents an answer.
fn is_there(program: &'static str, rule: &str) -> Result<bool, LoadError> {
    unless_locked(filter(program, &format!("-C {rule}")))
}

/// Whether a program succeeded; fails only on a time-out of the lock.
fn unless_locked(done: Result<String, LoadError>) -> Result<bool, LoadError> {
    match done {
        Err(LoadError::Locked { program }) => Err(LoadError::Locked { program }),
        done => Ok(done.is_ok()),
    }
}

/// The queueing programs for kernels without nftables queues, one for each family.
pub const FILTERS: [&str; 2] = ["iptables", "ip6tables"];

/// A trial table; the kernel is asked to check it and keeps nothing.
const PROBE: &str = "table inet oncewire-probe {\n\tchain probe {\n\t\ttype filter hook prerouting priority raw; \
                     policy accept;\n\t\tmeta mark 0x1 queue num 0 bypass\n\t}\n}\n";

#[cfg(test)]
mod tests {
    use super::*;
    use oncewire_config::{Capture, PortRange, RulesBy};

    /// Rules of an interception of one port for each element, holding or not.
    fn rules(holds: &[bool], queue_by: QueueBy) -> RuleSet {
        let taker = |(at, holds): (u8, &bool)| {
            let ports = vec![PortRange { first: u16::from(at) + 1, last: u16::from(at) + 1 }];
            let capture = Capture { ports, hold_syn: *holds, ..Capture::default() };
            Taker { hold: holds.then_some(at), ..Taker::new(How::Tproxy, capture, 15001) }
        };
        let takers = (0..).zip(holds).map(taker).collect();
        RuleSet { takers, queue_by, ..RuleSet::empty("branch", RulesBy::Install) }
    }

    /// The rules of a chain, without the definition of its hook.
    fn chain(rules: &RuleSet, name: &str) -> Vec<String> {
        let text = rules.nft();
        let chain = text.split(&format!("chain {name} {{")).nth(1).unwrap_or_default();
        chain.lines().skip(2).map(str::trim).take_while(|line| *line != "}").map(str::to_owned).collect()
    }

    #[test]
    fn held_packets_are_marked_and_queued_by_either_program() {
        let asks = "meta nfproto @alive tcp flags & (fin | syn | rst | ack) == syn tcp dport { 2 } \
                    fib daddr type != local meta mark set 0x6e01";
        let by_nft = rules(&[false, true], QueueBy::Nft);
        let queue = by_nft.hold_numbers().unwrap().queue();
        let [_, first, second] = &chain(&by_nft, "hold")[..] else { panic!("{}", by_nft.nft()) };
        assert!(first.ends_with("fib daddr type != local accept"), "{first}");
        assert!(
            second.starts_with(asks) && second.ends_with(&format!("queue num {queue} bypass")),
            "{second}"
        );
        assert_eq!(queue_rule(&by_nft), None);
        let by_iptables = rules(&[false, true], QueueBy::Iptables);
        let [_, _, second] = &chain(&by_iptables, "hold")[..] else { panic!("{}", by_iptables.nft()) };
        assert!(second.starts_with(asks) && second.ends_with("accept"), "{second}");
        let rule = queue_rule(&by_iptables).unwrap();
        assert!(rule.ends_with(&format!("NFQUEUE --queue-num {queue} --queue-bypass")), "{rule}");
    }

    #[test]
    fn rule_behind_a_lock_is_not_missing() {
        let program = "iptables".to_owned();
        let refused = LoadError::Refused { program: program.clone(), said: "Bad rule".to_owned() };
        assert!(!unless_locked(Err(refused)).unwrap());
        assert!(unless_locked(Ok(String::new())).unwrap());
        let locked = unless_locked(Err(LoadError::Locked { program }));
        assert!(matches!(locked, Err(LoadError::Locked { .. })), "{locked:?}");
    }

    #[test]
    fn answers_precede_interception_and_need_holding() {
        let divert = chain(&rules(&[true], QueueBy::Nft), "divert");
        assert_eq!(divert.len(), 12, "{divert:?}");
        assert!(divert[0].ends_with("reject with tcp reset") && divert[5].ends_with("goto intercept-0"));
        let without = rules(&[false], QueueBy::Iptables);
        assert_eq!((without.hold_numbers(), queue_rule(&without)), (None, None));
        assert!(chain(&without, "hold").is_empty() && chain(&without, "divert").len() == 7);
    }

    #[test]
    fn marks_identify_interceptions_and_gateways() {
        let (ours, theirs) = (HoldNumbers(0x1234), HoldNumbers(0x1235));
        for index in [0, 1, 255] {
            assert_eq!(ours.asked_by(ours.asked(index)), Some(usize::from(index)));
            assert_eq!(theirs.asked_by(ours.asked(index)), None);
        }
        let answers = [ours.taken_in(), ours.refused(), ours.unreachable(), ours.prohibited()];
        for (at, answer) in answers.iter().enumerate() {
            assert_eq!(ours.asked_by(*answer), None);
            assert!(!answers[..at].contains(answer));
        }
    }
}
