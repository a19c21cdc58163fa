//! The server at the far side: HTTP/1.1 and HTTPS on one port, one response per connection.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::corpus::Editions;
use super::gateways::usual;
use super::tls::Tls;

/// A running server; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// The requested edition of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edition {
    /// As it was.
    Original,
    /// After the edit.
    Edited,
    /// Compressed.
    Packed,
    /// The part for HTTPS.
    Encrypted,
}

impl Edition {
    /// All of them.
    pub(crate) const ALL: [Self; 4] = [Self::Original, Self::Edited, Self::Packed, Self::Encrypted];
}

impl Origin {
    /// Starts serving every edition of each file on loopback, on the usual port if it is to be kept.
    ///
    /// # Errors
    ///
    /// Loopback cannot be listened on.
    pub(crate) async fn start(files: &Editions, tls: Tls, kept: bool) -> io::Result<Self> {
        let mut contents = BTreeMap::new();
        for edition in Edition::ALL {
            for (index, file) in files.of(edition).iter().enumerate() {
                contents.insert(resource(edition, index), file.bytes.clone());
            }
        }
        let listener = TcpListener::bind(usual(if kept { PORT } else { 0 })).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, serving: tokio::spawn(accept(listener, Arc::new(contents), tls)) })
    }

    /// Returns the address to connect to.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// Returns the path of a file.
pub(crate) fn resource(edition: Edition, index: usize) -> String {
    match edition {
        Edition::Original => format!("/original/{index}"),
        Edition::Edited => format!("/edited/{index}"),
        Edition::Packed => format!("/packed/{index}"),
        Edition::Encrypted => format!("/encrypted/{index}"),
    }
}

type Contents = BTreeMap<String, Arc<[u8]>>;

async fn accept(listener: TcpListener, contents: Arc<Contents>, tls: Tls) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let (contents, tls) = (contents.clone(), tls.clone());
                tokio::spawn(async move {
                    if let Err(error) = welcome(stream, &contents, &tls).await {
                        tracing::debug!(%error, "demo origin: a request failed");
                    }
                });
            }
            Err(error) => {
                tracing::debug!(%error, "demo origin: accept failed");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    }
}

/// Serves one connection: TLS if its first byte begins a handshake record, else plain HTTP.
async fn welcome(stream: TcpStream, contents: &Contents, tls: &Tls) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut first = [0];
    match stream.peek(&mut first).await? {
        1 if first == [TLS_HANDSHAKE] => serve(tls.accept(stream).await?, contents).await,
        _ => serve(stream, contents).await,
    }
}

async fn serve(mut stream: impl AsyncRead + AsyncWrite + Unpin, contents: &Contents) -> io::Result<()> {
    let head = read_head(&mut stream).await?;
    let mut words = head.split_ascii_whitespace();
    let bytes = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => contents.get(path),
        _ => None,
    };
    let (status, body): (&str, &[u8]) = match bytes {
        Some(bytes) => ("200 OK", bytes),
        None => ("404 Not Found", b"There are /original/N, /edited/N, /packed/N and /encrypted/N.\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await?;
    // A socket closed before its peer's is an orphan. A kernel short of memory resets orphans first, with all their
    // undelivered bytes.
    let mut sink = tokio::io::sink();
    let _ = tokio::time::timeout(CLIENT_CLOSE, tokio::io::copy(&mut stream, &mut sink)).await;
    Ok(())
}

/// Reads up to the empty line at the end of a head, and no more than [`MAX_HEAD`] bytes.
async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request's head is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// A kept origin's port, unless taken.
const PORT: u16 = 18_080;
const MAX_HEAD: usize = 8 << 10;
/// The content type of a TLS record with a handshake message [RFC 8446 §5.1].
const TLS_HANDSHAKE: u8 = 22;
/// Time for a client to close its end once everything was sent.
const CLIENT_CLOSE: Duration = Duration::from_secs(120);

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Poll;

    use indicatif::ProgressBar;

    use super::super::corpus::File;
    use super::super::fetch::fetch;
    use super::*;

    fn editions() -> Editions {
        let file = |bytes: &[u8]| vec![File { path: String::from("f"), bytes: Arc::from(bytes) }];
        Editions { original: file(b"content"), encrypted: file(b"secret"), ..Editions::default() }
    }

    #[tokio::test]
    async fn unknown_resource_is_not_found_and_the_server_continues() {
        let origin = Origin::start(&editions(), Tls::new().unwrap(), false).await.unwrap();
        for (path, wanted) in [("/edited/0", "404"), ("/original/0", "200"), ("/", "404")] {
            let mut stream = TcpStream::connect(origin.address()).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{path}: {answer}");
        }
    }

    #[tokio::test]
    async fn tls_and_plain_clients_share_the_port() {
        let tls = Tls::new().unwrap();
        let origin = Origin::start(&editions(), tls.clone(), false).await.unwrap();
        let progress = ProgressBar::hidden();
        fetch(origin.address(), None, "/original/0", b"content", &progress).await.unwrap();
        fetch(origin.address(), Some(&tls), "/encrypted/0", b"secret", &progress).await.unwrap();
        let stranger = Tls::new().unwrap();
        let refused = fetch(origin.address(), Some(&stranger), "/encrypted/0", b"secret", &progress).await;
        assert!(format!("{:#}", refused.unwrap_err()).contains("handshake"));
    }

    #[tokio::test]
    async fn server_with_an_open_client_keeps_its_socket() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let contents = Contents::from([(String::from("/original/0"), Arc::from(&b"content"[..]))]);
        let mut serving = tokio::spawn(async move { serve(server, &contents).await });
        client.write_all(b"GET /original/0 HTTP/1.1\r\n\r\n").await.unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).await.unwrap();
        assert!(answer.ends_with(b"content"));
        assert!(
            std::future::poll_fn(|context| Poll::Ready(Pin::new(&mut serving).poll(context).is_pending()))
                .await
        );
        drop(client);
        serving.await.unwrap().unwrap();
    }
}
