//! The library's position in a client's stream.
//!
//! In a head it is given nothing behind the first empty line, the end of every head; leading empty lines are
//! given with the head. So it holds nothing of the content when a head has ended, and is then given no more
//! than the content: the first byte of the next head is known. Behind content in chunks it is known if all
//! bytes read end with an empty line, as such content does.

use super::target::{RawTarget, TargetReader};

/// The next byte for the library.
#[derive(Debug)]
pub(super) struct Position {
    place: Place,
    /// How many heads the library has read.
    heads: u64,
    blank: BlankLine,
    /// How many bytes of empty lines lead the head so far.
    leading: usize,
    /// Whether the last bytes read went on behind an empty line.
    went_on: bool,
}

#[derive(Debug)]
enum Place {
    /// In a head with a known first byte.
    Head(TargetReader),
    /// In content with so many more bytes, or in a head at 0.
    Sized(u64),
    /// Of content in chunks.
    Chunked,
    /// Behind such content; the library may hold a part of it.
    BehindChunked,
    /// Anything: nothing is replaced.
    Unknown,
}

/// Extent of the library's next read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reach {
    /// The available bytes, up to the end of the head.
    ToBlankLine,
    /// So much.
    Bytes(usize),
}

impl Default for Position {
    fn default() -> Self {
        let (heads, blank, leading, went_on) = Default::default();
        Self { place: Place::Head(TargetReader::default()), heads, blank, leading, went_on }
    }
}

impl Position {
    /// Returns the extent of the library's next read.
    pub(super) fn reach(&mut self) -> Reach {
        match self.place {
            // It holds nothing but parts of empty lines: with more it would not read.
            Place::BehindChunked if self.blank.is_behind => self.place = Place::Head(TargetReader::default()),
            Place::BehindChunked => self.place = Place::Unknown,
            Place::Sized(0) => self.place = Place::Head(TargetReader::default()),
            _ => {}
        }
        match self.place {
            Place::Head(_) => Reach::ToBlankLine,
            Place::Sized(left) => Reach::Bytes(usize::try_from(left).unwrap_or(usize::MAX)),
            Place::Chunked | Place::BehindChunked | Place::Unknown => Reach::Bytes(usize::MAX),
        }
    }

    /// Returns how many available bytes belong to the head; none for too many leading empty lines.
    pub(super) fn of_head(&self, there: &[u8]) -> Option<usize> {
        let leading = self.leading(there);
        if self.leading + leading > MAX_LEADING {
            return None;
        }
        let behind = there.get(leading..).unwrap_or_default();
        Some(leading + self.blank.end(behind).unwrap_or(behind.len()))
    }

    /// Returns the length of a piece's leading empty lines ahead of a head.
    fn leading(&self, piece: &[u8]) -> usize {
        match &self.place {
            Place::Head(target) if target.is_before() => {
                piece.iter().take_while(|byte| b"\r\n".contains(byte)).count()
            }
            _ => 0,
        }
    }

    /// Goes through the library's input, and masks forbidden bytes; returns how many bytes more are kept.
    pub(super) fn go_through(&mut self, read: &mut [u8]) -> usize {
        let leading = self.leading(read);
        self.leading += leading;
        let behind = read.get(leading..).unwrap_or_default();
        let end = self.blank.go_through(behind);
        self.went_on = end.is_some_and(|end| end < behind.len());
        match &mut self.place {
            Place::Head(target) => target.mask(read),
            Place::Sized(left) => {
                *left = left.saturating_sub(read.len() as u64);
                0
            }
            Place::Chunked | Place::BehindChunked | Place::Unknown => 0,
        }
    }

    /// The library has read a head, with so much content, or content in chunks; returns its target if the library has
    /// seen another.
    pub(super) fn end_head(&mut self, content: Option<u64>) -> Option<RawTarget> {
        self.heads += 1;
        self.leading = 0;
        let Place::Head(target) = &mut self.place else {
            self.place = Place::Unknown;
            return None;
        };
        let raw = target.end();
        self.place = content.map_or(Place::Chunked, Place::Sized);
        raw
    }

    /// Returns the number of the last request read.
    pub(super) fn request(&self) -> u64 {
        self.heads
    }

    /// The content of a request has been read to its end.
    pub(super) fn end_content(&mut self, request: u64) {
        // An earlier one may be found to have ended late.
        if request == self.heads && matches!(self.place, Place::Chunked) {
            self.place = Place::BehindChunked;
        }
    }

    /// Whether the library was given more than the head of a request.
    pub(super) fn went_on(&self) -> bool {
        self.went_on
    }
}

