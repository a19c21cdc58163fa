//! Connections to origins, over a link or direct.

use std::net::SocketAddr;
use std::sync::Arc;

use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use oncewire_codec::wire::Destination;

use super::super::Door;
use super::super::router::{NoWay, Way};
use super::ClientStream;
use crate::flows::stream::FlowStream;

/// A connection to one origin that can take another request.
pub(super) struct Origin {
    destination: Destination,
    sender: SendRequest<Incoming>,
}

/// Makes connections for one client.
pub(super) struct Origins<'a> {
    pub(super) door: &'a Arc<Door>,
    pub(super) source: SocketAddr,
}

/// Why there is no answer.
pub(super) enum Failed {
    NoWay(NoWay),
    Http(hyper::Error),
}

impl Origins<'_> {
    /// Sends a request over the kept connection if it leads there and still lives, else over a new one.
    ///
    /// # Errors
    /// If the origin cannot be reached, or ends the connection before the head of an answer.
    pub(super) async fn send(
        &self,
        kept: &mut Option<Origin>,
        destination: &Destination,
        mut request: Request<Incoming>,
    ) -> Result<Response<Incoming>, Failed> {
        if let Some(mut origin) = kept.take()
            && origin.destination == *destination
            && origin.sender.ready().await.is_ok()
        {
            match origin.sender.try_send_request(request).await {
                Ok(response) => {
                    *kept = Some(origin);
                    return Ok(response);
                }
                // Closed in the meantime, before a byte of the request was sent: a new connection loses nothing.
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(Failed::Http(error.into_error())),
                },
            }
        }
        let mut origin = self.connect(destination).await?;
        let response = origin.sender.send_request(request).await.map_err(Failed::Http)?;
        *kept = Some(origin);
        Ok(response)
    }

    async fn connect(&self, destination: &Destination) -> Result<Origin, Failed> {
        let connected = self.door.router.connect(&self.door.intercept, destination, self.source).await;
        let stream: Box<dyn OriginStream> = match connected.map_err(Failed::NoWay)?.0 {
            Way::Link(flow) => Box::new(FlowStream::new(flow, Arc::clone(&self.door.tasks))),
            Way::Direct(stream, _) => Box::new(ClientStream(stream)),
        };
        let handshake = Builder::new().preserve_header_case(true).handshake(TokioIo::new(stream)).await;
        let (sender, connection) = handshake.map_err(Failed::Http)?;
        self.door.tasks.spawn(async move {
            // Its errors reach the client as errors of the answer.
            let _ = connection.await;
        });
        Ok(Origin { destination: destination.clone(), sender })
    }
}

trait OriginStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> OriginStream for S {}
