//! Traces of flows, as text.

use std::collections::BTreeMap;
use std::num::ParseIntError;
use std::time::Duration;

use bytes::Bytes;

use super::{FAR, FlowPlan, NEAR};
use crate::corpus::Corpus;

/// Why a trace cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the trace: {problem}")]
pub struct TraceError {
    /// The line, from 1.
    pub line: usize,
    /// The problem.
    pub problem: TraceProblem,
}

/// A problem of a line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TraceProblem {
    /// Too few fields.
    #[error("a flow is a start in milliseconds, a class, and turns like far:text:1:20000")]
    Fields,
    /// No number.
    #[error("`{0}` is no number")]
    Number(String),
    /// No side.
    #[error("`{0}` is neither near nor far")]
    Side(String),
    /// No kind of content.
    #[error("`{0}` is no content: random, text, records or log")]
    Content(String),
    /// Too much content.
    #[error("a turn has at most {MAX_TURN} bytes")]
    TooLong,
}

/// Reads a trace: one flow a line, `START_MS CLASS SIDE:CONTENT:SEED:BYTES…`; each turn waits for the other side's
/// earlier ones. Equal content, seed and length are equal bytes. Empty lines and those with `#` in front are comments.
///
/// # Errors
/// The first line with a problem.
pub fn parse_trace(text: &str) -> Result<Vec<(Duration, FlowPlan)>, TraceError> {
    let mut contents = BTreeMap::new();
    let lines = text.lines().enumerate().map(|(at, line)| (at + 1, line.trim()));
    let flows = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    flows
        .map(|(at, line)| parse_flow(line, &mut contents).map_err(|problem| TraceError { line: at, problem }))
        .collect()
}

/// The contents so far, so that repeats share their memory.
type Contents = BTreeMap<(String, u64, usize), Bytes>;

fn parse_flow(line: &str, contents: &mut Contents) -> Result<(Duration, FlowPlan), TraceProblem> {
    let mut fields = line.split_whitespace();
    let (Some(start), Some(class)) = (fields.next(), fields.next()) else { return Err(TraceProblem::Fields) };
    let start = Duration::from_millis(number(start)?);
    let turns: Vec<(usize, Bytes)> =
        fields.map(|turn| parse_turn(turn, contents)).collect::<Result<_, TraceProblem>>()?;
    if turns.is_empty() {
        return Err(TraceProblem::Fields);
    }
    Ok((start, FlowPlan::turns(class, turns)))
}

fn parse_turn(turn: &str, contents: &mut Contents) -> Result<(usize, Bytes), TraceProblem> {
    let parts: Vec<&str> = turn.split(':').collect();
    let &[side, kind, seed, len] = parts.as_slice() else { return Err(TraceProblem::Fields) };
    let side = match side {
        "near" => NEAR,
        "far" => FAR,
        _ => return Err(TraceProblem::Side(side.to_owned())),
    };
    let (seed, len) = (number(seed)?, usize::try_from(number(len)?).map_err(|_| TraceProblem::TooLong)?);
    if len > MAX_TURN {
        return Err(TraceProblem::TooLong);
    }
    let key = (kind.to_owned(), seed, len);
    if let Some(content) = contents.get(&key) {
        return Ok((side, content.clone()));
    }
    let mut corpus = Corpus::new(seed);
    let content = match kind {
        "random" => corpus.random(len),
        "text" => corpus.text(len),
        "records" => corpus.records(len),
        "log" => corpus.log(len),
        _ => return Err(TraceProblem::Content(kind.to_owned())),
    };
    let content = Bytes::from(content);
    contents.insert(key, content.clone());
    Ok((side, content))
}

fn number(text: &str) -> Result<u64, TraceProblem> {
    text.parse().map_err(|_: ParseIntError| TraceProblem::Number(text.to_owned()))
}

/// The most bytes of a turn.
const MAX_TURN: usize = 1 << 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_are_read_with_their_turns() {
        let trace = "# a comment\n\n20 web near:random:1:200 far:text:5:3000 near:random:1:200\n0 film far:log:7:10\n";
        let flows = parse_trace(trace).unwrap();
        let [(start, web), (_, film)] = flows.as_slice() else { panic!("{flows:?}") };
        assert_eq!((start.as_millis(), web.class.as_str(), film.class.as_str()), (20, "web", "film"));
        let turns: Vec<_> =
            web.turns.iter().map(|turn| (turn.from, turn.after, turn.content.len())).collect();
        assert_eq!(turns, [(NEAR, 0, 200), (FAR, 200, 3000), (NEAR, 3000, 200)]);
        assert_eq!(web.turns[0].content, web.turns[2].content);
    }

    #[test]
    fn problems_name_their_line() {
        for (line, problem) in [
            ("5", TraceProblem::Fields),
            ("5 web", TraceProblem::Fields),
            ("5 web far:text:1", TraceProblem::Fields),
            ("x web far:text:1:1", TraceProblem::Number("x".to_owned())),
            ("5 web up:text:1:1", TraceProblem::Side("up".to_owned())),
            ("5 web far:video:1:1", TraceProblem::Content("video".to_owned())),
            ("5 web far:text:1:9999999999", TraceProblem::TooLong),
        ] {
            assert_eq!(parse_trace(&format!("\n{line}")), Err(TraceError { line: 2, problem }), "{line}");
        }
    }
}
