//! The scripts, with their expected observations.

use std::io;

use socket2::SockRef;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{Bench, RESET, Scenario, TRY, Target, WAIT, end, rest, waits};
use crate::common::{noise, reset};

/// All of them.
pub(super) const SCENARIOS: [Scenario; 23] = [
    same("client ends its stream, the server answers then", |bench| Box::pin(half_close_by_client(bench))),
    same("server ends its stream, the client goes on", |bench| Box::pin(half_close_by_server(bench))),
    same("both end at once", |bench| Box::pin(simultaneous_close(bench))),
    same("client closes and has sent nothing", |bench| Box::pin(nothing_at_all(bench))),
    same("client resets", |bench| Box::pin(reset_by_client(bench))),
    same("server resets", |bench| Box::pin(reset_by_server(bench))),
    same("server resets after the client ended its stream", |bench| Box::pin(reset_after_half_close(bench))),
    same("client closes with bytes unread", |bench| Box::pin(close_with_bytes_unread(bench))),
    same("server answers and closes with bytes unread", |bench| Box::pin(answer_and_close(bench))),
    same("client sends and resets", |bench| Box::pin(send_and_reset(bench, false))),
    same("server sends and resets", |bench| Box::pin(send_and_reset(bench, true))),
    same("server closes, the client still sends", |bench| Box::pin(data_after_close(bench))),
    Scenario {
        name: "nobody listens",
        script: |bench| Box::pin(refused(bench)),
        accepted_first: Some(RESET),
        takes_all_time: false,
    },
    Scenario {
        name: "no such host",
        script: |bench| Box::pin(unreachable(bench)),
        accepted_first: Some(RESET),
        takes_all_time: false,
    },
    Scenario {
        name: "filtered, until the system gives up",
        script: |bench| Box::pin(unanswered(bench)),
        accepted_first: Some(RESET),
        takes_all_time: true,
    },
    Scenario {
        name: "filtered, and answered when the filter is gone",
        script: |bench| Box::pin(filtered(bench)),
        accepted_first: Some("client: connected; the server's first byte waits; then \"hello\", end"),
        takes_all_time: false,
    },
    same("one byte at a time, each answered", |bench| Box::pin(single_bytes(bench))),
    same("eight writes of 1 MiB", |bench| Box::pin(large_writes(bench))),
    same("reader of 1000 bytes at a time", |bench| Box::pin(slow_reader(bench))),
    same("writer of one byte at a time, unanswered", |bench| Box::pin(slow_writer(bench))),
    same("window closed until the writer stops", |bench| Box::pin(zero_window(bench))),
    same("urgent byte, read in line", |bench| Box::pin(urgent(bench))),
    same("idle, then used again", |bench| Box::pin(idle(bench))),
];

const fn same(name: &'static str, script: super::Script) -> Scenario {
    Scenario { name, script, accepted_first: None, takes_all_time: false }
}

async fn half_close_by_client(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    client.write_all(b"question").await.unwrap();
    client.shutdown().await.unwrap();
    let asked = rest(&mut server).await;
    server.write_all(b"answer").await.unwrap();
    drop(server);
    format!("server: {asked}; client: {}", rest(&mut client).await)
}

async fn half_close_by_server(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    server.write_all(b"greeting").await.unwrap();
    server.shutdown().await.unwrap();
    let greeted = rest(&mut client).await;
    client.write_all(b"more").await.unwrap();
    drop(client);
    format!("client: {greeted}; server: {}", rest(&mut server).await)
}

async fn simultaneous_close(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    let (there, back) = tokio::join!(client.shutdown(), server.shutdown());
    there.and(back).unwrap();
    let (seen, served) = tokio::join!(rest(&mut client), rest(&mut server));
    format!("client: {seen}; server: {served}")
}

async fn nothing_at_all(bench: &Bench<'_>) -> String {
    let (client, mut server) = bench.both().await;
    drop(client);
    format!("server: {}", rest(&mut server).await)
}

async fn reset_by_client(bench: &Bench<'_>) -> String {
    let (client, mut server) = exchanged(bench).await;
    reset(client);
    format!("server: {}", rest(&mut server).await)
}

async fn reset_by_server(bench: &Bench<'_>) -> String {
    let (mut client, server) = exchanged(bench).await;
    reset(server);
    format!("client: {}", rest(&mut client).await)
}

