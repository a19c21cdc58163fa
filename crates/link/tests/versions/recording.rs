//! A recorded session of both sides, replayed against one side of this build.

use std::collections::VecDeque;

use bytes::BytesMut;
use oncewire_codec::wire::{Frame, take_frame};
use oncewire_link::{Event, Hello, LaneId, LaneRole, Now};

use crate::common::{Said, Side};
use crate::script::{STAGES, side_config, time};

/// One line for each thing said: `stage`, `hello SIDE LANE ROLE BYTES`, `frames SIDE LANE BYTES`, `cut LANE`.
pub(crate) fn write(stages: &[Vec<Said>]) -> String {
    let mut out = String::new();
    for said in stages {
        out.push_str("stage\n");
        for said in said {
            out.push_str(&match said {
                Said::Hello { side, lane, role, bytes } => {
                    format!("hello {side} {} {} {}\n", lane.0, *role as u8, hex(bytes))
                }
                Said::Frames { side, lane, bytes } => format!("frames {side} {} {}\n", lane.0, hex(bytes)),
                Said::Cut(lane) => format!("cut {}\n", lane.0),
            });
        }
    }
    out
}

/// Reads the output of [`write`].
pub(crate) fn read(text: &str) -> Vec<Vec<Said>> {
    let mut stages: Vec<Vec<Said>> = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let lane = |word: &str| LaneId(word.parse().unwrap());
        let said = match words[..] {
            ["stage"] => {
                stages.push(Vec::new());
                continue;
            }
            ["hello", side, name, role, bytes] => Said::Hello {
                side: side.parse().unwrap(),
                lane: lane(name),
                role: [LaneRole::Control, LaneRole::Repair, LaneRole::Flow][role.parse::<usize>().unwrap()],
                bytes: unhex(bytes),
            },
            ["frames", side, name, bytes] => {
                Said::Frames { side: side.parse().unwrap(), lane: lane(name), bytes: unhex(bytes) }
            }
            ["cut", name] => Said::Cut(lane(name)),
            _ => panic!("no line of a recording: {line}"),
        };
        stages.last_mut().unwrap().push(said);
    }
    stages
}

/// One side of this build in a session with a recording as the other side.
pub(crate) struct Replay {
    pub(crate) side: Side,
    index: usize,
    lanes: Vec<LaneId>,
    /// This side's frames.
    pub(crate) frames: Vec<u8>,
    pub(crate) hellos: Vec<Vec<u8>>,
    now: Now,
}

impl Replay {
    /// Replays a session with this build as side `index`.
    ///
    /// # Panics
    /// If a recorded frame is refused.
    pub(crate) fn run(index: usize, stages: &[Vec<Said>]) -> Self {
        let side = Side::new(side_config(index), time(0));
        let (lanes, frames, hellos) = Default::default();
        let mut replay = Self { side, index, lanes, frames, hellos, now: time(0) };
        assert_eq!(stages.len(), STAGES.len());
        for (stage, (said, (actor, act))) in stages.iter().zip(STAGES).enumerate() {
            replay.now = time(stage);
            replay.drain();
            if actor == index {
                act(&mut replay.side, replay.now);
            }
            for said in said {
                replay.hear(said);
            }
            replay.drain();
        }
        replay
    }

    fn hear(&mut self, said: &Said) {
        self.drain();
        match said {
            Said::Hello { side, lane, role, bytes } if *side != self.index => {
                let (hello, used) = Hello::decode(bytes).unwrap().unwrap();
                assert_eq!(used, bytes.len());
                let (own, mut ours) = (self.side.link.hello(*lane, *role), Vec::new());
                own.encode(&mut ours);
                self.hellos.push(ours);
                let dialled = self.index == 0;
                self.side.link.handle_lane_up(own.instance, &hello, *lane, *role, dialled, self.now).unwrap();
                self.lanes.push(*lane);
            }
            Said::Frames { side, lane, bytes } if *side != self.index => {
                let mut input = BytesMut::from(&bytes[..]);
                self.side.link.handle_input(*lane, &mut input, self.now).unwrap();
                assert!(input.is_empty(), "a frame of the recording was not taken");
            }
            Said::Cut(lane) => {
                self.lanes.retain(|known| known != lane);
                self.side.link.handle_lane_lost(*lane, self.now);
            }
            Said::Hello { .. } | Said::Frames { .. } => {}
        }
    }

    /// Does all due work of the link.
    fn drain(&mut self) {
        loop {
            let mut events = VecDeque::new();
            while let Some(event) = self.side.link.poll_event() {
                events.push_back(event);
            }
            let mut any = !events.is_empty();
            for event in events {
                match event {
                    Event::FlowOffered { flow, .. } => self.side.offered.push_back(flow),
                    Event::FlowReadable(flow) => self.side.read(flow, self.now),
                    Event::Note(note) => self.side.notes.push(note.to_string()),
                    _ => {}
                }
            }
            for &lane in &self.lanes {
                any |= self.side.link.poll_transmit(lane, self.now, &mut self.frames);
            }
            if !any {
                return;
            }
        }
    }
}

/// Each type of frame in one side's bytes, with its number; every frame must be decodable.
pub(crate) fn census(mut frames: &[u8]) -> std::collections::BTreeMap<u8, usize> {
    let mut census = std::collections::BTreeMap::new();
    while let Some((kind, body, used)) = take_frame(frames).unwrap() {
        Frame::decode(kind, body).unwrap();
        *census.entry(kind).or_default() += 1;
        frames = &frames[used..];
    }
    assert!(frames.is_empty());
    census
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    text.as_bytes().chunks(2).map(digits).collect()
}
