//! Client connections beyond HTTP: CONNECT and upgrades (RFC 9110 §7.8).

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use http_body_util::{Either, Full};
use hyper::body::{Body as _, Incoming};
use hyper::upgrade::{OnUpgrade, Parts};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use oncewire_tunnel::flows::pump;
use tokio::net::TcpStream;

use super::super::direct;
use super::super::router::Way;
use super::interim::ClientIo;
use super::origin_io::{Carried, OriginIo};
use super::{Body, Client, answer, destination, headers};

impl Client {
    /// Connects, answers, and then carries the client's bytes.
    pub(super) async fn tunnel(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let Some(destination) = destination(request.uri(), None) else {
            return answer(StatusCode::BAD_REQUEST, "CONNECT needs a destination of the form host:port");
        };
        if !request.body().is_end_stream() {
            return answer(
                StatusCode::BAD_REQUEST,
                "CONNECT has no content; what is to be tunnelled follows the answer",
            );
        }
        let (way, _) = match self.door.router.connect(&self.door.intercept, &destination, self.source).await {
            Ok(connected) => connected,
            Err(why) => return self.no_way(&destination, why),
        };
        *self.origin.lock().await = None;
        self.carry(hyper::upgrade::on(request), move |stream, early| async move {
            match way {
                Way::Link(flow) => pump::carry(stream, flow, early).await,
                Way::Direct(server, counted) => direct::carry(stream, server, early, &counted).await,
            };
        });
        Response::new(Either::Right(Full::default()))
    }

    /// Passes on the origin's switch, and then carries the new protocol.
    pub(super) fn switch<B>(
        self: &Arc<Self>,
        client: OnUpgrade,
        mut response: Response<B>,
    ) -> Response<Body> {
        let origin = hyper::upgrade::on(&mut response);
        headers::to_client(&mut response);
        self.carry(client, move |stream, early| async move {
            // A dropped connection is reset.
            let Ok(origin) = origin.await else { return };
            let Ok(Parts { io, read_buf, .. }) = origin.downcast::<TokioIo<OriginIo>>() else { return };
            match io.into_inner().into_carried(read_buf) {
                None => {}
                Some(Carried::Link(flow, backlog)) => {
                    pump::carry_begun(stream, (flow, backlog), early).await;
                }
                Some(Carried::Direct(server, unread, counted)) => {
                    direct::carry_begun(stream, server, (early, unread), &counted).await;
                }
            }
        });
        response.map(|_| Either::Right(Full::default()))
    }

    /// Has the client's connection carried once it has its answer, beginning with the bytes read behind the
    /// request.
    fn carry<F>(
        self: &Arc<Self>,
        client: OnUpgrade,
        by: impl FnOnce(Arc<TcpStream>, Bytes) -> F + Send + 'static,
    ) where
        F: Future<Output = ()> + Send,
    {
        self.is_tunnel.store(true, Relaxed);
        // It counts as the same connection.
        let client_of = Arc::clone(self);
        self.door.tasks.spawn(async move {
            let Ok(upgraded) = client.await else { return };
            let Ok(parts) = upgraded.downcast::<TokioIo<ClientIo>>() else { return };
            // Else a part of the answer is lost: the end of the request was found before all of it was written.
            if client_of.interim.is_settled() {
                by(parts.io.into_inner().into_stream(), parts.read_buf).await;
            }
        });
    }
}
