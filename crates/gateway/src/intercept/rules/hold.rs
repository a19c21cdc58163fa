//! Rules that hold the first packet of a connection until its server has answered.
//!
//! A chain before all others marks and queues SYNs, and the chain that takes in reads the marks that come back. Kernels
//! whose nftables have no queues mostly have iptables' target for it, to which one rule leads what is marked: predicates
//! and the sign of life stand in one place all the same.

use std::fmt::Write as _;

use super::begun::SYN;
use super::commands::{filter, nft};
use super::{How, LoadError, Programs, RuleSet, Taker};

/// How packets get into the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueBy {
    /// By the table itself.
    #[default]
    Nft,
    /// By a rule of iptables and one of ip6tables.
    Iptables,
}

/// The numbers by which rules and a gateway speak of held packets: marks of which the upper half says what, and the
/// lower half whose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HoldNumbers(u16);

impl HoldNumbers {
    /// Returns the number of the queue.
    pub(crate) fn queue(self) -> u16 {
        self.0
    }

    /// Returns the mark of a packet that an interception asks about.
    fn asked(self, index: u8) -> u32 {
        ASKED | u32::from(index) << 16 | u32::from(self.0)
    }

    /// Returns which interception asks, by its place in the configuration.
    pub(crate) fn asked_by(self, mark: u32) -> Option<usize> {
        let ours = mark & !INDEX == self.asked(0);
        ours.then_some((mark & INDEX) as usize >> 16)
    }

    pub(crate) fn taken_in(self) -> u32 {
        self.answer(1)
    }

    pub(crate) fn refused(self) -> u32 {
        self.answer(2)
    }

    pub(crate) fn unreachable(self) -> u32 {
        self.answer(3)
    }

    pub(crate) fn prohibited(self) -> u32 {
        self.answer(4)
    }

    fn answer(self, code: u32) -> u32 {
        ANSWERED | code << 16 | u32::from(self.0)
    }
}

impl RuleSet {
    /// Returns the numbers for packets that are held; none if none are.
    pub(crate) fn hold_numbers(&self) -> Option<HoldNumbers> {
        let holds = self.takers.iter().any(|taker| taker.hold.is_some());
        // The lower half is this gateway's own.
        holds.then(|| HoldNumbers((self.routing_table() & 0xffff) as u16))
    }

    /// Chooses how packets are queued, if any are, by what the kernel has; who may not ask it is given what most have.
    pub(super) fn with_queue(self) -> Self {
        if self.hold_numbers().is_none() {
            return self;
        }
        let queue_by = match nft(&["--check", "-f", "-"], PROBE) {
            Err(LoadError::Refused { said, .. }) if said.contains("No such file") => QueueBy::Iptables,
            _ => QueueBy::Nft,
        };
        Self { queue_by, ..self }
    }

    /// Writes the chain that marks and queues.
    pub(super) fn hold_chain(&self, text: &mut String) {
        let Some(numbers) = self.hold_numbers() else { return };
        let takers = || self.takers.iter().filter(|taker| taker.how == How::Tproxy).enumerate();
        let excludes = |taker: &Taker| taker.hold.is_some() && !taker.excluded.is_empty();
        for (number, taker) in takers().filter(|(_, taker)| excludes(taker)) {
            // They are counted where those that nobody holds are.
            taker.excluded.chain(text, &format!("hold-policy-{number}"), "accept", false);
        }
        let priority = "filter hook prerouting priority -310";
        let _ = write!(text, "\tchain hold {{\n\t\ttype {priority}; policy accept;\n\t\t{SYN} jump aside\n");
        for (number, taker) in takers() {
            let verdict = match (taker.hold, self.queue_by) {
                // What it takes in is not for those behind it.
                (None, _) => "accept".to_owned(),
                (Some(index), QueueBy::Iptables) => {
                    format!("meta mark set {:#x} accept", numbers.asked(index))
                }
                (Some(index), QueueBy::Nft) => {
                    let (mark, queue) = (numbers.asked(index), numbers.queue());
                    format!("meta mark set {mark:#x} queue num {queue} bypass")
                }
            };
            for condition in self.conditions(taker) {
                let condition = format!("{condition} fib daddr type != local");
                if excludes(taker) {
                    let _ = writeln!(text, "\t\t{condition} jump hold-policy-{number}");
                }
                let _ = writeln!(text, "\t\t{condition} {verdict}");
            }
        }
        text.push_str("\t}\n");
    }

    /// Returns the rules that carry out what was decided; packets that are taken in have no mark from then on.
    pub(super) fn answers(&self) -> Vec<String> {
        let Some(numbers) = self.hold_numbers() else { return Vec::new() };
        let (refused, unreachable) = (numbers.refused(), numbers.unreachable());
        vec![
            format!("meta mark {refused:#x} meta l4proto tcp reject with tcp reset"),
            format!("meta mark {unreachable:#x} reject with icmpx type host-unreachable"),
            format!("meta mark {:#x} reject with icmpx type admin-prohibited", numbers.prohibited()),
            format!("meta mark {:#x} meta mark set 0x0", numbers.taken_in()),
            // Nobody read it, or more are held than may be.
            format!("meta mark & {:#x} == {:#x} meta mark set 0x0", !INDEX, numbers.asked(0)),
        ]
    }

