//! A bare byte relay: what it costs to have a connection's bytes pass through one tokio thread at all.
//!
//! It accepts, connects to the upstream once for each connection and copies both ways until both sides
//! have closed. It reads no HTTP, limits nothing and logs nothing: it is the floor that the gateway's
//! cost of a request is held against.

use std::net::SocketAddr;

use anyhow::Context;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut address = |role: &str| -> anyhow::Result<SocketAddr> {
        let text = arguments.next().with_context(|| format!("{role} is missing: relay LISTEN UPSTREAM"))?;
        text.parse().with_context(|| format!("{role} `{text}` is not an address and port"))
    };
    let (listen, upstream) = (address("LISTEN")?, address("UPSTREAM")?);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(relay(listen, upstream))
}

/// Accepts on `listen` until the process is stopped.
async fn relay(listen: SocketAddr, upstream: SocketAddr) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).await.with_context(|| format!("cannot listen on {listen}"))?;
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (client, _) = accepted?;
                connections.spawn(pass_through(client, upstream));
            }
            // Reaps what has ended, so that a long run does not keep every connection it ever had.
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended? {
                    eprintln!("connection: {error}");
                }
            }
        }
    }
}

/// Copies both ways between `client` and a connection of its own to `upstream`.
async fn pass_through(mut client: TcpStream, upstream: SocketAddr) -> std::io::Result<()> {
    let mut server = TcpStream::connect(upstream).await?;
    // Small requests and answers are the whole traffic: waiting for more bytes would measure Nagle.
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    copy_bidirectional(&mut client, &mut server).await?;
    Ok(())
}