/// Finds empty lines, the ends of heads, in a stream of pieces.
#[derive(Clone, Copy, Debug, Default)]
struct BlankLine {
    /// Since the last end of a line there was nothing, or a carriage return.
    is_empty: bool,
    /// The last byte was the end of an empty line.
    is_behind: bool,
}

impl BlankLine {
    /// Returns the end of a piece's first empty line, behind it; looks no further.
    fn end(mut self, piece: &[u8]) -> Option<usize> {
        piece.iter().position(|byte| self.is_end(*byte)).map(|at| at + 1)
    }

    /// Goes through a piece; returns the end of its first empty line, behind it.
    fn go_through(&mut self, piece: &[u8]) -> Option<usize> {
        let mut first = None;
        for (at, byte) in piece.iter().enumerate() {
            if self.is_end(*byte) {
                first = first.or(Some(at + 1));
            }
        }
        first
    }

    /// Takes the next byte; returns whether it is the end of an empty line.
    fn is_end(&mut self, byte: u8) -> bool {
        self.is_behind = byte == b'\n' && self.is_empty;
        match byte {
            b'\n' => self.is_empty = true,
            b'\r' => {}
            _ => self.is_empty = false,
        }
        self.is_behind
    }
}

/// The most bytes of empty lines ahead of a head: 100 lines, as in some servers. The library goes through all
/// of them with each later byte.
const MAX_LEADING: usize = 200;

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn end_of_a_head_is_found_at_any_cut() {
        let head = b"PUT / HTTP/1.1\r\nHost: a\r\n\r\n";
        for cut in 0..head.len() {
            let mut blank = BlankLine::default();
            assert_eq!(blank.go_through(&head[..cut]), None, "{cut}");
            assert_eq!(blank.go_through(&head[cut..]), Some(head.len() - cut), "{cut}");
        }
        assert_eq!(BlankLine::default().go_through(b"GET / HTTP/1.1\nHost: a\n\nbody\n\n"), Some(24));
        assert_eq!(BlankLine::default().go_through(b"GET / HTTP/1.1\r\nA\rb: c\r\n"), None);
    }

    const HEAD: &[u8] = b"GET http://a/< HTTP/1.1\r\n\r\n";

    /// Reads as the library does from a complete stream, until it has read a head.
    fn read_head(position: &mut Position, stream: &mut &[u8]) -> Vec<u8> {
        assert_eq!(position.reach(), Reach::ToBlankLine);
        let (head, rest) = stream.split_at(position.of_head(stream).unwrap());
        *stream = rest;
        let mut head = head.to_vec();
        position.go_through(&mut head);
        head
    }

    fn pass(position: &mut Position, mut bytes: Vec<u8>) -> Vec<u8> {
        position.go_through(&mut bytes);
        bytes
    }

    #[test]
    fn only_heads_are_masked_behind_sized_content() {
        let requests = [HEAD, HEAD, HEAD].concat();
        let (mut position, mut stream) = (Position::default(), requests.as_slice());
        let seen = HEAD.escape_ascii().to_string().replace('<', "%");
        assert_eq!(read_head(&mut position, &mut stream).escape_ascii().to_string(), seen);
        // The content looks like a request.
        assert!(position.end_head(Some(HEAD.len() as u64)).is_some());
        assert_eq!(position.reach(), Reach::Bytes(HEAD.len()));
        let (content, rest) = stream.split_at(HEAD.len());
        stream = rest;
        let (first, second) = content.split_at(3);
        assert_eq!(pass(&mut position, first.to_vec()), first);
        assert_eq!(position.reach(), Reach::Bytes(HEAD.len() - 3));
        assert_eq!(pass(&mut position, second.to_vec()), second);
        assert_eq!(read_head(&mut position, &mut stream).escape_ascii().to_string(), seen);
        assert!(position.end_head(Some(0)).is_some());
    }

    #[test]
    fn head_behind_chunks_needs_a_known_first_byte() {
        for (content, ended, known) in [
            (&b"1\r\na\r\n0\r\n\r\n"[..], true, true),
            (b"1\r\na\r\n0\r\nX-Sum: 1\r\n\r\n", true, true),
            // A part of the next request came with it.
            (b"1\r\na\r\n0\r\n\r\nGET http://a/", true, false),
            // The content may go on: its end has not been read.
            (b"1\r\na\r\n0\r\n\r\n", false, false),
        ] {
            let mut position = Position::default();
            read_head(&mut position, &mut &HEAD[..]);
            position.end_head(None);
            assert_eq!(position.reach(), Reach::Bytes(usize::MAX));
            assert_eq!(pass(&mut position, content.to_vec()), content);
            position.end_content(position.request() - 1);
            assert_eq!(position.reach(), Reach::Bytes(usize::MAX), "another request's content has ended");
            if ended {
                position.end_content(position.request());
            }
            let is_known = position.reach() == Reach::ToBlankLine;
            assert_eq!(is_known, known, "{}", content.escape_ascii());
            assert_eq!(pass(&mut position, HEAD.to_vec()) != HEAD, known);
        }
    }

    /// A request: its target, its content, and whether that comes in chunks and is read to its end.
    type Sent = (Vec<u8>, Vec<u8>, bool, bool);

    fn sent() -> impl Strategy<Value = Sent> {
        let byte = |choice: &'static [u8]| prop::sample::select(choice);
        let target = vec(byte(b"<>`\"\xe9\xff%?/ab"), 1..8);
        (target, vec(byte(b"\r\n<\xe9 G:"), 0..30), any::<bool>(), any::<bool>())
    }

    proptest! {
        #[test]
        fn only_targets_are_masked(requests in vec(sent(), 1..8), pieces in vec(1_usize..40, 1..20)) {
            let (mut position, mut stream, mut pieces) = (Position::default(), Vec::new(), pieces.iter().cycle());
            // Ends of each request's target, head and content.
            let mut ends = Vec::new();
            for (target, content, in_chunks, is_read) in &requests {
                stream.extend_from_slice(if *is_read { b"\r\n\nPUT " } else { b"PUT " });
                let begin = stream.len();
                stream.extend_from_slice(target);
                let end = stream.len();
                stream.extend_from_slice(b" HTTP/1.1\r\nA: <\xe9\r\n\r\n");
                let head = stream.len();
                stream.extend_from_slice(content);
                stream.extend_from_slice(if *in_chunks { b"\r\n0\r\n\r\n" } else { b"" });
                ends.push((begin..end, head, stream.len()));
            }
            let mut given = Vec::new();
            let mut read_to = |position: &mut Position, given: &mut Vec<u8>, end: usize| {
                while given.len() < end {
                    let there = &stream[given.len()..];
                    let there = &there[..there.len().min(*pieces.next().unwrap())];
                    let len = match position.reach() {
                        Reach::ToBlankLine => position.of_head(there).unwrap(),
                        Reach::Bytes(most) => there.len().min(most),
                    };
                    given.extend_from_slice(&pass(position, there[..len].to_vec()));
                }
            };
            for ((_, content, in_chunks, is_read), (target, head, end)) in requests.iter().zip(&ends) {
                read_to(&mut position, &mut given, *head);
                let raw = position.end_head((!in_chunks).then_some(content.len() as u64));
                let is_masked = given[target.clone()] != stream[target.clone()];
                prop_assert_eq!(raw.is_some(), is_masked);
                read_to(&mut position, &mut given, *end);
                if *in_chunks && *is_read {
                    position.end_content(position.request());
                }
            }
            let in_target = |at: usize| ends.iter().any(|(target, ..)| target.contains(&at));
            for (at, (got, was)) in given.iter().zip(&stream).enumerate() {
                prop_assert!(got == was || *got == b'%' && in_target(at), "at {}", at);
            }
        }
    }

    #[test]
    fn leading_empty_lines_come_with_their_request() {
        let requests = [b"\r\n\n", HEAD, b"\n\r\n", HEAD, b"\r\n"].concat();
        let (mut position, mut stream) = (Position::default(), requests.as_slice());
        for lines in [&b"\r\n\n"[..], b"\n\r\n"] {
            assert_eq!(read_head(&mut position, &mut stream).len(), lines.len() + HEAD.len());
            assert!(!position.went_on(), "empty lines are no content");
            assert!(position.end_head(Some(0)).is_some());
        }
        assert_eq!(read_head(&mut position, &mut stream), b"\r\n");
    }

    #[test]
    fn leading_empty_lines_are_limited_in_any_pieces() {
        let lines = vec![b'\n'; 64 << 10];
        let mut position = Position::default();
        assert_eq!(position.of_head(&lines), None);
        for (at, line) in lines.chunks(1).enumerate() {
            let expected = (at < MAX_LEADING).then_some(1);
            assert_eq!(position.of_head(line), expected, "{at}");
            if expected.is_none() {
                break;
            }
            pass(&mut position, line.to_vec());
        }
        assert_eq!(position.of_head(HEAD), Some(HEAD.len()), "a head may still come");
        pass(&mut position, HEAD.to_vec());
        position.end_head(Some(0));
        assert_eq!(position.reach(), Reach::ToBlankLine);
        assert_eq!(position.of_head(b"\n"), Some(1), "each head has its own");
    }
}
