//! Copies between two sockets when no link is used, with the same truths as over one.

use std::io;

use bytes::{Bytes, BytesMut};
use tokio::net::TcpStream;

use crate::flows::pump;
use crate::ledger::Direct;
use crate::sockets;

/// Carries a connection between two prepared application sockets until both directions ended, or one broke.
pub(super) async fn carry(
    client: TcpStream,
    server: TcpStream,
    early: Bytes,
    direct: &Direct,
) -> pump::Ended {
    let both = async {
        tokio::try_join!(
            one_way(&client, &server, early, direct),
            one_way(&server, &client, Bytes::new(), direct)
        )
    };
    let broken = tokio::select! {
        ended = both => ended.err(),
        error = pump::socket_error(&client) => Some(error),
        error = pump::socket_error(&server) => Some(error),
    };
    match broken {
        None => pump::Ended::InOrder,
        Some(_) => {
            sockets::end_with_reset(&client);
            sockets::end_with_reset(&server);
            pump::Ended::Reset
        }
    }
}

async fn one_way(from: &TcpStream, to: &TcpStream, early: Bytes, direct: &Direct) -> io::Result<()> {
    pump::write_all(to, &early).await?;
    direct.add_bytes(early.len());
    let mut block = BytesMut::with_capacity(BLOCK);
    loop {
        from.readable().await?;
        block.clear();
        match from.try_read_buf(&mut block) {
            Ok(0) => break,
            Ok(_) => {
                pump::write_all(to, &block).await?;
                direct.add_bytes(block.len());
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    sockets::end_cleanly(to);
    pump::end_stream(to)
}

const BLOCK: usize = 64 << 10;
