//! `http`: a proxy for HTTP/1.1, with CONNECT for everything else.
//!
//! Requests in absolute form (RFC 9112 §3.2.2) are forwarded hop by hop, with connections to origins kept per
//! client connection. A cut answer reaches the client as a reset: hyper drops the socket on an error, and a
//! dropped socket resets; only a shutdown takes that back. hyper does it in order, but for one case: after a
//! request with an `Upgrade` field it leaves the shutdown to others, even if nobody switches, and it is done
//! here.

mod headers;
pub(crate) mod heads;
mod interim;
mod origin;
mod origin_io;
mod position;
mod socket;
mod switch;
mod target;
mod upload;

use std::convert::Infallible;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Frame, Incoming, SizeHint};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use hyper::service::{HttpService, service_fn};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_util::rt::{TokioIo, TokioTimer};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::{Mutex, OwnedSemaphorePermit};

use oncewire_codec::wire::{Destination, Host, OpenFailure};
use oncewire_config::Users;
use oncewire_host::sockets;
use oncewire_report::Refusal;
use oncewire_tunnel::flows::ends;

use self::heads::{Excess, Exchange, MAX_FIRST_HEAD, MAX_HEAD};
use self::interim::{ClientIo, Interim};
use self::origin::{Origin, Origins};
use self::socket::{end_in_order, hear_out};
use self::target::RawTarget;
use self::upload::{Download, Gate, Upload};
use super::Door;
use super::router::NoWay;

/// Serves one client connection: any number of requests, or one tunnel.
pub(super) async fn serve(
    door: &Arc<Door>,
    stream: TcpStream,
    source: SocketAddr,
    place: OwnedSemaphorePermit,
) {
    let stream = Arc::new(stream);
    let first_limit = if door.intercept.users.is_empty() { MAX_HEAD } else { MAX_FIRST_HEAD };
    let head = door.heads.expect(first_limit);
    let interim = Arc::new(Interim::new(Arc::clone(&stream), head));
    let client = Arc::new(Client {
        door: Arc::clone(door),
        source,
        interim: Arc::clone(&interim),
        origin: Mutex::new(None),
        is_tunnel: AtomicBool::new(false),
        _place: place,
    });
    let serves = Arc::clone(&client);
    let service = service_fn(move |mut request: Request<Incoming>| {
        let client = Arc::clone(&serves);
        // Before hyper reads on.
        if let Some(raw) = client.interim.end_head(length(request.body())) {
            request.extensions_mut().insert(raw);
        }
        let exchange = Arc::new(client.interim.head().end());
        async move {
            let answer = client.handle(request, &exchange).await;
            Ok::<_, Infallible>(answer.map(|body| Answer { body, _exchange: exchange }))
        }
    });
    // An answer may still be with us when its flow has long ended.
    let _serving = door.accounts.serving();
    match serve_requests((&stream, interim), service, IDLE_LIMIT, last(door)).await {
        Ok(()) if !client.is_tunnel.load(Relaxed) => {
            if client.interim.is_settled() {
                // hyper leaves it to an upgrade, even if none happens.
                let _ = end_in_order(&stream);
            }
            hear_out(&stream, door.stopped.clone()).await;
        }
        Err(ServeError::Http(error)) if error.is_parse() => {
            door.turn_away(source, Refusal::BadRequest, &format!("does not speak HTTP/1: {error}"));
        }
        Err(ServeError::Head(excess)) => refuse_head(&client, &stream, excess).await,
        Ok(()) | Err(ServeError::Http(_) | ServeError::Gone) => {}
    }
}

/// Why the serving of requests ended early.
#[derive(Debug)]
enum ServeError {
    Http(hyper::Error),
    Head(Excess),
    /// The client is gone.
    Gone,
}

/// Returns how long content is; none if it comes in chunks.
fn length(content: &Incoming) -> Option<u64> {
    if content.is_end_stream() { Some(0) } else { content.size_hint().exact() }
}

