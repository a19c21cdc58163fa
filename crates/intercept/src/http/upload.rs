//! A request's body on its way to the origin, with `Expect: 100-continue`.
//!
//! A client asking for permission to send (RFC 9110 §10.1.1) gets the origin's answer.

use std::error::Error;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::EXPECT;
use hyper::{Request, StatusCode, Version};
use parking_lot::Mutex;
use tokio::sync::watch;

use super::heads::Exchange;
use super::interim::Interim;

/// The content of a client's request.
pub(super) struct Content {
    body: Incoming,
    /// Its client, and the number of the request.
    of: (Weak<Interim>, u64),
    /// Its end is only part of the exchange's end.
    _exchange: Arc<Exchange>,
}

/// The body of a request to an origin.
pub(super) enum Upload {
    /// Sent as it comes.
    Plain(Content),
    /// Sent once permitted, or on the client's own decision.
    Asked(Arc<Gate>),
}

/// The gate between a client asking for permission to send its body, and the origin. The body is not looked
/// at until the client may send it: an earlier answer is then known to have come with or without it.
pub(super) struct Gate {
    state: Mutex<State>,
    /// The origin has requested the body.
    is_told: watch::Sender<bool>,
}

struct State {
    stage: Stage,
    /// None once it is not to be sent.
    body: Option<Content>,
    /// Of the connection to the origin.
    waker: Option<Waker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The client waits for a word.
    Asked,
    /// The body is sent.
    Open,
    /// The origin has answered without it.
    Refused,
    /// That answer has gone to the client.
    Over,
}

impl Upload {
    /// Directs a request's interim answers to the client, and delays its body until permission. Older
    /// versions of HTTP have neither.
    pub(super) fn of(
        request: Request<Incoming>,
        spoken: Version,
        interim: &Arc<Interim>,
        exchange: &Arc<Exchange>,
    ) -> (Request<Self>, Option<Arc<Gate>>) {
        let of = (Arc::downgrade(interim), interim.request());
        let mut request = request.map(|body| Content { body, of, _exchange: Arc::clone(exchange) });
        if spoken < Version::HTTP_11 {
            // RFC 9110 §10.1.1: from there it means nothing.
            request.headers_mut().remove(EXPECT);
            return (request.map(Self::Plain), None);
        }
        let asks = request.headers().get_all(EXPECT).iter();
        let asks =
            asks.map(|value| value.as_bytes()).any(|value| value.eq_ignore_ascii_case(b"100-continue"));
        let asks = asks && !request.body().body.is_end_stream();
        let mut gate = None;
        let mut request = request.map(|body| match asks {
            true => Self::Asked(Arc::clone(gate.insert(Gate::new(body)))),
            false => Self::Plain(body),
        });
        let (told, asked) = (Arc::clone(interim), gate.clone());
        hyper::ext::on_informational(&mut request, move |answer| {
            let gate = asked.as_ref().filter(|_| answer.status() == StatusCode::CONTINUE);
            let is_awaited = gate.is_some_and(|gate| !gate.is_told());
            told.push(answer.status(), answer.headers(), is_awaited);
            gate.into_iter().for_each(|gate| gate.tell());
        });
        (request, gate)
    }
}

impl Gate {
    fn new(body: Content) -> Arc<Self> {
        let state = State { stage: Stage::Asked, body: Some(body), waker: None };
        Arc::new(Self { state: Mutex::new(state), is_told: watch::Sender::new(false) })
    }

    /// Notes the origin's 100, on its way to the client.
    fn tell(&self) {
        self.is_told.send_replace(true);
    }

    /// Whether the origin has asked for the body.
    pub(super) fn is_told(&self) -> bool {
        *self.is_told.borrow()
    }

    /// Has the body sent, once the origin has asked for it or the client sends it without.
    pub(super) async fn open_in_time(&self, interim: &Interim) {
        let mut told = self.is_told.subscribe();
        tokio::select! {
            _ = told.wait_for(|told| *told) => {}
            () = interim.more() => {}
        }
        self.open(interim).await;
    }

    /// Has the body sent, behind everything on its way to the client.
    pub(super) async fn open(&self, interim: &Interim) {
        interim.settled().await;
        interim.silence();
        self.turn(Stage::Asked, Stage::Open);
    }

    /// The origin has answered; returns whether it has done so without the body, then not to be sent.
    pub(super) fn refuse(&self) -> bool {
        let refused = self.turn(Stage::Asked, Stage::Refused);
        if refused {
            let body = self.state.lock().body.take();
            // Without the lock: the holder of the other end may look here.
            drop(body);
        }
        refused
    }

    fn turn(&self, from: Stage, to: Stage) -> bool {
        let mut state = self.state.lock();
        if state.stage != from {
            return false;
        }
        state.stage = to;
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(Waker::wake);
        true
    }

    fn poll_frame(&self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let mut state = self.state.lock();
        match (state.stage, &mut state.body) {
            (Stage::Open, Some(content)) => content.poll_frame(cx),
            (Stage::Open | Stage::Over, _) => Poll::Ready(Some(Err("the request is over".into()))),
            (Stage::Asked | Stage::Refused, _) => {
                state.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Content {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        // Nothing follows trailers.
        if frame.as_ref().is_none_or(|frame| frame.as_ref().is_ok_and(Frame::is_trailers)) {
            let (client, number) = &self.of;
            client.upgrade().into_iter().for_each(|client| client.end_content(*number));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }
}

/// Why a body breaks off.
type BodyError = Box<dyn Error + Send + Sync>;

impl Body for Upload {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Plain(content) => content.poll_frame(cx),
            Self::Asked(gate) => gate.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Plain(content) => content.body.is_end_stream(),
            Self::Asked(gate) => {
                gate.state.lock().body.as_ref().is_some_and(|content| content.body.is_end_stream())
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Plain(content) => content.body.size_hint(),
            Self::Asked(gate) => {
                gate.state.lock().body.as_ref().map(|content| content.body.size_hint()).unwrap_or_default()
            }
        }
    }
}

/// The body of an answer. An answer without the request's body ends the connection to the origin, as the
/// origin still waits for it.
pub(super) struct Download {
    body: Incoming,
    refused: Option<Arc<Gate>>,
}

impl Download {
    pub(super) fn new(body: Incoming, refused: Option<Arc<Gate>>) -> Self {
        Self { body, refused }
    }
}

impl Body for Download {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if let Some(gate) = &self.refused {
            gate.turn(Stage::Refused, Stage::Over);
        }
    }
}