async fn reset_after_half_close(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    client.shutdown().await.unwrap();
    let ended = rest(&mut server).await;
    reset(server);
    format!("server: {ended}; client: {}", rest(&mut client).await)
}

async fn close_with_bytes_unread(bench: &Bench<'_>) -> String {
    let (client, mut server) = exchanged(bench).await;
    server.write_all(b"unread").await.unwrap();
    client.peek(&mut [0]).await.unwrap();
    drop(client);
    format!("server: {}", rest(&mut server).await)
}

async fn answer_and_close(bench: &Bench<'_>) -> String {
    often(async || {
        let (mut client, mut server) = exchanged(bench).await;
        client.write_all(b"more than it wants").await.unwrap();
        server.peek(&mut [0]).await.unwrap();
        server.write_all(&noise(25, AT_ONCE)).await.unwrap();
        drop(server);
        format!("client: {}", rest(&mut client).await)
    })
    .await
}

async fn send_and_reset(bench: &Bench<'_>, by_server: bool) -> String {
    often(async || {
        let (mut from, mut to) = exchanged(bench).await;
        if by_server {
            std::mem::swap(&mut from, &mut to);
        }
        from.write_all(&noise(26, AT_ONCE)).await.unwrap();
        reset(from);
        format!("{}: {}", if by_server { "client" } else { "server" }, rest(&mut to).await)
    })
    .await
}

/// A system's initial burst on a new connection.
const AT_ONCE: usize = 10_000;

/// Repeats a test dependent on scheduling, and returns each observation.
async fn often(what: impl AsyncFn() -> String) -> String {
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..10 {
        seen.insert(what().await);
    }
    seen.into_iter().collect::<Vec<_>>().join(", or ")
}

async fn data_after_close(bench: &Bench<'_>) -> String {
    let (mut client, server) = exchanged(bench).await;
    drop(server);
    let ended = rest(&mut client).await;
    // The first bytes have no reader; the answer to them ends the connection.
    let failed = loop {
        match client.write_all(b"still here?").await {
            Ok(()) => tokio::task::yield_now().await,
            Err(error) => break Err::<(), _>(error),
        }
    };
    // The first error of a write depends on scheduling.
    let failed = matches!(end(&failed), "reset" | "broken pipe");
    format!("client: {ended}; writing {}", if failed { "fails" } else { "goes on" })
}

async fn refused(bench: &Bench<'_>) -> String {
    outcome(bench.connect(Target::Nobody).await).await
}

async fn unreachable(bench: &Bench<'_>) -> String {
    outcome(bench.connect(Target::Nowhere).await).await
}

async fn unanswered(bench: &Bench<'_>) -> String {
    let filler = bench.fill().await;
    let seen = outcome(bench.connect(Target::Filtered).await).await;
    bench.filtered.accept().await.unwrap();
    drop(filler);
    seen
}

/// Describes the outcome of a failed connect.
async fn outcome(connected: io::Result<TcpStream>) -> String {
    match connected {
        // The reset may come before the connect is looked at.
        Err(error) if error.kind() == io::ErrorKind::ConnectionReset => RESET.to_owned(),
        Err(error) => format!("client: {}", end(&Err::<(), _>(error))),
        Ok(mut client) => format!("client: connected; {}", rest(&mut client).await),
    }
}

async fn filtered(bench: &Bench<'_>) -> String {
    let filler = bench.fill().await;
    let mut connecting = Box::pin(bench.connect(Target::Filtered));
    // A gateway with a late sign of life takes in the next connection; a known one stays outside.
    let early = loop {
        let wait = if bench.way.accepts_first() { TRY } else { WAIT };
        let early = tokio::time::timeout(wait, &mut connecting).await;
        if early.is_ok() || !bench.way.accepts_first() {
            break early;
        }
        connecting = Box::pin(bench.connect(Target::Filtered));
    };
    let admit = async {
        let (first, _) = bench.filtered.accept().await.unwrap();
        drop((first, filler));
        let (mut server, _) = bench.filtered.accept().await.unwrap();
        server.write_all(b"hello").await.unwrap();
    };
    let Ok(connected) = early else {
        let (client, ()) = tokio::join!(connecting, admit);
        return format!("client: connecting waits; then {}", rest(&mut client.unwrap()).await);
    };
    let mut client = connected.unwrap();
    let byte = waits(client.peek(&mut [0])).await;
    let (seen, ()) = tokio::join!(rest(&mut client), admit);
    format!("client: connected; the server's first byte {byte}; then {seen}")
}

