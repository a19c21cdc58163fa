//! Whatever happens to a site.

use proptest::prelude::*;

use super::*;

/// A chunk shared by itself, or one in three that is not.
fn any(number: u32) -> Bytes {
    if number.is_multiple_of(3) { small(number) } else { chunk(number) }
}

/// What happens to a site.
#[derive(Clone, Debug)]
enum Step {
    Fetch(usize, u32),
    Read(usize, u32),
    Part(usize, usize),
    Meet(usize, usize),
    Manner(usize, Manner),
    Load(usize, u32),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let manner = prop_oneof![
        Just(Good),
        Just(Dead),
        Just(Liar),
        Just(Denier),
        Just(Babbler),
        Just(Full),
        (1u64..1500).prop_map(Slow),
        (1u64..100).prop_map(Narrow)
    ];
    let step = prop_oneof![
        4 => (0usize..4, 0u32..30).prop_map(|(at, chunk)| Step::Fetch(at, chunk)),
        8 => (0usize..4, 0u32..30).prop_map(|(at, chunk)| Step::Read(at, chunk)),
        1 => (0usize..4, 0usize..4).prop_map(|(a, b)| Step::Part(a, b)),
        1 => (0usize..4, 0usize..4).prop_map(|(a, b)| Step::Meet(a, b)),
        2 => (0usize..4, manner).prop_map(|(at, manner)| Step::Manner(at, manner)),
        1 => (0usize..4, 0u32..100).prop_map(|(at, queued)| Step::Load(at, queued)),
        2 => (0u64..3000).prop_map(Step::Pass),
    ];
    prop::collection::vec(step, 0..120)
}

proptest! {
    #[test]
    fn every_read_is_answered_once_in_time_and_right(steps in steps()) {
        let mut site = Site::new(&[Good; 4]);
        let mut asked: BTreeMap<(usize, u64), (u32, Now)> = BTreeMap::new();
        for (ticket, step) in steps.into_iter().enumerate() {
            let now = site.now;
            match step {
                Step::Fetch(at, number) if number.is_multiple_of(3) => {
                    let name = site.name(&any(number));
                    site.stores[at].insert(name, any(number));
                }
                Step::Fetch(at, number) => site.fetched(at, &any(number)),
                Step::Read(at, number) => {
                    asked.insert((at, ticket as u64), (number, now));
                    site.read(at, ticket as u64, &any(number));
                }
                Step::Part(a, b) if a != b => site.part(a, b),
                Step::Meet(a, b) if a != b => {
                    let (ids, machines) = (&site.ids, &mut site.machines);
                    machines[a].handle_up(ids[b]);
                    machines[b].handle_up(ids[a]);
                }
                Step::Part(..) | Step::Meet(..) => {}
                Step::Manner(at, manner) => site.manners[at] = manner,
                Step::Load(at, queued) => {
                    site.machines[at].handle_busy(Load { queued, service_us: 900 }, 0, now);
                    site.carry_out(at);
                }
                Step::Pass(ms) if ms < 1000 => site.now += Now::from_millis(ms / 100),
                Step::Pass(_) => site.settle(),
            }
        }
        site.settle();
        prop_assert_eq!(
            site.answers.keys().copied().collect::<BTreeSet<_>>(),
            asked.keys().copied().collect::<BTreeSet<_>>()
        );
        for (at, (answer, answered)) in &site.answers {
            let (number, asked) = asked[at];
            if let Answer::Found(bytes) = answer {
                prop_assert_eq!(bytes, &any(number));
            }
            // Two neighbours at most, a second each, a wait of two more, and what a step of this test skips.
            prop_assert!(*answered - asked <= Now::from_millis(4_000 + 120 * 10), "{:?}", answered);
        }
        for machine in &site.machines {
            prop_assert!(machine.waiting.is_empty() && machine.deadlines.is_empty() && machine.offered == 0);
            prop_assert!(machine.claims.is_empty(), "{:?}", machine.claims);
            prop_assert!(machine.searches.is_empty(), "{:?}", machine.searches);
            let idle = |member: &Member| (member.asked, member.asked_bytes, member.queued_bytes, member.serving);
            prop_assert!(machine.members.values().all(|member| idle(member) == (0, 0, 0, 0)));
        }
    }
}
