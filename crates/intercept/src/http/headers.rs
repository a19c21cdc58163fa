//! A proxy's changes to a message's head.
//!
//! See RFC 9110 §7.6 and RFC 9112 §3.2.

use std::borrow::Cow;

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};

/// Turns a client's request into the one for the origin; false if the address does not allow it.
pub(super) fn to_origin<B>(request: &mut Request<B>, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    // Names and passwords in an address are not part of a Host field.
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    let Ok(host) = HeaderValue::from_str(&without_zone(host)) else { return false };
    let version = request.version();
    *request.version_mut() = Version::HTTP_11;
    let protocols = wanted_protocols(request.headers()).filter(|_| version == Version::HTTP_11);
    let headers = request.headers_mut();
    let is_chunked = headers.contains_key(TRANSFER_ENCODING);
    remove_hop_by_hop(headers);
    if is_chunked {
        // hyper sends content of a GET or HEAD only if its form is given.
        headers.insert(TRANSFER_ENCODING, HeaderValue::from_static("chunked"));
    }
    if let Some(protocols) = protocols {
        headers.insert(UPGRADE, protocols);
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    // RFC 9112 §3.2.2: the address in absolute form overrides the Host field.
    headers.insert(HOST, host);
    add_via(headers, version);
    true
}

/// Removes the zone of an address, meaningless to others (RFC 6874 §4).
fn without_zone(host: &str) -> Cow<'_, str> {
    match host.split_once('%') {
        Some((ip, zone)) if ip.starts_with('[') => {
            let behind = zone.find(']').and_then(|end| zone.get(end..)).unwrap_or_default();
            Cow::Owned([ip, behind].concat())
        }
        _ => Cow::Borrowed(host),
    }
}

/// Turns an origin's response into the one for the client.
pub(super) fn to_client<B>(response: &mut Response<B>) {
    let (version, status) = (response.version(), response.status());
    *response.version_mut() = Version::HTTP_11;
    let headers = response.headers_mut();
    let mut protocols = Vec::new();
    if [StatusCode::SWITCHING_PROTOCOLS, StatusCode::UPGRADE_REQUIRED].contains(&status) {
        protocols.extend(headers.get_all(UPGRADE).iter().cloned());
    }
    remove_hop_by_hop(headers);
    if !protocols.is_empty() {
        headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    }
    protocols.into_iter().for_each(|protocols| {
        headers.append(UPGRADE, protocols);
    });
    if status == StatusCode::SWITCHING_PROTOCOLS {
        // RFC 9110 §8.6: it has none.
        headers.remove(CONTENT_LENGTH);
    }
    add_via(headers, version);
}

/// Whether a request for an origin asks to switch protocols.
pub(super) fn asks_to_switch<B>(request: &Request<B>) -> bool {
    request.headers().contains_key(UPGRADE)
}

/// Returns a client's requested upgrade protocols. Not HTTP/2: its settings are in a field for this hop
/// alone.
fn wanted_protocols(headers: &HeaderMap) -> Option<HeaderValue> {
    let is_asked = list(headers, CONNECTION).any(|option| option.eq_ignore_ascii_case(b"upgrade"));
    let protocols: Vec<_> =
        list(headers, UPGRADE).filter(|protocol| !protocol.eq_ignore_ascii_case(b"h2c")).collect();
    let is_asked = is_asked && !protocols.is_empty();
    is_asked.then(|| HeaderValue::from_bytes(&protocols.join(&b", "[..])).ok()).flatten()
}

/// Returns the members of a list field (RFC 9110 §5.6.1).
fn list(headers: &HeaderMap, name: HeaderName) -> impl Iterator<Item = &[u8]> {
    let values = headers.get_all(name).into_iter();
    let members = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    members.map(<[u8]>::trim_ascii).filter(|member| !member.is_empty())
}

/// Counts this proxy against a request's hop limit; false if it may go no further (RFC 9110 §7.6.2).
pub(super) fn may_go_on<B>(request: &mut Request<B>) -> bool {
    if ![Method::OPTIONS, Method::TRACE].contains(request.method()) {
        return true;
    }
    let Some(value) = request.headers_mut().get_mut(MAX_FORWARDS) else { return true };
    let number = value.to_str().ok().and_then(|value| value.trim().parse::<u64>().ok());
    match number.map(|number| number.checked_sub(1)) {
        Some(Some(left)) => *value = HeaderValue::from(left),
        Some(None) => return false,
        // An invalid number counts as none.
        None => {}
    }
    true
}

/// Whether the body is plain or in chunks; another coding, not undone here, would be lost with its field.
pub(super) fn is_plain_or_chunked(headers: &HeaderMap) -> bool {
    list(headers, TRANSFER_ENCODING).all(|coding| coding.eq_ignore_ascii_case(b"chunked"))
}

/// Removes fields meant for the next hop only, and those named by the Connection field.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<_> =
        list(headers, CONNECTION).filter_map(|name| HeaderName::from_bytes(name).ok()).collect();
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 §6.3: chunks decide, and a contradicting length would cut the body for the next hop.
        headers.remove(CONTENT_LENGTH);
    }
    for name in named.iter().chain(&[
        CONNECTION,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
        PROXY_AUTHENTICATE,
        PROXY_AUTHORIZATION,
        TE,
        TRANSFER_ENCODING,
        UPGRADE,
    ]) {
        headers.remove(name);
    }
}

