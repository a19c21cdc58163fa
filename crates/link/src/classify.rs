//! Recognising ciphers by how their streams begin: what is enciphered repeats nothing.

use std::fmt;

/// A cipher that is neither scanned nor remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Cipher {
    /// TLS: a handshake record with a client or server hello.
    Tls,
    /// ssh: its identification line.
    Ssh,
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls => "tls",
            Self::Ssh => "ssh",
        })
    }
}

/// Recognises a cipher by the first bytes that an application sent.
pub(crate) fn recognise(first: &[u8]) -> Option<Cipher> {
    match first {
        // Record type handshake, version 3.x, length, then the type of handshake message [RFC 8446 §4, §5.1].
        [0x16, 0x03, 0..=4, _, _, 0x01 | 0x02, ..] => Some(Cipher::Tls),
        _ if first.starts_with(b"SSH-2.0-") || first.starts_with(b"SSH-1.99-") => Some(Cipher::Ssh),
        _ => None,
    }
}

/// Returns what follows a PROXY protocol header of version 2, which speaks of the client and is not yet the
/// application's stream; all of it if there is none.
pub(crate) fn behind_proxy_header(bytes: &[u8]) -> &[u8] {
    let Some(header) = bytes.strip_prefix(PROXY_SIGNATURE) else { return bytes };
    let [_version, _family, high, low, rest @ ..] = header else { return &[] };
    rest.get(usize::from(u16::from_be_bytes([*high, *low]))..).unwrap_or_default()
}

/// [PROXY protocol §2.2].
const PROXY_SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_header_is_not_the_beginning_of_a_stream() {
        let header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x02ab".as_slice();
        assert_eq!(behind_proxy_header(header), b"");
        assert_eq!(behind_proxy_header(&[header, b"SSH-2.0-x"].concat()), b"SSH-2.0-x");
        assert_eq!(behind_proxy_header(&header[..13]), b"");
        assert_eq!(behind_proxy_header(b"GET /"), b"GET /");
    }

    #[test]
    fn tls_and_ssh_are_recognised_and_nothing_else_is() {
        assert_eq!(recognise(&[0x16, 3, 1, 2, 0, 1, 0, 1]), Some(Cipher::Tls));
        assert_eq!(recognise(&[0x16, 3, 3, 0, 90, 2, 0, 0]), Some(Cipher::Tls));
        assert_eq!(recognise(b"SSH-2.0-OpenSSH_9.2\r\n"), Some(Cipher::Ssh));
        assert_eq!(recognise(&[0x16, 3, 1, 2]), None);
        assert_eq!(recognise(b"GET / HTTP/1.1\r\n"), None);
        assert_eq!(recognise(b""), None);
    }
}