async fn single_bytes(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    client.set_nodelay(true).unwrap();
    for byte in 0..200 {
        client.write_all(&[byte]).await.unwrap();
        let got = server.read_u8().await.unwrap();
        server.write_all(&[got]).await.unwrap();
        assert_eq!(client.read_u8().await.unwrap(), byte);
    }
    "200 of 200 at both".to_owned()
}

async fn large_writes(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    let piece = noise(21, 1 << 20);
    let send = async {
        for _ in 0..8 {
            client.write_all(&piece).await.unwrap();
        }
        client.shutdown().await.unwrap();
    };
    let (served, ()) = tokio::join!(all_right(&mut server, &piece, 8 << 20), send);
    format!("server: {served}")
}

async fn slow_reader(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    let sent = noise(22, 1 << 20);
    let send = async {
        server.write_all(&sent).await.unwrap();
        server.shutdown().await.unwrap();
    };
    let receive = async {
        let (mut right, mut piece) = (0, [0; 1000]);
        loop {
            match client.read(&mut piece).await.unwrap() {
                0 => return right,
                len => {
                    assert!(piece[..len] == sent[right..right + len], "wrong at {right}");
                    right += len;
                }
            }
            tokio::task::yield_now().await;
        }
    };
    let (right, ()) = tokio::join!(receive, send);
    format!("client: {right} bytes right, end")
}

async fn slow_writer(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    client.set_nodelay(true).unwrap();
    let sent = noise(23, 2000);
    let send = async {
        for &byte in &sent {
            client.write_all(&[byte]).await.unwrap();
            tokio::task::yield_now().await;
        }
        client.shutdown().await.unwrap();
    };
    let (served, ()) = tokio::join!(all_right(&mut server, &sent, 2000), send);
    format!("server: {served}")
}

async fn zero_window(bench: &Bench<'_>) -> String {
    let (client, mut server) = bench.both().await;
    let piece = noise(24, 1 << 20);
    let mut sent = 0;
    let (from, to) = (client.local_addr().unwrap().port(), bench.port(Target::Server));
    loop {
        let at = sent % piece.len();
        match client.try_write(&piece[at..]) {
            Ok(len) => sent += len,
            Err(_) if bench.deployment.is_stopped(from, to) => break,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
        }
        assert!(sent < 96 << 20, "the window of a reader that takes nothing never closes");
    }
    drop(SockRef::from(&client).shutdown(std::net::Shutdown::Write));
    let served = all_right(&mut server, &piece, sent).await;
    // The amount in between is not promised.
    format!("the writer stops; server: {}", served.replace(&sent.to_string(), "all"))
}

async fn urgent(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = bench.both().await;
    SockRef::from(&server).set_out_of_band_inline(true).unwrap();
    client.write_all(b"before ").await.unwrap();
    SockRef::from(&client).send_out_of_band(b"!").unwrap();
    client.write_all(b" after").await.unwrap();
    client.shutdown().await.unwrap();
    format!("server: {}", rest(&mut server).await)
}

async fn idle(bench: &Bench<'_>) -> String {
    let (mut client, mut server) = exchanged(bench).await;
    let silent = waits(client.peek(&mut [0])).await;
    server.write_all(b"again").await.unwrap();
    drop(server);
    format!("client: {silent}; then {}", rest(&mut client).await)
}

/// Makes a connection with a byte exchanged each way.
pub(super) async fn exchanged(bench: &Bench<'_>) -> (TcpStream, TcpStream) {
    let (mut client, mut server) = bench.both().await;
    client.write_all(b"?").await.unwrap();
    assert_eq!(server.read_u8().await.unwrap(), b'?');
    server.write_all(b"!").await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), b'!');
    (client, server)
}

/// Reads to the end, expecting `len` bytes of repetitions of `piece`.
async fn all_right(stream: &mut TcpStream, piece: &[u8], len: usize) -> String {
    let mut bytes = Vec::with_capacity(len);
    let ended = stream.read_to_end(&mut bytes).await;
    assert_eq!(bytes.len(), len);
    assert!(bytes.chunks(piece.len()).all(|part| part == &piece[..part.len()]), "a byte is wrong");
    format!("{len} bytes right, {}", end(&ended))
}
