//! The server at the far side: HTTP/1.1, one response per connection.

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::corpus::File;

/// A running server; it stops when dropped.
#[derive(Debug)]
pub(crate) struct Origin {
    address: SocketAddr,
    serving: JoinHandle<()>,
}

/// Which edition of a file is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Edition {
    /// As it was.
    Original,
    /// After the edit.
    Edited,
}

impl Origin {
    /// Starts serving both editions of each file on loopback.
    ///
    /// # Errors
    ///
    /// Loopback cannot be listened on.
    pub(crate) async fn start(files: &[File], edited: &[File]) -> io::Result<Self> {
        let mut contents = BTreeMap::new();
        for (edition, files) in [(Edition::Original, files), (Edition::Edited, edited)] {
            for (index, file) in files.iter().enumerate() {
                contents.insert(resource(edition, index), file.bytes.clone());
            }
        }
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, serving: tokio::spawn(accept(listener, Arc::new(contents))) })
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

/// Returns the path under which a file is served.
pub(crate) fn resource(edition: Edition, index: usize) -> String {
    match edition {
        Edition::Original => format!("/original/{index}"),
        Edition::Edited => format!("/edited/{index}"),
    }
}

type Contents = BTreeMap<String, Arc<[u8]>>;

async fn accept(listener: TcpListener, contents: Arc<Contents>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let contents = contents.clone();
                tokio::spawn(async move {
                    if let Err(error) = serve(stream, &contents).await {
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

async fn serve(mut stream: TcpStream, contents: &Contents) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let head = read_head(&mut stream).await?;
    let mut words = head.split_ascii_whitespace();
    let bytes = match (words.next(), words.next()) {
        (Some("GET"), Some(path)) => contents.get(path),
        _ => None,
    };
    let (status, body): (&str, &[u8]) = match bytes {
        Some(bytes) => ("200 OK", bytes),
        None => ("404 Not Found", b"There are /original/N and /edited/N.\n"),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/octet-stream\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
}

/// Reads up to the empty line that ends a head, and no more than [`MAX_HEAD`] bytes.
async fn read_head(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= MAX_HEAD {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "the request's head is too long"));
        }
        head.push(stream.read_u8().await?);
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

const MAX_HEAD: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_unknown_resource_is_not_found_and_the_server_goes_on() {
        let file = File { path: String::from("f"), bytes: Arc::from(&b"content"[..]) };
        let origin = Origin::start(&[file], &[]).await.unwrap();
        for (path, wanted) in [("/edited/0", "404"), ("/original/0", "200"), ("/", "404")] {
            let mut stream = TcpStream::connect(origin.address()).await.unwrap();
            stream.write_all(format!("GET {path} HTTP/1.1\r\n\r\n").as_bytes()).await.unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {wanted}")), "{path}: {answer}");
        }
    }
}
