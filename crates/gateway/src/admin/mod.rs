//! The admin interface: status, flows, metrics and health over HTTP.
//!
//! | path | answer |
//! |---|---|
//! | `/status` | [`StatusReport`] as JSON |
//! | `/flows` | [`FlowsReport`] as JSON |
//! | `/metrics` | the same figures as metrics |
//! | `/health` | `{"status":"ok"}`, or 503 and `{"status":"draining"}` |
//! | POST `/cache/clear` | clears the logs of all peers, or with `?peer=NAME` of one; [`ClearReport`] as JSON |
//!
//! Nothing else can be changed here. Beyond loopback every request carries the token; on loopback without a
//! token only requests to an address or `localhost` are answered (no web page can read it under a name of its
//! own), and none made by a web page: browsers send the origin of a POST.

mod bounded;

use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use oncewire_config::same_secret;
use oncewire_report::{ClearReport, FlowsReport, StatusReport, encode_metrics};
use serde::Deserialize;
use tokio::net::TcpListener;

use self::bounded::Bounded;

/// The admin interface's source: the daemon.
pub trait Source: Send + Sync + 'static {
    /// Returns the status now.
    fn status(&self) -> StatusReport;

    /// Returns the status without its lists of destinations: they are no metrics.
    fn figures(&self) -> StatusReport {
        self.status()
    }

    /// Returns the open flows.
    fn flows(&self) -> FlowsReport;

    /// Whether new flows are taken; false while draining.
    fn healthy(&self) -> bool;

    /// Clears the logs of the peer of this name, or of all.
    fn clear_cache(&self, peer: Option<String>) -> Clearing;
}

/// The clearing of logs; it takes the disk's time.
pub type Clearing = Pin<Box<dyn Future<Output = Result<ClearReport, ClearRefused>> + Send>>;

/// Why logs were not cleared, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClearRefused {
    /// There is no such peer.
    NoPeer(String),
    /// Memory is cleared, and the disk is not.
    Disk(String),
}

/// Answers requests on a listening socket until `shutdown` is ready and all accepted requests are answered.
///
/// # Errors
/// If the socket fails for good.
pub async fn serve(
    listener: TcpListener,
    token: Option<String>,
    source: Arc<dyn Source>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> std::io::Result<()> {
    axum::serve(Bounded::new(listener), router(token, source)).with_graceful_shutdown(shutdown).await
}

fn router(token: Option<String>, source: Arc<dyn Source>) -> Router {
    let token: Option<Arc<str>> = token.map(Arc::from);
    Router::new()
        .route("/status", get(|State(source): State<Arc<dyn Source>>| async move { Json(source.status()) }))
        .route("/flows", get(|State(source): State<Arc<dyn Source>>| async move { Json(source.flows()) }))
        .route("/metrics", get(metrics))
        .route("/health", get(health))
        .route("/cache/clear", post(clear_cache))
        .fallback(|| async {
            refusal(
                StatusCode::NOT_FOUND,
                "there are /status, /flows, /metrics, /health and POST /cache/clear",
            )
        })
        .layer(middleware::from_fn_with_state(token, guard))
        .with_state(source)
}

/// Lets authorized requests pass.
async fn guard(State(token): State<Option<Arc<str>>>, request: Request, next: Next) -> Response {
    let headers = request.headers();
    match token {
        Some(token) if !bears(headers, &token) => refusal(
            StatusCode::UNAUTHORIZED,
            "send the token of admin_token_file as `Authorization: Bearer TOKEN`",
        ),
        None if !is_addressed_plainly(headers) => {
            refusal(StatusCode::FORBIDDEN, "without a token, ask by address and not by name")
        }
        None if headers.contains_key(header::ORIGIN) => {
            refusal(StatusCode::FORBIDDEN, "without a token, no web page may ask")
        }
        _ => next.run(request).await,
    }
}

fn bears(headers: &HeaderMap, token: &str) -> bool {
    let given =
        headers.get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    given.is_some_and(|given| same_secret(given, token.as_bytes()))
}

/// Whether a request names its host as an address or `localhost`, or has none.
fn is_addressed_plainly(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let without_port = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => name,
        _ => host,
    };
    let address = without_port.trim_start_matches('[').trim_end_matches(']');
    address == "localhost" || address.parse::<IpAddr>().is_ok()
}

async fn metrics(State(source): State<Arc<dyn Source>>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], encode_metrics(&source.figures())).into_response()
}

/// Query of `/cache/clear`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClearQuery {
    peer: Option<String>,
}

async fn clear_cache(
    State(source): State<Arc<dyn Source>>,
    query: Result<Query<ClearQuery>, QueryRejection>,
) -> Response {
    let query = match query {
        Ok(Query(query)) => query,
        Err(error) => {
            let message = format!("{}; ask with ?peer=NAME or with nothing", error.body_text());
            return refusal(error.status(), &message);
        }
    };
    match source.clear_cache(query.peer).await {
        Ok(report) => Json(report).into_response(),
        Err(ClearRefused::NoPeer(message)) => refusal(StatusCode::NOT_FOUND, &message),
        Err(ClearRefused::Disk(message)) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &message),
    }
}

async fn health(State(source): State<Arc<dyn Source>>) -> Response {
    let (status, word) = match source.healthy() {
        true => (StatusCode::OK, "ok"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    (status, Json(serde_json::json!({ "status": word }))).into_response()
}

fn refusal(status: StatusCode, message: &str) -> Response {
    (status, Json(serde_json::json!({ "error": message }))).into_response()
}

#[cfg(test)]
mod tests;
