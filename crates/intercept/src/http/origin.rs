//! Connections to origins, kept for a client's next request.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{Either, Empty};
use hyper::body::{Body as _, Incoming};
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response, Version};
use hyper_util::rt::TokioIo;

use oncewire_codec::wire::Destination;

use super::super::Door;
use super::super::router::NoWay;
use super::MAX_FIELDS;
use super::headers;
use super::origin_io::{OriginIo, Written};
use super::target::RawTarget;
use super::upload::Upload;

/// A reusable connection to one origin.
pub(super) struct Origin {
    destination: Destination,
    sender: SendRequest<Body>,
    written: Written,
    /// The version of its last answer, used by hyper from then on.
    spoken: Version,
}

/// A request's body for an origin: the client's, or nothing on a retry.
type Body = Either<Upload, Empty<Bytes>>;

/// Makes connections for one client.
pub(super) struct Origins<'a> {
    pub(super) door: &'a Arc<Door>,
    pub(super) source: SocketAddr,
}

/// Why there is no answer.
pub(super) enum Failed {
    NoWay(NoWay),
    Http(hyper::Error),
    /// The address cannot be sent on.
    Target,
}

impl Origins<'_> {
    /// Sends a request over the kept connection if it leads there and still lives, else over a new one.
    ///
    /// A kept connection may end as the request leaves, for origins close idle ones. A safe request without a
    /// body is then sent once more, over a new one (RFC 9110 §9.2.2, RFC 9112 §9.3.1).
    ///
    /// # Errors
    /// If the origin cannot be reached, or ends the connection before the head of an answer is complete.
    pub(super) async fn send(
        &self,
        kept: &mut Option<Origin>,
        destination: &Destination,
        request: Request<Upload>,
    ) -> Result<Response<Incoming>, Failed> {
        let mut request = request.map(Either::Left);
        if let Some(mut origin) = kept.take()
            && origin.destination == *destination
            && origin.takes(&request)
            && origin.sender.ready().await.is_ok()
            && origin.expect(&request)?
        {
            let copy = repeatable(&request);
            match origin.sender.try_send_request(request).await {
                Ok(response) => {
                    *kept = Some(origin.after(&response));
                    return Ok(response);
                }
                Err(error) => request = to_send_again(error, copy)?,
            }
        }
        let mut origin = self.connect(destination).await?;
        origin.expect(&request)?;
        let response = origin.sender.send_request(request).await.map_err(Failed::Http)?;
        *kept = Some(origin.after(&response));
        Ok(response)
    }

    async fn connect(&self, destination: &Destination) -> Result<Origin, Failed> {
        let connected = self.door.router.connect(&self.door.intercept, destination, self.source).await;
        let stream = OriginIo::new(connected.map_err(Failed::NoWay)?.0, &self.door.tasks);
        let written = stream.written();
        let mut builder = Builder::new();
        builder.preserve_header_case(true).max_headers(MAX_FIELDS);
        // Leniency as of direct clients with old servers: the space is removed (RFC 9112 §5.1), a folded line
        // unfolded (§5.2), and an invalid field not sent on.
        builder.allow_spaces_after_header_name_in_responses(true);
        builder.allow_obsolete_multiline_headers_in_responses(true);
        builder.ignore_invalid_headers_in_responses(true);
        let handshake = builder.handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(Failed::Http)?;
        self.door.tasks.spawn(async move {
            // Its errors reach the client as errors of the answer.
            let _ = connection.with_upgrades().await;
        });
        Ok(Origin { destination: destination.clone(), sender, written, spoken: Version::HTTP_11 })
    }
}

impl Origin {
    /// Whether the next request can be sent unchanged: HTTP/1.0 has no chunks (without them hyper drops
    /// content of unknown length), and no switch to another protocol.
    fn takes(&self, request: &Request<Body>) -> bool {
        let is_sized = request.body().size_hint().exact().is_some();
        self.spoken >= Version::HTTP_11 || is_sized && !headers::asks_to_switch(request)
    }

    fn after(self, answer: &Response<Incoming>) -> Self {
        Self { spoken: answer.version(), ..self }
    }

    /// Has the next request line sent in the client's own form; false if this connection cannot.
    ///
    /// # Errors
    /// If the request's address differs from the client's.
    fn expect(&self, request: &Request<Body>) -> Result<bool, Failed> {
        let Some(raw) = request.extensions().get::<RawTarget>() else { return Ok(true) };
        let line = raw.line(request.method(), request.uri()).ok_or(Failed::Target)?;
        Ok(self.written.expect(line))
    }
}

/// Copies a request an origin may get twice: one of a safe method, without a body.
///
/// Other idempotent ones do not count: a second deletion reports nothing to delete.
fn repeatable(request: &Request<Body>) -> Option<Request<Body>> {
    let is_repeatable = request.method().is_safe() && request.body().is_end_stream();
    is_repeatable.then(|| {
        let mut copy = Request::new(Either::Right(Empty::new()));
        request.method().clone_into(copy.method_mut());
        request.uri().clone_into(copy.uri_mut());
        *copy.version_mut() = request.version();
        request.headers().clone_into(copy.headers_mut());
        // The client's spelling of field names, and the receiver of interim answers.
        request.extensions().clone_into(copy.extensions_mut());
        copy
    })
}

/// Returns the request for a new connection after a kept one failed.
///
/// # Errors
/// If the origin may have acted on the request, or has answered it outside of HTTP.
fn to_send_again(
    mut failed: TrySendError<Request<Body>>,
    copy: Option<Request<Body>>,
) -> Result<Request<Body>, Failed> {
    // Closed in the meantime, before the request's first byte: a new connection loses nothing.
    let unsent = failed.take_message();
    match unsent.or_else(|| copy.filter(|_| !failed.error().is_parse())) {
        Some(request) => Ok(request),
        None => Err(Failed::Http(failed.into_error())),
    }
}
