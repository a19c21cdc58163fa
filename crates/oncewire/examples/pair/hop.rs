//! A plain relay, for comparison: one hop of it.

use std::net::SocketAddr;

use tokio::runtime::Runtime;

/// Relays connections to `target` on the returned runtime: read, write, nothing else.
pub(crate) fn hop(listen: SocketAddr, target: SocketAddr) -> (Runtime, SocketAddr) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let listener = runtime.block_on(tokio::net::TcpListener::bind(listen)).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move {
        while let Ok((mut near, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut far = tokio::net::TcpStream::connect(target).await?;
                near.set_nodelay(true)?;
                far.set_nodelay(true)?;
                tokio::io::copy_bidirectional_with_sizes(&mut near, &mut far, BUFFER, BUFFER).await
            });
        }
    });
    (runtime, address)
}

const BUFFER: usize = 64 * 1024;
