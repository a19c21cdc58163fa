//! Bytes before a reset, against traffic in the other direction.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use crate::common::{Origin, Pair, forward, noise, reset, within};

/// The bytes before the reset.
const LAST: usize = 10_000;

/// Repetitions: the gateway's first look at either end is random.
const TIMES: usize = 40;

/// Sends noise without end, and reads until any end of the other side.
async fn talk_and_listen(stream: TcpStream) -> Vec<u8> {
    let (mut read, mut write) = stream.into_split();
    let talking = tokio::spawn(async move {
        let piece = noise(7, 16 << 10);
        while write.write_all(&piece).await.is_ok() {}
    });
    let (mut got, mut piece) = (Vec::new(), [0; 4096]);
    while let Ok(len @ 1..) = read.read(&mut piece).await {
        got.extend_from_slice(&piece[..len]);
    }
    talking.abort();
    got
}

/// Reads enough to know the other side to be in full flow.
async fn listen(stream: &mut TcpStream) {
    stream.read_exact(&mut vec![0; 1 << 20]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn early_answer_arrives_while_its_client_still_sends() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            listen(&mut stream).await;
            stream.write_all(&noise(25, LAST)).await.unwrap();
            // Closed with unread bytes: a reset.
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        for time in 0..TIMES {
            let got = talk_and_listen(pair.connect().await).await;
            assert!(got == noise(25, LAST), "{} bytes came, the {time}th time", got.len());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn last_command_arrives_while_the_server_still_sends() {
    within(async {
        let (tell, mut told) = mpsc::channel(1);
        let origin = Origin::start(move |stream| {
            let tell = tell.clone();
            async move { tell.send(talk_and_listen(stream).await).await.unwrap() }
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        for time in 0..TIMES {
            let mut client = pair.connect().await;
            listen(&mut client).await;
            client.write_all(&noise(26, LAST)).await.unwrap();
            reset(client);
            let got = told.recv().await.unwrap();
            assert!(got == noise(26, LAST), "{} bytes came, the {time}th time", got.len());
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writing_to_a_closed_server_fails() {
    within(async {
        let origin = Origin::start(|mut stream| async move {
            stream.read_u8().await.unwrap();
            stream.write_all(b"x").await.unwrap();
        })
        .await;
        let pair = Pair::start(&forward(origin.address)).await;
        for _ in 0..TIMES {
            let mut client = pair.connect().await;
            client.write_all(b"x").await.unwrap();
            let mut got = Vec::new();
            client.read_to_end(&mut got).await.unwrap();
            assert_eq!(got, b"x");
            while client.write_all(b"still here?").await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
    })
    .await;
}