/// Answers a client about an unread head, unless another answer has begun.
async fn refuse_head(client: &Client, stream: &TcpStream, excess: Excess) {
    let (status, why) = match excess {
        Excess::Large(limit) => (
            StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE,
            format!("the head of the request is larger than {limit} bytes"),
        ),
        Excess::Empty => (StatusCode::BAD_REQUEST, "too many empty lines lead the request".to_owned()),
        Excess::Late => (StatusCode::REQUEST_TIMEOUT, "the head of the request takes too long".to_owned()),
        Excess::Many => {
            (StatusCode::SERVICE_UNAVAILABLE, "too many requests are waited for; try again".to_owned())
        }
    };
    let refusal = if excess == Excess::Many { Refusal::TooMany } else { Refusal::BadRequest };
    client.door.turn_away(client.source, refusal, &why);
    if !client.interim.is_settled() {
        return;
    }
    let body = format!("oncewire: {why}\n");
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {PLAIN}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    // A client without room for it has not asked.
    let _ = stream.try_write(format!("{head}{body}").as_bytes());
    sockets::end_cleanly(stream);
    let _ = SockRef::from(stream).shutdown(Shutdown::Write);
    // For others their places are short.
    if excess != Excess::Many {
        hear_out(stream, client.door.stopped.clone()).await;
    }
}

/// Waits until no more requests are served here: the gateway stops, or other rules hold for the interception.
async fn last(door: &Door) {
    let mut stopped = door.stopped.clone();
    tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => {}
        () = door.router.outlived(&door.intercept) => {}
    }
}

