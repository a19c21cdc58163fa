//! Connecting to names with several addresses, some silent or wrong.

use std::future::ready;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use oncewire_host::sockets;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

/// Tries addresses in order, each once the one before has failed or been silent for a moment, and returns the
/// first connection [RFC 8305 §5]: one silent address must not cost a name two minutes.
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
    let welcome = |_, stream| {
        let own = sockets::is_its_own_peer(&stream);
        ready(if own { Err(io::ErrorKind::ConnectionRefused.into()) } else { Ok(stream) })
    };
    match first_to_welcome(addresses, Delays::default(), connect, welcome).await {
        Ok(welcomed) => Ok(welcomed.result),
        Err(failures) => {
            let no_address = || io::Error::new(io::ErrorKind::NotFound, "the name has no addresses");
            Err(failures.into_iter().next().map_or_else(no_address, |(_, failure)| failure))
        }
    }
}

/// Times of parallel attempts without a failure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Delays {
    /// Time for the first address to connect. Default 250 ms.
    pub(super) first: Duration,
    /// Time for a connected address to prove its identity. Default 0.
    pub(super) proof: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self { first: ATTEMPT_DELAY, proof: Duration::ZERO }
    }
}

/// Result of the first address with a proved identity.
#[derive(Debug)]
pub(super) struct Welcomed<T, E> {
    pub(super) address: SocketAddr,
    pub(super) result: T,
    /// Earlier failures, by address.
    pub(super) failures: Vec<(SocketAddr, E)>,
}

/// As [`first_to_answer`], but an address has answered only once `welcome` succeeds on its connection: until
/// then other addresses are still tried, and attempts already begun go on beside them. Both steps have limits
/// of their own.
///
/// # Errors
/// The failure of each address, in order of time.
pub(super) async fn first_to_welcome<S, T, E, C, W>(
    addresses: Vec<SocketAddr>,
    delays: Delays,
    connect: impl Fn(SocketAddr) -> C,
    welcome: impl Fn(SocketAddr, S) -> W + Clone + Send + Sync + 'static,
) -> Result<Welcomed<T, E>, Vec<(SocketAddr, E)>>
where
    S: Send + 'static,
    T: Send + 'static,
    E: Send + 'static,
    C: Future<Output = Result<S, E>> + Send + 'static,
    W: Future<Output = Result<T, E>> + Send + 'static,
{
    let mut untried = addresses.into_iter();
    let (mut under_way, mut failures) = (JoinSet::new(), Vec::new());
    // Time of the last connection not yet failed.
    let connected = Arc::new(Mutex::new(None));
    let mut delay = delays.first;
    loop {
        if let Some(address) = untried.next() {
            let (connecting, welcome, connected) =
                (connect(address), welcome.clone(), Arc::clone(&connected));
            under_way.spawn(async move {
                let tried = async {
                    let stream = connecting.await?;
                    *connected.lock() = Some(Instant::now());
                    welcome(address, stream).await
                };
                (address, tried.await)
            });
        }
        let mut next_at = Instant::now() + delay;
        delay = ATTEMPT_DELAY;
        loop {
            tokio::select! {
                tried = under_way.join_next() => match tried {
                    None => return Err(failures),
                    Some(Ok((address, Ok(result)))) => return Ok(Welcomed { address, result, failures }),
                    Some(failed) => {
                        // A panicked attempt was reported already.
                        failures.extend(failed.ok().and_then(|(address, tried)| Some((address, tried.err()?))));
                        *connected.lock() = None;
                        break;
                    }
                },
                () = sleep_until(next_at), if untried.len() > 0 => {
                    match connected.lock().map(|at| at + delays.proof) {
                        Some(proved) if proved > Instant::now() => next_at = proved,
                        _ => break,
                    }
                }
            }
        }
    }
}

/// Head start of an address over the next one of the name [RFC 8305 §5].
pub(super) const ATTEMPT_DELAY: Duration = Duration::from_millis(250);

