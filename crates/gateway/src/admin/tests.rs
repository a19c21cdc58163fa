use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use oncewire_report::ClearedReport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::*;

struct Fake {
    draining: AtomicBool,
}

impl Source for Fake {
    fn status(&self) -> StatusReport {
        StatusReport { version: "9.9.9".to_owned(), ..StatusReport::default() }
    }

    fn flows(&self) -> FlowsReport {
        FlowsReport::default()
    }

    fn clear_cache(&self, peer: Option<String>) -> Clearing {
        Box::pin(std::future::ready(match peer.as_deref() {
            Some("slow") => Err(ClearRefused::Disk("not yet".to_owned())),
            Some("nobody") => Err(ClearRefused::NoPeer("there is no peer".to_owned())),
            name => Ok(ClearReport::of([ClearedReport::new(name.unwrap_or("all"))])),
        }))
    }

    fn healthy(&self) -> bool {
        !self.draining.load(Relaxed)
    }
}

/// Serves until the returned sender is dropped.
async fn start(token: Option<&str>, draining: bool) -> (SocketAddr, oneshot::Sender<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let source = Arc::new(Fake { draining: AtomicBool::new(draining) });
    let shutdown = async {
        let _ = stopped.await;
    };
    tokio::spawn(serve(listener, token.map(str::to_owned), source, shutdown));
    (address, stop)
}

/// Sends one request and returns the whole answer.
async fn ask(address: SocketAddr, path: &str, headers: &str) -> String {
    request(address, "GET", path, headers).await
}

async fn request(address: SocketAddr, method: &str, path: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn each_path_answers_in_its_form() {
    let (address, _stop) = start(None, false).await;
    let status = ask(address, "/status", "Host: 127.0.0.1\r\n").await;
    assert!(status.starts_with("HTTP/1.1 200") && status.contains("\"version\":\"9.9.9\""), "{status}");
    let flows = ask(address, "/flows", "Host: localhost:7411\r\n").await;
    assert!(flows.contains("{\"flows\":[],\"left_out\":0}"), "{flows}");
    let metrics = ask(address, "/metrics", "Host: [::1]:7411\r\n").await;
    assert!(metrics.contains("openmetrics-text") && metrics.ends_with("# EOF\n"), "{metrics}");
    let health = ask(address, "/health", "Host: [::1]\r\n").await;
    assert!(health.starts_with("HTTP/1.1 200") && health.contains("{\"status\":\"ok\"}"), "{health}");
    assert!(ask(address, "/", "Host: 127.0.0.1\r\n").await.starts_with("HTTP/1.1 404"));
}

#[tokio::test]
async fn draining_gateway_is_not_healthy() {
    let (address, _stop) = start(None, true).await;
    let health = ask(address, "/health", "Host: 127.0.0.1\r\n").await;
    assert!(health.starts_with("HTTP/1.1 503") && health.contains("draining"), "{health}");
    assert!(ask(address, "/status", "Host: 127.0.0.1\r\n").await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn with_a_token_only_its_bearer_is_answered() {
    let (address, _stop) = start(Some("0123456789abcdef"), false).await;
    for headers in
        ["", "Authorization: Bearer 0123456789abcdeX\r\n", "Authorization: Basic 0123456789abcdef\r\n"]
    {
        let answer = ask(address, "/status", &format!("Host: 127.0.0.1\r\n{headers}")).await;
        assert!(answer.starts_with("HTTP/1.1 401") && !answer.contains("9.9.9"), "{answer}");
    }
    let headers = "Host: hub.example.net\r\nAuthorization: Bearer 0123456789abcdef\r\n";
    assert!(ask(address, "/status", headers).await.starts_with("HTTP/1.1 200"));
}

#[tokio::test]
async fn web_page_cannot_read_the_status_under_its_name() {
    let (address, _stop) = start(None, false).await;
    for host in ["evil.example.net", "evil.example.net:7411", "localhost.evil.example.net"] {
        let answer = ask(address, "/status", &format!("Host: {host}\r\n")).await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{host}: {answer}");
    }
}

#[tokio::test]
async fn logs_are_cleared_by_a_post_alone() {
    let (address, _stop) = start(None, false).await;
    let host = "Host: 127.0.0.1\r\n";
    assert!(ask(address, "/cache/clear", host).await.starts_with("HTTP/1.1 405"));
    let all = request(address, "POST", "/cache/clear", host).await;
    assert!(all.contains(r#"{"cleared":[{"peer":"all","memory":0,"disk":0}],"store":null}"#), "{all}");
    let one = request(address, "POST", "/cache/clear?peer=hub%20a", host).await;
    assert!(one.contains(r#""peer":"hub a""#), "{one}");
    let nobody = request(address, "POST", "/cache/clear?peer=nobody", host).await;
    assert!(nobody.starts_with("HTTP/1.1 404") && nobody.contains("there is no peer"), "{nobody}");
    assert!(request(address, "POST", "/cache/clear?peer=slow", host).await.starts_with("HTTP/1.1 500"));
    let misspelt = request(address, "POST", "/cache/clear?pere=hub", host).await;
    assert!(misspelt.starts_with("HTTP/1.1 400") && misspelt.contains("{\"error\":\""), "{misspelt}");
}

#[tokio::test]
async fn web_page_cannot_clear_logs() {
    let (address, _stop) = start(None, false).await;
    let headers = "Host: 127.0.0.1\r\nOrigin: https://evil.example.net\r\n";
    assert!(request(address, "POST", "/cache/clear", headers).await.starts_with("HTTP/1.1 403"));
    let (address, _stop) = start(Some("0123456789abcdef"), false).await;
    assert!(
        request(address, "POST", "/cache/clear", "Host: 127.0.0.1\r\n").await.starts_with("HTTP/1.1 401")
    );
}
