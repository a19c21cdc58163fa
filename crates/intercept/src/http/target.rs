//! Request targets with unencoded bytes accepted by servers.
//!
//! The library reads no address with `<`, `>`, a backtick, some quotation marks, or bytes outside UTF-8. Each
//! such byte is replaced by a `%` before the library sees it, and put back in the request line for the origin. The
//! length of a head stays the same either way. The library takes a `%` in the zone of an IPv6 address, so
//! hosts are looked at here.

use bytes::Bytes;
use hyper::{Method, Uri};

/// Target of the request with its head being read.
#[derive(Debug, Default)]
pub(super) struct TargetReader {
    stage: Stage,
    /// Its bytes, as sent by the client.
    raw: Vec<u8>,
    /// Some of them were replaced.
    is_masked: bool,
}

/// Position of the next byte in a head.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// Before the request line: it may follow empty lines.
    #[default]
    Before,
    Method,
    Target,
    Behind,
}

/// A target as sent by the client, if it differs from the library's view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawTarget(Bytes);

/// The beginning of a request line, as written by the library and as sent.
#[derive(Debug)]
pub(super) struct RawLine {
    masked: Vec<u8>,
    raw: Vec<u8>,
    sent: usize,
}

impl TargetReader {
    /// Masks bytes refused by the library in the next bytes of a head; returns how many bytes more are kept.
    pub(super) fn mask(&mut self, bytes: &mut [u8]) -> usize {
        let before = self.raw.len();
        for byte in bytes {
            self.stage = match (self.stage, *byte) {
                (Stage::Behind, _) => break,
                (Stage::Before, b'\r' | b'\n') => Stage::Before,
                (Stage::Method, b' ') => Stage::Target,
                (_, b' ' | b'\r' | b'\n') => Stage::Behind,
                (Stage::Before | Stage::Method, _) => Stage::Method,
                (Stage::Target, _) => {
                    self.take(byte);
                    Stage::Target
                }
            };
        }
        self.raw.len() - before
    }

    fn take(&mut self, byte: &mut u8) {
        // The library refuses a longer one.
        if self.raw.len() < MAX_TARGET {
            self.raw.push(*byte);
        }
        if is_refused(*byte) {
            self.is_masked = true;
            *byte = MASK;
        }
    }

    /// Whether the request line is still to come.
    pub(super) fn is_before(&self) -> bool {
        self.stage == Stage::Before
    }

    /// The head has ended; returns its target if the library has seen another.
    pub(super) fn end(&mut self) -> Option<RawTarget> {
        let this = std::mem::take(self);
        this.is_masked.then(|| RawTarget(this.raw.into()))
    }
}

impl RawTarget {
    /// Whether no byte of the host, or of the port, was replaced.
    pub(super) fn has_plain_host(&self) -> bool {
        let scheme = self.0.windows(3).position(|three| three == b"://").map_or(0, |at| at + 3);
        let mut parts = self.0.get(scheme..).unwrap_or_default().split(|byte| b"/?#".contains(byte));
        let authority = parts.next().unwrap_or_default();
        let host = authority.rsplit(|byte| *byte == b'@').next().unwrap_or_default();
        !host.iter().any(|byte| is_refused(*byte))
    }

    /// Returns the beginning of the request line for the origin, with the library's output `path`; none if
    /// that is not of this target.
    pub(super) fn line(&self, method: &Method, path: &Uri) -> Option<RawLine> {
        let scheme = self.0.windows(3).position(|three| three == b"://")? + 3;
        let behind_scheme = self.0.get(scheme..)?;
        let authority = behind_scheme.iter().position(|byte| b"/?#".contains(byte))?;
        let mut raw = behind_scheme.get(authority..)?;
        // As the library does.
        raw = raw.split(|byte| *byte == b'#').next()?;
        let slash = if raw.first() == Some(&b'/') { "" } else { "/" };
        let begin = |target: &[u8]| [method.as_str().as_bytes(), b" ", target, b" "].concat();
        let raw = [slash.as_bytes(), raw].concat();
        let masked: Vec<u8> = raw.iter().map(|byte| if is_refused(*byte) { MASK } else { *byte }).collect();
        let path = path.to_string();
        (path.as_bytes() == masked).then(|| RawLine { masked: begin(&masked), raw: begin(&raw), sent: 0 })
    }
}

impl RawLine {
    /// Returns the replacement of the library's next output bytes, perhaps of fewer; none if they differ.
    pub(super) fn next(&self, written: &[u8]) -> Option<&[u8]> {
        let expected = self.masked.get(self.sent..)?;
        let len = expected.len().min(written.len());
        let is_expected = written.get(..len)? == expected.get(..len)?;
        self.raw.get(self.sent..self.sent + len).filter(|_| is_expected)
    }

