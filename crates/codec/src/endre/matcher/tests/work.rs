//! How much work content can make meant to: counted, not timed.

use std::cell::Cell;

use oncewire_fingerprint::Markers as _;

use super::*;

thread_local! {
    static COMPARED: Cell<usize> = const { Cell::new(0) };
    static LOOKED_UP: Cell<usize> = const { Cell::new(0) };
}

/// Takes note of bytes compared and equal.
pub(in super::super) fn note_compared(bytes: usize) {
    COMPARED.with(|compared| compared.set(compared.get() + bytes));
}

/// Takes note of places looked up.
pub(in super::super) fn note_looked_up(places: usize) {
    LOOKED_UP.with(|looked_up| looked_up.set(looked_up.get() + places));
}

/// What a flow took, for each of its bytes.
struct Work {
    /// Places looked up, times p.
    looked_up: f64,
    compared: f64,
}

const PERIOD: usize = 64;
const BLOCK: usize = 65_536;

fn matching(kind: MarkerKind, sample: SampleTable) -> Pair {
    let mut pair = Pair::new(1 << 20, MatchParams { sample, ..MatchParams::default() });
    pair.matcher.set_markers(kind, PERIOD, sample);
    pair
}

/// Sends a flow that is new, and then again.
fn work(mut pair: Pair, flow: &[u8]) -> Work {
    let mut sent = 0;
    COMPARED.set(0);
    LOOKED_UP.set(0);
    for _ in 0..2 {
        pair.hint = None;
        for block in flow.chunks(BLOCK) {
            pair.send(block, true);
            sent += block.len();
        }
    }
    let each = |count: usize| count as f64 / sent as f64;
    Work { looked_up: each(LOOKED_UP.get() * PERIOD), compared: each(COMPARED.get()) }
}

/// Bytes repeating themselves in runs of `run`, each of another byte.
fn runs(run: usize) -> Vec<u8> {
    let mut dice = Dice(9);
    std::iter::repeat_with(|| vec![dice.roll() as u8; run]).take(600_000 / run).flatten().collect()
}

#[test]
fn any_content_costs_few_lookups_and_comparisons_per_byte() {
    let period = Dice(3).noise(31).into_iter().cycle().take(600_000).collect::<Vec<u8>>();
    let contents = [
        ("zeros", vec![0; 600_000]),
        ("a period of 31 bytes", period),
        ("noise", Dice(4).noise(600_000)),
        ("text", Dice(5).text(600_000)),
        ("runs of 40 bytes", runs(40)),
        ("runs of 500 bytes", runs(500)),
        ("runs of 5000 bytes", runs(5000)),
    ];
    let every_byte = SampleTable::from_bytes(0..u8::MAX).unwrap();
    let choices = MarkerKind::ALL.map(|kind| (kind, SampleTable::PAPER));
    for (kind, sample) in choices.into_iter().chain([(MarkerKind::SampleByte, every_byte)]) {
        for (name, flow) in &contents {
            let Work { looked_up, compared } = work(matching(kind, sample), flow);
            let at = format!("{name}, {}: {looked_up:.2} and {compared:.2}", kind.name());
            assert!(looked_up <= MOST_LOOKED_UP && compared <= MOST_COMPARED, "{at}");
        }
    }
}

/// The table says of every place its bytes occurred twice, where all but the last a copy needs are equal.
#[test]
fn colliding_fingerprints_cost_two_comparisons_each() {
    for kind in MarkerKind::ALL {
        let mut pair = matching(kind, SampleTable::PAPER);
        let flow = Dice(6).noise(BLOCK);
        let markers = pair.matcher.places.index(&flow, 0..flow.len()).to_vec();
        let mut near = flow.clone();
        for place in &markers {
            for at in [place.at as usize + 23, (place.at as usize).saturating_sub(1)] {
                near[at] = !flow[at];
            }
        }
        for _ in 0..2 {
            let start = pair.head;
            pair.send(&near, true);
            for place in &markers {
                pair.matcher.slots.insert(place.fingerprint, start, place.at);
            }
        }
        COMPARED.set(0);
        pair.hint = None;
        pair.send(&flow, false);
        let (looked_up, compared) = (pair.matcher.places.all().len(), COMPARED.get());
        let at = format!("{compared} at {looked_up} of {}, {}", markers.len(), kind.name());
        assert!(looked_up >= markers.len() / 2, "{at}");
        // Else nothing collided.
        assert!((24 * looked_up..=2 * 24 * looked_up).contains(&compared), "{at}");
    }
}

/// Bytes of which classical MODP would take every one.
#[test]
fn of_markers_everywhere_two_a_period_are_looked_up() {
    let selector = Selector::new(MarkerKind::ModpRabin, PERIOD, 32);
    let (mut flow, mut markers) = (vec![0; 31], Vec::new());
    while flow.len() < 4096 {
        let at = flow.len() - 31;
        flow.push(0);
        for byte in 0..=u8::MAX {
            *flow.last_mut().unwrap() = byte;
            markers.clear();
            selector.select(&flow[at..], 0..1, &mut markers);
            if !markers.is_empty() {
                break;
            }
        }
    }
    markers.clear();
    selector.select(&flow, 0..flow.len(), &mut markers);
    assert!(markers.len() > flow.len() / 2);
    let Work { looked_up, .. } = work(matching(MarkerKind::ModpRabin, SampleTable::PAPER), &flow);
    assert!((1.0..=MOST_LOOKED_UP).contains(&looked_up), "{looked_up:.2}");
}

/// SAMPLEBYTE passes over half a period at least, and classical MODP is thinned out to no less.
const MOST_LOOKED_UP: f64 = 2.1;
/// Noise takes half, as it is new once and equal once; runs of 500 bytes of which the longest of several is taken 1.94.
const MOST_COMPARED: f64 = 2.5;