fn add_via(headers: &mut HeaderMap, version: Version) {
    let via = if version == Version::HTTP_10 { "1.0 oncewire" } else { "1.1 oncewire" };
    headers.append(VIA, HeaderValue::from_static(via));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent_on(uri: &str, fields: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let mut request = request.body(()).unwrap();
        assert!(to_origin(&mut request, &uri.parse().unwrap()));
        request
    }

    #[test]
    fn absolute_address_becomes_a_path_and_a_host() {
        let request = sent_on("http://anna:word@example.net:81/a?b=c", &[("host", "elsewhere")]);
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "example.net:81");
        assert_eq!(sent_on("http://example.net", &[]).uri(), "/");
        for (host, expected) in [
            ("anna@[fe80::1%25eth0]:81", "[fe80::1]:81"),
            ("[fe80::1%eth0]", "[fe80::1]"),
            ("[2001:db8::1]:81", "[2001:db8::1]:81"),
        ] {
            assert_eq!(sent_on(&format!("http://{host}/%41"), &[]).headers()[HOST], expected);
        }
    }

    #[test]
    fn max_forwards_counts_down_for_options_and_trace_alone() {
        for (method, value, left) in [
            ("OPTIONS", "3", Some("2")),
            ("TRACE", "1", Some("0")),
            ("OPTIONS", "0", None),
            ("TRACE", "0", None),
            ("GET", "0", Some("0")),
            ("OPTIONS", "many", Some("many")),
        ] {
            let mut request = Request::builder().method(method).header(MAX_FORWARDS, value).body(()).unwrap();
            assert_eq!(may_go_on(&mut request), left.is_some(), "{method} {value}");
            if let Some(left) = left {
                assert_eq!(request.headers()[MAX_FORWARDS], left, "{method} {value}");
            }
        }
        assert!(may_go_on(&mut Request::builder().method("TRACE").body(()).unwrap()));
    }

    #[test]
    fn only_end_to_end_fields_are_sent_on() {
        let request = sent_on(
            "http://example.net/",
            &[
                ("connection", "keep-alive, x-secret"),
                ("proxy-connection", "keep-alive"),
                ("proxy-authorization", "Basic eA=="),
                ("x-secret", "1"),
                ("x-kept", "2"),
                ("accept-encoding", "gzip"),
            ],
        );
        let mut names: Vec<_> = request.headers().keys().map(HeaderName::as_str).collect();
        names.sort_unstable();
        assert_eq!(names, ["accept-encoding", "host", "via", "x-kept"]);
    }

    #[test]
    fn upgrades_are_sent_on_only_under_a_connection_field() {
        for (connection, upgrade, expected) in [
            ("Upgrade", "websocket", Some("websocket")),
            ("keep-alive, UPGRADE, x-secret", "TLS/1.0 , tcp", Some("TLS/1.0, tcp")),
            ("Upgrade, HTTP2-Settings", "h2c", None),
            ("Upgrade, HTTP2-Settings", "h2c, websocket", Some("websocket")),
            ("keep-alive", "websocket", None),
            ("Upgrade", "", None),
        ] {
            let fields = [
                ("connection", connection),
                ("upgrade", upgrade),
                ("x-secret", "1"),
                ("http2-settings", "AA"),
            ];
            let request = sent_on("http://example.net/", &fields);
            let got = request.headers().get(UPGRADE).map(|value| value.to_str().unwrap());
            assert_eq!(got, expected, "{connection}: {upgrade}");
            assert_eq!(asks_to_switch(&request), expected.is_some());
            let option = request.headers().get(CONNECTION).map(|value| value.to_str().unwrap());
            assert_eq!(option, expected.map(|_| "Upgrade"));
            let is_listed = |name: &str| connection.to_ascii_lowercase().contains(name);
            for name in ["x-secret", "http2-settings"] {
                assert_eq!(request.headers().contains_key(name), !is_listed(name), "{connection}: {name}");
            }
        }
        let mut old = Request::builder().uri("http://a/").version(Version::HTTP_10);
        old = old.header(CONNECTION, "Upgrade").header(UPGRADE, "websocket");
        let mut old = old.body(()).unwrap();
        assert!(to_origin(&mut old, &"http://a/".parse().unwrap()) && !asks_to_switch(&old));
    }

    #[test]
    fn answers_name_protocols_only_to_switch_or_require_it() {
        for (status, named) in [(101, true), (426, true), (200, false)] {
            let response =
                Response::builder().status(status).header(UPGRADE, "websocket").header("x-hop", "1");
            let mut response =
                response.header(CONNECTION, "upgrade, x-hop").header(CONTENT_LENGTH, "0").body(()).unwrap();
            to_client(&mut response);
            let headers = response.headers();
            assert_eq!(headers.contains_key(UPGRADE) && headers[CONNECTION] == "Upgrade", named, "{status}");
            assert_eq!(headers.contains_key(CONTENT_LENGTH), status != 101, "{status}");
            assert!(!headers.contains_key("x-hop"));
        }
    }
}