/// Serves requests until there are no more, none for so long as `idle`, or the client is gone; after `last`,
/// until the present request is answered.
async fn serve_requests(
    (stream, interim): (&Arc<TcpStream>, Arc<Interim>),
    service: impl HttpService<Incoming, ResBody = Answer, Error = Infallible, Future: Send + 'static>,
    idle: Duration,
    last: impl Future<Output = ()>,
) -> Result<(), ServeError> {
    let head = Arc::clone(interim.head());
    let mut serving = pin!(
        hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(idle)
            .max_buf_size(MAX_HEAD + BEHIND_HEAD)
            .max_headers(MAX_FIELDS)
            .preserve_header_case(true)
            .auto_date_header(false)
            .half_close(true)
            .serve_connection(TokioIo::new(ClientIo::new(interim)), service)
            .with_upgrades()
    );
    let (mut gone, mut kept) = (pin!(gone(stream)), pin!(ends::keep_half_open(stream)));
    let (mut last, mut excess) = (pin!(last), pin!(head.excess()));
    let mut is_told = false;
    loop {
        tokio::select! {
            served = serving.as_mut() => {
                if served.as_ref().is_err_and(hyper::Error::is_timeout) {
                    // Its answers are with the system, perhaps not all sent yet.
                    sockets::end_cleanly(stream);
                }
                return served.map_err(ServeError::Http);
            }
            excess = &mut excess => return Err(ServeError::Head(excess)),
            // During the wait for an answer the client's socket has no other reader.
            () = &mut gone => return Err(ServeError::Gone),
            never = &mut kept => match never {},
            // Kept connections to origins would be waited for.
            () = &mut last, if !is_told => {
                is_told = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// Waits until there is no client to take an answer.
async fn gone(client: &TcpStream) {
    // A client may have gone after the end of its stream; its request is still done, unless it takes too
    // long.
    if ends::socket_error(client).await.kind() == io::ErrorKind::BrokenPipe {
        tokio::time::sleep(UNHEARD_LIMIT).await;
    }
}

type Body = Either<Download, Full<Bytes>>;

/// The body of an answer to a client.
struct Answer {
    body: Body,
    /// Ends with the answer and the request's content.
    _exchange: Arc<Exchange>,
}

impl hyper::body::Body for Answer {
    type Data = Bytes;
    type Error = <Body as hyper::body::Body>::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// One client connection.
struct Client {
    door: Arc<Door>,
    source: SocketAddr,
    /// Output due before its answers.
    interim: Arc<Interim>,
    /// The origin connection of the last request, for the next to the same authority.
    origin: Mutex<Option<Origin>>,
    /// Whether the connection carries something else by now.
    is_tunnel: AtomicBool,
    /// Taken as long as the client's socket is open.
    _place: OwnedSemaphorePermit,
}

impl Client {
    async fn handle(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        exchange: &Arc<Exchange>,
    ) -> Response<Body> {
        if !is_authorized(&request, &self.door.intercept.users) {
            self.door.turn_away(self.source, Refusal::BadCredentials, "no or wrong name and password");
            let mut response =
                answer(StatusCode::PROXY_AUTHENTICATION_REQUIRED, "name and password required");
            let challenge = HeaderValue::from_static("Basic realm=\"oncewire\"");
            response.headers_mut().insert(PROXY_AUTHENTICATE, challenge);
            return response;
        }
        self.interim.head().authorise();
        if request.extensions().get::<RawTarget>().is_some_and(|raw| !raw.has_plain_host()) {
            return answer(StatusCode::BAD_REQUEST, NO_HOST);
        }
        if request.method() == Method::CONNECT {
            self.tunnel(request).await
        } else if !headers::may_go_on(&mut request) {
            answer_as_last(request.method())
        } else {
            self.forward(request, exchange).await
        }
    }

    /// Sends one request on to its origin.
    async fn forward(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
        exchange: &Arc<Exchange>,
    ) -> Response<Body> {
        let uri = request.uri().clone();
        let Some(scheme) = uri.scheme_str() else {
            return answer(
                StatusCode::BAD_REQUEST,
                "this is an HTTP proxy: ask it for http://host/path, or CONNECT host:port",
            );
        };
        let destination = match destination(&uri, Some(80)) {
            Some(destination) if is_plain(scheme) => destination,
            Some(_) => return answer(StatusCode::BAD_REQUEST, "use CONNECT for anything but http://"),
            None => return answer(StatusCode::BAD_REQUEST, NO_HOST),
        };
        if !headers::is_plain_or_chunked(request.headers()) {
            return answer(
                StatusCode::NOT_IMPLEMENTED,
                "the only transfer coding that is sent on is chunked",
            );
        }
        let (spoken, on_client) = (request.version(), hyper::upgrade::on(&mut request));
        if !headers::to_origin(&mut request, &uri) {
            return answer(StatusCode::BAD_REQUEST, "the address cannot be sent on");
        }
        let asks_to_switch = headers::asks_to_switch(&request);
        let mut kept = self.origin.lock().await;
        let (request, gate) = Upload::of(request, spoken, &self.interim, exchange);
        let answered = self.ask(&mut kept, &destination, request, gate.as_deref()).await;
        let refused = gate.filter(|gate| gate.refuse());
        if refused.is_some() {
            // It still waits for the body.
            *kept = None;
        }
        let answered = answered.map(|answer| answer.map(|body| Download::new(body, refused.clone())));
        match answered {
            Ok(response) if !headers::is_plain_or_chunked(response.headers()) => {
                *kept = None;
                let why = format!("{destination} answers in a transfer coding that nobody asked for");
                answer(StatusCode::BAD_GATEWAY, &why)
            }
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                *kept = None;
                // A body waiting for a 100 would be taken for the new protocol.
                if asks_to_switch && refused.is_none() {
                    return self.switch(on_client, response);
                }
                let why = format!("{destination} switches to a protocol that nobody asked for");
                answer(StatusCode::BAD_GATEWAY, &why)
            }
            Ok(mut response) => {
                headers::to_client(&mut response);
                if refused.is_some() {
                    // A client with an unsent body can ask for nothing else here.
                    response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
                }
                response.map(Either::Left)
            }
            Err(origin::Failed::Target) => answer(StatusCode::BAD_REQUEST, "the address cannot be sent on"),
            Err(origin::Failed::NoWay(why)) => self.no_way(&destination, why),
            Err(origin::Failed::Http(error)) => {
                answer(StatusCode::BAD_GATEWAY, &format!("{destination} gave no answer: {error}"))
            }
        }
    }

    /// Sends a request to an origin, and the origin's interim answers to the client; returns the answer.
    async fn ask(
        &self,
        kept: &mut Option<Origin>,
        destination: &Destination,
        request: Request<Upload>,
        gate: Option<&Gate>,
    ) -> Result<Response<Incoming>, origin::Failed> {
        let origins = Origins { door: &self.door, source: self.source };
        let opened = async {
            if let Some(gate) = gate {
                gate.open_in_time(&self.interim).await;
            }
            std::future::pending::<Infallible>().await
        };
        let answer = tokio::select! {
            answer = origins.send(kept, destination, request) => answer,
            never = opened => match never {},
        };
        self.interim.gone().await;
        if let Some(gate) = gate.filter(|gate| gate.is_told()) {
            // The answer came with a 100, and the client has it by now.
            gate.open(&self.interim).await;
        }
        answer
    }

    fn no_way(&self, destination: &Destination, why: NoWay) -> Response<Body> {
        self.door.no_way(self.source, destination, why);
        answer(status_of(why), &format!("{destination}: {why}"))
    }
}

fn status_of(why: NoWay) -> StatusCode {
    match why {
        NoWay::NoPeer | NoWay::PeerGone | NoWay::Full | NoWay::Stopping => StatusCode::SERVICE_UNAVAILABLE,
        NoWay::Failed(OpenFailure::TimedOut) => StatusCode::GATEWAY_TIMEOUT,
        NoWay::Failed(OpenFailure::NotAllowed) => StatusCode::FORBIDDEN,
        NoWay::Failed(_) => StatusCode::BAD_GATEWAY,
    }
}

/// Checks Basic credentials (RFC 7617), if users are configured.
fn is_authorized(request: &Request<Incoming>, users: &Users) -> bool {
    users.is_empty() || credentials(request).is_some_and(|(name, password)| users.verify(&name, &password))
}

fn credentials<B>(request: &Request<B>) -> Option<(Vec<u8>, Vec<u8>)> {
    let value = request.headers().get(PROXY_AUTHORIZATION)?.to_str().ok()?;
    let (scheme, encoded) = value.split_once(' ')?;
    let decoded = BASE64.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let password = decoded.get(colon + 1..)?.to_vec();
    let name = decoded.get(..colon)?.to_vec();
    scheme.eq_ignore_ascii_case("basic").then_some((name, password))
}

/// Whether an address of this scheme means plain HTTP: a WebSocket begins as such a request (RFC 6455 §3).
fn is_plain(scheme: &str) -> bool {
    ["http", "ws"].iter().any(|plain| scheme.eq_ignore_ascii_case(plain))
}

/// Reads the destination of an address in absolute or authority form.
fn destination(uri: &Uri, default_port: Option<u16>) -> Option<Destination> {
    let authority = uri.authority()?;
    let host = authority.host();
    let port = match authority.as_str().rsplit('@').next()?.strip_prefix(host)? {
        "" | ":" => default_port?,
        _ => authority.port_u16()?,
    };
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    // RFC 6874 §2: an address has its zone behind this sequence. A bare sign begins a zone by itself.
    let decoded = match bare.split_once("%25") {
        Some((ip, zone)) if bare.len() < host.len() && !zone.is_empty() => format!("{ip}%{zone}"),
        _ => bare.to_owned(),
    };
    let bare = decoded.as_str();
    let host = match bare.parse() {
        Ok(ip) => Host::Ip(ip),
        Err(_) if bare.is_empty() || bare.len() > MAX_NAME || !bare.bytes().all(|b| b.is_ascii_graphic()) => {
            return None;
        }
        Err(_) => Host::Name(bare.to_owned()),
    };
    Some(Destination { host, port })
}

/// Answers a request not to be sent on, as its last recipient.
fn answer_as_last(method: &Method) -> Response<Body> {
    if method == Method::OPTIONS {
        return Response::new(Either::Right(Full::default()));
    }
    // A request sent back may show scripts secrets that they must not see.
    answer(StatusCode::NOT_IMPLEMENTED, "TRACE is not answered here")
}

fn answer(status: StatusCode, line: &str) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(format!("oncewire: {line}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    response
}

/// Answer for an address without a host.
const NO_HOST: &str = "the address names no host that can be one";

/// Media type of our own answers.
const PLAIN: &str = "text/plain; charset=utf-8";

/// The library's own limit lies beyond ours: ours explains itself.
const BEHIND_HEAD: usize = 8 << 10;

/// The most fields of a head, either way; the library's own limit of 100 is less than servers and browsers take.
const MAX_FIELDS: usize = 1_000;

/// The longest name carried over a link.
const MAX_NAME: usize = 255;

/// How long an answer may take without a listener.
const UNHEARD_LIMIT: Duration = Duration::from_secs(60);

/// How long a client connection may stay without a request.
const IDLE_LIMIT: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::heads::Heads;
    use super::*;

    #[test]
    fn destinations_are_read_in_every_form() {
        let of = |uri: &str, port| destination(&uri.parse().unwrap(), port).map(|found| found.to_string());
        assert_eq!(of("http://example.net/a?b", Some(80)).unwrap(), "example.net:80");
        assert_eq!(of("http://user:word@[2001:db8::1]:8080/", Some(80)).unwrap(), "[2001:db8::1]:8080");
        assert_eq!(of("127.0.0.1:443", None).unwrap(), "127.0.0.1:443");
        assert_eq!(of("example.net", None), None);
        assert_eq!(of("/path", Some(80)), None);
        assert_eq!(of("http://example.net:/", Some(80)).unwrap(), "example.net:80");
        assert_eq!(of("http://[2001:db8::1]/", Some(80)).unwrap(), "[2001:db8::1]:80");
        assert_eq!(of("http://[fe80::1%25eth0]/", Some(80)).unwrap(), "[fe80::1%eth0]:80");
        assert_eq!(of("[fe80::1%252]:443", None).unwrap(), "[fe80::1%2]:443");
        assert_eq!(of("http://[fe80::1%eth0]/", Some(80)).unwrap(), "[fe80::1%eth0]:80");
        assert_eq!(of("http://[fe80::1%25]/", Some(80)).unwrap(), "[fe80::1%25]:80");
        assert_eq!(of("http://example.net:65616/", Some(80)), None, "a port out of range is no port 80");
    }

    #[tokio::test]
    async fn slow_reader_gets_its_answer_beyond_the_idle_limit() {
        const LEN: usize = 100 << 10;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = tokio::net::TcpSocket::new_v4().unwrap();
        client.set_recv_buffer_size(4096).unwrap();
        let mut client = client.connect(listener.local_addr().unwrap()).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        sockets::prepare_application(&stream, None);
        SockRef::from(&stream).set_send_buffer_size(4 * LEN).unwrap();
        client.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").await.unwrap();
        let idle = Duration::from_millis(100);
        let stream = Arc::new(stream);
        let head = Heads::default().expect(MAX_HEAD);
        let interim = Arc::new(Interim::new(Arc::clone(&stream), Arc::clone(&head)));
        let answer = move |_| {
            let (body, exchange) = (Either::Right(Full::from(vec![7; LEN])), Arc::new(head.end()));
            std::future::ready(Ok::<_, Infallible>(Response::new(Answer { body, _exchange: exchange })))
        };
        let served =
            serve_requests((&stream, interim), service_fn(answer), idle, std::future::pending()).await;
        drop(stream);
        assert!(matches!(served, Err(ServeError::Http(error)) if error.is_timeout()));
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        assert!(got.ends_with(&[7; LEN]), "{} bytes", got.len());
    }

    #[test]
    fn credentials_are_basic_and_may_hold_colons() {
        let with = |value: &str| Request::builder().header(PROXY_AUTHORIZATION, value).body(()).unwrap();
        let found = credentials(&with(&format!("basic {}", BASE64.encode("anna:a:b"))));
        assert_eq!(found, Some((b"anna".to_vec(), b"a:b".to_vec())));
        assert_eq!(credentials(&with(&format!("Bearer {}", BASE64.encode("anna:a")))), None);
        assert_eq!(credentials(&with("Basic ?")), None);
    }
}