#[cfg(test)]
pub(super) mod tests {
    use std::future::pending;

    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A listener with a full queue: it answers no connection while both values are kept.
    pub(crate) async fn silent() -> (TcpListener, TcpStream) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = socket.listen(0).unwrap();
        let filler = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (listener, filler)
    }

    #[tokio::test]
    async fn answering_address_wins_over_silent_ones() {
        let (silent, _filler) = silent().await;
        let answers = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let nobody = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
        let answering = answers.local_addr().unwrap();
        let addresses = vec![silent.local_addr().unwrap(), nobody, answering];
        let stream = first_to_answer(addresses, TcpStream::connect).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), answering);
    }

    fn addresses(count: u8) -> Vec<SocketAddr> {
        (1..=count).map(|last| SocketAddr::from(([192, 0, 2, last], 7400))).collect()
    }

    fn last_of(address: SocketAddr) -> u8 {
        if let SocketAddr::V4(address) = address { address.ip().octets()[3] } else { 0 }
    }

    /// An address's behaviour: milliseconds until it connects (none: never), then until it proves its
    /// identity (none: never; an error: wrong identity).
    type Does = (Option<u64>, Option<Result<u64, u64>>);

    const PROOF: Delays = Delays { first: ATTEMPT_DELAY, proof: Duration::from_secs(3) };

    /// Tries addresses with these behaviours. Returns the proved one, and the tried ones with their times.
    async fn try_each(delays: Delays, each: &'static [Does]) -> (Result<u8, Vec<u8>>, Vec<(u8, u64)>) {
        let (tried, start) = (Arc::new(Mutex::new(Vec::new())), Instant::now());
        let of = |address| each[usize::from(last_of(address)) - 1];
        let wait = |after: u64| tokio::time::sleep(Duration::from_millis(after));
        let connect = {
            let tried = Arc::clone(&tried);
            move |address| {
                tried.lock().push((last_of(address), start.elapsed().as_millis() as u64));
                async move {
                    match of(address).0 {
                        Some(after) => wait(after).await,
                        None => pending().await,
                    }
                    Ok(())
                }
            }
        };
        let welcome = move |address, ()| async move {
            match of(address).1 {
                Some(Ok(after)) => {
                    wait(after).await;
                    Ok(())
                }
                Some(Err(after)) => {
                    wait(after).await;
                    Err(())
                }
                None => pending().await,
            }
        };
        let ended = first_to_welcome(addresses(each.len() as u8), delays, connect, welcome).await;
        let ended = match ended {
            Ok(welcomed) => Ok(last_of(welcomed.address)),
            Err(failures) => Err(failures.into_iter().map(|(address, ())| last_of(address)).collect()),
        };
        let tried = tried.lock().clone();
        (ended, tried)
    }

    #[tokio::test(start_paused = true)]
    async fn wrong_identity_is_passed_over_at_once() {
        let (ended, tried) = try_each(PROOF, &[(Some(10), Some(Err(20))), (Some(10), Some(Ok(20)))]).await;
        assert_eq!((ended, tried), (Ok(2), vec![(1, 0), (2, 30)]));
    }

    #[tokio::test(start_paused = true)]
    async fn silent_connection_is_passed_over_in_time() {
        let (ended, tried) = try_each(PROOF, &[(Some(10), None), (Some(10), Some(Ok(20)))]).await;
        assert_eq!((ended, tried), (Ok(2), vec![(1, 0), (2, 3_010)]));
    }

    #[tokio::test(start_paused = true)]
    async fn slow_address_is_still_awaited() {
        let (ended, tried) = try_each(PROOF, &[(Some(2_000), Some(Ok(4_000))), (Some(10), None)]).await;
        assert_eq!((ended, tried), (Ok(1), vec![(1, 0), (2, 250)]));
    }

    #[tokio::test(start_paused = true)]
    async fn proved_address_leaves_the_others_untried() {
        let delays = Delays { first: Duration::from_secs(2), ..PROOF };
        let (ended, tried) = try_each(delays, &[(Some(1_000), Some(Ok(2_000))), (Some(10), None)]).await;
        assert_eq!((ended, tried), (Ok(1), vec![(1, 0)]));
    }

    #[tokio::test(start_paused = true)]
    async fn all_failures_are_reported() {
        let each = &[(Some(10), Some(Err(500))), (Some(10), Some(Err(10))), (Some(10), Some(Err(10)))];
        let (ended, tried) = try_each(PROOF, each).await;
        assert_eq!((ended, tried.len()), (Err(vec![1, 2, 3]), 3));
    }
}
