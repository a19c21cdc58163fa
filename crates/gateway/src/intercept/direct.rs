//! Joins two sockets when no link is used, with the same truths as over one.
//!
//! Bytes stay in the kernel where it can move them from socket to socket, and are copied where it can not.

use std::io;

use bytes::Bytes;
use tokio::net::TcpStream;

use super::pipes::Pipe;
use crate::flows::pump::{self, Read};
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
    loop {
        from.readable().await?;
        splice(from, to, direct).await?;
        // What is left is what cannot be spliced: the end, urgent data, or everything where there is no pipe.
        match pump::read_block(from)? {
            Read::Nothing => {}
            Read::Bytes(block) => copy(&block, to, direct).await?,
            Read::End(rest) => {
                copy(&rest, to, direct).await?;
                break;
            }
        }
    }
    sockets::end_cleanly(to);
    pump::end_stream(to)
}

/// Moves what is there, and what comes meanwhile, without looking at it.
async fn splice(from: &TcpStream, to: &TcpStream, direct: &Direct) -> io::Result<()> {
    let Some(mut pipe) = Pipe::lend() else { return Ok(()) };
    while pipe.fill(from)? > 0 {
        while pipe.held() > 0 {
            match pipe.drain(to)? {
                0 => to.writable().await?,
                moved => direct.add_bytes(moved),
            }
        }
        // Neither side of this need ever wait, and other connections share the thread.
        tokio::task::consume_budget().await;
    }
    Ok(())
}

async fn copy(bytes: &[u8], to: &TcpStream, direct: &Direct) -> io::Result<()> {
    pump::write_all(to, bytes).await?;
    direct.add_bytes(bytes.len());
    Ok(())
}
