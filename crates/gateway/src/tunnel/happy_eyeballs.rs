//! Connects to names that have several addresses, of which some may not answer.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::sockets;

/// Tries addresses in order, each once the one before has failed or been silent for a moment, and returns the first
/// connection [RFC 8305 §5]: one address that does not answer must not cost a name two minutes.
///
/// Dropping it gives up.
///
/// # Errors
/// The first failure; [`io::ErrorKind::NotFound`] if there are no addresses.
pub(super) async fn first_to_answer<F>(
    addresses: Vec<SocketAddr>,
    connect: impl Fn(SocketAddr) -> F,
) -> io::Result<TcpStream>
where
    F: Future<Output = io::Result<TcpStream>> + Send + 'static,
{
    let mut untried = addresses.into_iter();
    let mut under_way = JoinSet::new();
    let mut failure = None;
    loop {
        if let Some(address) = untried.next() {
            under_way.spawn(connect(address));
        }
        let tried = tokio::select! {
            tried = under_way.join_next() => tried,
            () = tokio::time::sleep(ATTEMPT_DELAY), if untried.len() > 0 => continue,
        };
        let Some(tried) = tried else {
            let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no addresses");
            return Err(failure.unwrap_or_else(no_address));
        };
        match tried.unwrap_or_else(|error| Err(error.into())) {
            Ok(stream) if !sockets::is_its_own_peer(&stream) => return Ok(stream),
            Ok(_) => _ = failure.get_or_insert_with(|| io::ErrorKind::ConnectionRefused.into()),
            Err(error) => _ = failure.get_or_insert(error),
        }
    }
}

/// How long an address has before the next one of the name is tried as well [RFC 8305 §5].
const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

#[cfg(test)]
pub(super) mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A listener whose queue is full, so that it answers no connection; both must be kept for that.
    pub(in crate::tunnel) async fn silent() -> (TcpListener, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let filler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener, filler)
    }

    #[tokio::test]
    async fn the_address_that_answers_wins_over_those_that_do_not() {
        let (silent, _filler) = silent().await;
        let answers = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let answering = answers.local_addr().unwrap();
        let addresses = vec![silent.local_addr().unwrap(), nobody, answering];
        let stream = first_to_answer(addresses, TcpStream::connect).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
    }
}