    /// Notes sent bytes; returns whether that is all.
    pub(super) fn sent(&mut self, bytes: usize) -> bool {
        self.sent += bytes;
        self.sent >= self.raw.len()
    }
}

/// Whether the library may refuse a byte in a path or a query.
fn is_refused(byte: u8) -> bool {
    matches!(byte, b'<' | b'>' | b'`' | b'"') || !byte.is_ascii()
}

/// Replacement of a refused byte.
const MASK: u8 = b'%';

/// The library's longest target.
const MAX_TARGET: usize = u16::MAX as usize;

#[cfg(test)]
mod tests {
    use super::*;

    /// Masks a head of two pieces; returns the library's view, and the target.
    fn masked(head: &[u8], cut: usize) -> (Vec<u8>, Option<RawTarget>) {
        let (mut reader, mut head) = (TargetReader::default(), head.to_vec());
        let (first, second) = head.split_at_mut(cut);
        let kept = reader.mask(first) + reader.mask(second);
        assert_eq!(kept, reader.raw.len());
        (head, reader.end())
    }

    #[test]
    fn only_the_target_is_masked_at_any_cut() {
        let head = b"\r\nGET http://a/<\xe9>\" HTTP/1.1\r\nReferer: <\xe9>\r\n\r\n";
        let seen = b"\r\nGET http://a/%%%% HTTP/1.1\r\nReferer: <\xe9>\r\n\r\n";
        for cut in 0..=head.len() {
            let (got, raw) = masked(head, cut);
            assert_eq!(got.as_slice(), seen, "{cut}");
            assert_eq!(raw, Some(RawTarget(Bytes::from_static(b"http://a/<\xe9>\""))));
        }
        let plain = b"GET http://a/{%3C|}?^ HTTP/1.1\r\nReferer: <\xe9>\r\n\r\n";
        assert_eq!(masked(plain, 9), (plain.to_vec(), None));
    }

    #[test]
    fn invalid_request_line_is_left_alone() {
        for head in
            [&b" GET http://a/< HTTP/1.1\r\n\r\n"[..], b"<\xe9\r\nGET http://a/<", b"G<T\nb <", b"GET  < x"]
        {
            assert_eq!(masked(head, 1), (head.to_vec(), None), "{}", head.escape_ascii());
        }
    }

    #[test]
    fn origin_gets_the_original_request_line() {
        for (target, path, raw) in [
            (&b"http://a/b<c>?d=\xe9"[..], "/b%c%?d=%", &b"/b<c>?d=\xe9"[..]),
            (b"http://a?<", "/?%", b"/?<"),
            (b"http://u<r:p@a/%41<#<>", "/%41%", b"/%41<"),
        ] {
            let line =
                RawTarget(Bytes::from_static(target)).line(&Method::GET, &path.parse().unwrap()).unwrap();
            assert_eq!(line.raw, [b"GET ", raw, b" "].concat());
        }
        let target = RawTarget(Bytes::from_static(b"http://a/<"));
        assert!(target.line(&Method::GET, &"/b".parse().unwrap()).is_none(), "another path");
        assert!(target.line(&Method::GET, &"/<".replace('<', "%%").parse().unwrap()).is_none());
    }

    #[test]
    fn replaced_byte_of_a_host_is_found_in_every_form() {
        for (target, is_plain) in [
            (&b"http://[fe80::1<lo]/"[..], false),
            (b"http://u<r@[::1\xe9lo]?a", false),
            (b"[::1<lo]:80", false),
            (b"http://u<r@[::1]:80/@<", true),
            (b"http://a#<", true),
            (b"/<", true),
        ] {
            let raw = RawTarget(Bytes::from_static(target));
            assert_eq!(raw.has_plain_host(), is_plain, "{}", target.escape_ascii());
        }
    }

    #[test]
    fn request_line_is_sent_in_pieces_and_only_for_itself() {
        let target = RawTarget(Bytes::from_static(b"http://a/<>"));
        let mut line = target.line(&Method::GET, &"/%%".parse().unwrap()).unwrap();
        assert_eq!(line.next(b"POST /%% HTTP/1.1"), None);
        assert_eq!(line.next(b"GET /%% HTTP/1.1"), Some(&b"GET /<> "[..]));
        assert!(!line.sent(6));
        assert_eq!(line.next(b"%"), Some(&b">"[..]));
        assert_eq!(line.next(b"> HTTP"), None);
        assert!(line.sent(2));
    }
}
