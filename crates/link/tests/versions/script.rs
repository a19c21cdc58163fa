//! Two applications' actions in a recorded session, by stage; fixed, to fit existing recordings.

use bytes::Bytes;
use oncewire_codec::{Matching, Plan};
use oncewire_link::{
    Destination, FlowId, Host, LinkConfig, LogLimits, Now, OpenFailure, OpenRequest, ResetReason,
};

use crate::common::{Pair, Said, Side, config};

/// When a stage happens.
pub(crate) fn time(stage: usize) -> Now {
    Now::from_secs(100) + Now::from_millis(20 * stage as u64)
}

/// How a side of the session is configured.
pub(crate) fn side_config(side: usize) -> LinkConfig {
    let config = config(side == 0, side as u64 + 1);
    // Little credit, so grants are part of the session.
    LinkConfig { initial_credit: 16 << 10, ..config }
}

/// One side's actions at the start of a stage.
type Act = fn(&mut Side, Now);

/// The stages: the acting side, and its actions. Every frame occurs except requests for repairs.
pub(crate) const STAGES: [(usize, Act); 20] = [
    (0, |_, _| {}),
    (0, |side, now| open(side, "files.example", Some(Plan::default()), now)),
    (1, accept),
    (0, |side, now| send(side, FIRST, &[noise(6000), text(3000)].concat(), now)),
    (1, |side, now| send(side, FIRST, &text(5000), now)),
    (0, |side, now| open(side, "files.example", Some(chunks()), now)),
    (1, accept),
    (0, |side, now| {
        send(side, SECOND, &[noise(6000), noise(9000)].concat(), now);
        side.link.finish_flow(SECOND, now);
    }),
    // More than the credit, and its repeats came from the other side's other flow.
    (1, |side, now| {
        send(side, SECOND, &text(60_000), now);
        side.link.finish_flow(SECOND, now);
    }),
    (1, |side, now| open(side, "nobody.example", Some(Plan::default()), now)),
    (0, |side, now| {
        let flow = side.offered.pop_front().unwrap();
        side.link.answer_flow(flow, Err(OpenFailure::Refused), now);
    }),
    (0, |side, now| open(side, "secrets.example", None, now)),
    (1, accept),
    (0, |side, now| send(side, THIRD, &noise(1000), now)),
    // The rest is lost with its lane at the cut at the end of this stage.
    (0, |side, now| send(side, FIRST, &noise(7000)[6000..], now)),
    (0, |side, now| send(side, FIRST, &noise(6000), now)),
    (1, |side, now| side.link.set_log_limits(LogLimits { out: 400_000, inbound: 500_000 }, now)),
    (0, |side, now| send(side, FIRST, &text(3000), now)),
    (0, |side, now| side.link.abort_flow(FIRST, ResetReason::Application, now)),
    (1, |side, now| {
        side.link.finish_flow(THIRD, now);
    }),
];

/// The stage with a cut of every flow lane at its end, frames under way included.
const CUT: usize = 14;

const FIRST: FlowId = FlowId(0);
const SECOND: FlowId = FlowId(2);
const THIRD: FlowId = FlowId(4);

/// Plays both sides; returns them as they are at the end, and the frames of each stage.
pub(crate) fn play() -> ([Side; 2], Vec<Vec<Said>>) {
    let mut pair = Pair::with(1, side_config(0), side_config(1));
    let mut said = Vec::new();
    for (stage, (side, act)) in STAGES.into_iter().enumerate() {
        pair.now = time(stage);
        if stage == CUT {
            pair.lanes().iter().skip(2).for_each(|&lane| pair.block(lane, 0, true));
        }
        act(&mut pair.sides[side], pair.now);
        pair.run();
        if stage == CUT {
            let lanes = pair.lanes();
            lanes.into_iter().skip(2).for_each(|lane| pair.cut(lane));
        }
        said.push(std::mem::take(&mut pair.said));
    }
    (pair.sides, said)
}

fn chunks() -> Plan {
    Plan { matching: Matching::Chunk, ..Plan::default() }
}

fn open(side: &mut Side, name: &str, plan: Option<Plan>, now: Now) {
    let destination = Destination { host: Host::Name(name.into()), port: 80 };
    side.link.open_flow(OpenRequest { destination, source: None, as_client: false, plan }, now).unwrap();
}

fn accept(side: &mut Side, now: Now) {
    let flow = side.offered.pop_front().unwrap();
    side.link.answer_flow(flow, Ok(([192, 0, 2, 7], 80).into()), now);
}

fn send(side: &mut Side, flow: FlowId, bytes: &[u8], now: Now) {
    side.link.handle_payload(flow, Bytes::copy_from_slice(bytes), now).unwrap();
}

/// Incompressible bytes: a multiplicative congruential sequence.
fn noise(len: usize) -> Vec<u8> {
    let words = std::iter::successors(Some(1u64), |word| Some(word.wrapping_mul(0xd134_2543_de82_ef95) + 1));
    words.take(len).map(|word| (word >> 56) as u8).collect()
}

/// Compressible bytes.
fn text(len: usize) -> Vec<u8> {
    let lines = (0u32..).map(|n| format!("line {n} of a file, {}\n", n.wrapping_mul(2_654_435_761)));
    lines.flat_map(String::into_bytes).take(len).collect()
}
