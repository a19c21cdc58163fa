//! What a proxy changes in a message's head (RFC 9110 §7.6, RFC 9112 §3.2).

use hyper::header::{
    CONNECTION, CONTENT_LENGTH, HOST, HeaderMap, HeaderName, HeaderValue, MAX_FORWARDS, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE, VIA,
};
use hyper::http::uri::PathAndQuery;
use hyper::{Method, Request, Response, Uri, Version};

/// Turns a client's request into the one for the origin; false if the address does not allow it.
pub(super) fn to_origin<B>(request: &mut Request<B>, uri: &Uri) -> bool {
    let Some(authority) = uri.authority() else { return false };
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    // Names and passwords in an address are not part of a Host field.
    let host = authority.as_str().rsplit('@').next().unwrap_or_default();
    let Ok(host) = HeaderValue::from_str(host) else { return false };
    let version = request.version();
    *request.version_mut() = Version::HTTP_11;
    let headers = request.headers_mut();
    remove_hop_by_hop(headers);
    // RFC 9112 §3.2.2: the address in absolute form decides, whatever the Host field said.
    headers.insert(HOST, host);
    add_via(headers, version);
    true
}

/// Turns an origin's response into the one for the client.
pub(super) fn to_client<B>(response: &mut Response<B>) {
    let version = response.version();
    *response.version_mut() = Version::HTTP_11;
    let headers = response.headers_mut();
    remove_hop_by_hop(headers);
    add_via(headers, version);
}

/// Counts this proxy in a request that may pass only so many; false if it may go no further (RFC 9110 §7.6.2).
pub(super) fn may_go_on<B>(request: &mut Request<B>) -> bool {
    if ![Method::OPTIONS, Method::TRACE].contains(request.method()) {
        return true;
    }
    let Some(value) = request.headers_mut().get_mut(MAX_FORWARDS) else { return true };
    let number = value.to_str().ok().and_then(|value| value.trim().parse::<u64>().ok());
    match number.map(|number| number.checked_sub(1)) {
        Some(Some(left)) => *value = HeaderValue::from(left),
        Some(None) => return false,
        // What is no number says nothing.
        None => {}
    }
    true
}

/// Whether the body is sent as it is, or in chunks; another coding would be lost with the field that names it, for it is
/// not undone here.
pub(super) fn is_plain_or_chunked(headers: &HeaderMap) -> bool {
    let codings = headers
        .get_all(TRANSFER_ENCODING)
        .iter()
        .flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    codings.map(<[u8]>::trim_ascii).all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"chunked"))
}

/// Removes what is meant for the next hop only, and what the Connection field names.
fn remove_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    if headers.contains_key(TRANSFER_ENCODING) {
        // RFC 9112 §6.3: it decides, and a length that says otherwise would cut the body for the next hop.
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
    fn the_address_becomes_a_path_and_a_host() {
        let request = sent_on("http://anna:word@example.net:81/a?b=c", &[("host", "elsewhere")]);
        assert_eq!(request.uri(), "/a?b=c");
        assert_eq!(request.headers()[HOST], "example.net:81");
        assert_eq!(sent_on("http://example.net", &[]).uri(), "/");
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
    fn fields_of_one_hop_are_not_sent_on_and_others_are() {
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
}