    /// Returns the rule of iptables and ip6tables that queues what is marked, with `-A`, `-C` or `-D` before it; none
    /// if the table does that itself.
    pub fn queue_rule(&self) -> Option<String> {
        let numbers = self.hold_numbers().filter(|_| self.queue_by == QueueBy::Iptables)?;
        let (mark, queue) = (numbers.asked(0), numbers.queue());
        let mask = !INDEX;
        Some(format!(
            "PREROUTING -m mark --mark {mark:#x}/{mask:#x} -j NFQUEUE --queue-num {queue} --queue-bypass"
        ))
    }
}

impl Programs<'_> {
    /// Adds the rules that queue what the table marks, where they are not there.
    pub(super) fn install_queue(&self) -> Result<(), LoadError> {
        let Some(rule) = self.0.queue_rule() else { return Ok(()) };
        for program in FILTERS {
            if !is_there(program, &rule)? {
                filter(program, &format!("-A {rule}"))?;
            }
        }
        Ok(())
    }

    /// Removes them; what is not there cannot be.
    ///
    /// # Errors
    /// If somebody holds the lock of those programs. What stays then has no effect without the table.
    pub(super) fn remove_queue(&self) -> Result<(), LoadError> {
        let Some(rule) = self.0.queue_rule() else { return Ok(()) };
        for program in FILTERS {
            // There is one lock for both.
            unless_locked(filter(program, &format!("-D {rule}")))?;
        }
        Ok(())
    }

    /// Writes those that are there, as their programs take them.
    ///
    /// # Errors
    /// If somebody holds the lock of those programs.
    pub(super) fn installed_queue(&self) -> Result<String, LoadError> {
        let Some(rule) = self.0.queue_rule() else { return Ok(String::new()) };
        let mut installed = String::new();
        for program in FILTERS {
            if is_there(program, &rule)? {
                let _ = writeln!(installed, "{program} -t raw -A {rule}");
            }
        }
        Ok(installed)
    }
}

/// Says whether a rule is there; fails only if that cannot be known because of the programs' lock.
fn is_there(program: &'static str, rule: &str) -> Result<bool, LoadError> {
    unless_locked(filter(program, &format!("-C {rule}")))
}

/// Says whether a program did it; fails only if it waited in vain for the lock.
fn unless_locked(done: Result<String, LoadError>) -> Result<bool, LoadError> {
    match done {
        Err(LoadError::Locked { program }) => Err(LoadError::Locked { program }),
        done => Ok(done.is_ok()),
    }
}

/// The programs that queue packets where nftables does not, one for each family.
pub const FILTERS: [&str; 2] = ["iptables", "ip6tables"];

/// What the kernel is asked to take, and does not keep.
const PROBE: &str = "table inet oncewire-probe {\n\tchain probe {\n\t\ttype filter hook prerouting priority raw; \
                     policy accept;\n\t\tmeta mark 0x1 queue num 0 bypass\n\t}\n}\n";

/// Of the marks of packets that are asked about; the byte behind it says by whom.
const ASKED: u32 = 0x6e00_0000;
const INDEX: u32 = 0x00ff_0000;

/// Of the marks of packets that were.
const ANSWERED: u32 = 0x6d00_0000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Capture, PortRange, RulesBy};

    /// Rules of an interception of one port for each element, which holds or does not.
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
    fn what_is_held_is_marked_and_queued_by_one_program_or_the_other() {
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
        assert_eq!(by_nft.queue_rule(), None);
        let by_iptables = rules(&[false, true], QueueBy::Iptables);
        let [_, _, second] = &chain(&by_iptables, "hold")[..] else { panic!("{}", by_iptables.nft()) };
        assert!(second.starts_with(asks) && second.ends_with("accept"), "{second}");
        let rule = by_iptables.queue_rule().unwrap();
        assert!(rule.ends_with(&format!("NFQUEUE --queue-num {queue} --queue-bypass")), "{rule}");
    }

    #[test]
    fn a_rule_that_a_lock_hides_is_not_one_that_is_missing() {
        let program = "iptables".to_owned();
        let refused = LoadError::Refused { program: program.clone(), said: "Bad rule".to_owned() };
        assert!(!unless_locked(Err(refused)).unwrap());
        assert!(unless_locked(Ok(String::new())).unwrap());
        let locked = unless_locked(Err(LoadError::Locked { program }));
        assert!(matches!(locked, Err(LoadError::Locked { .. })), "{locked:?}");
    }

    #[test]
    fn answers_stand_before_what_takes_in_and_only_where_something_is_held() {
        let divert = chain(&rules(&[true], QueueBy::Nft), "divert");
        assert_eq!(divert.len(), 12, "{divert:?}");
        assert!(divert[0].ends_with("reject with tcp reset") && divert[5].ends_with("goto intercept-0"));
        let without = rules(&[false], QueueBy::Iptables);
        assert_eq!((without.hold_numbers(), without.queue_rule()), (None, None));
        assert!(chain(&without, "hold").is_empty() && chain(&without, "divert").len() == 7);
    }

    #[test]
    fn marks_say_who_asks_and_are_told_from_those_of_another_gateway() {
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
