//! One new connection to a server: TCP, TLS where wanted, the HTTP handshake.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::counted::Counted;
use super::{Upstream, config};
use crate::clock;
use crate::frames::{Meter, Metered, Peer};

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server's name has no address.
    #[error("its name does not resolve")]
    Unresolved,
    /// The operating system's answer.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// It took too long.
    #[error("not connected within {0:?}")]
    Timeout(Duration),
    /// The HTTP handshake broke.
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

/// A stream to a server, in the clear or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug> Stream for T {}

/// The stream of an HTTP/1.1 connection, which counts what the server sends.
pub(super) type CountedStream = TokioIo<Counted<Box<dyn Stream>>>;

/// The two ends of an HTTP/1.1 connection: what requests are handed to, and what has to be driven. Beside them, how many
/// bytes the server has sent.
pub(super) type Http1<B> = (http1::SendRequest<B>, http1::Connection<CountedStream, B>, Rc<Cell<u64>>);

/// Opens an HTTP/1.1 connection to server `index`.
pub(super) async fn http1<B>(upstream: &Upstream, index: usize) -> Result<Http1<B>, ConnectError>
where
    B: Body + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    within(upstream, async {
        let received = Rc::new(Cell::new(0));
        let stream = Counted { stream: stream(upstream, index).await?, received: Rc::clone(&received) };
        let mut builder = http1::Builder::new();
        builder.max_buf_size(BUFFER_BYTES).max_headers(HEADERS_MAX);
        let (sender, connection) = builder.handshake(TokioIo::new(stream)).await?;
        Ok((sender, connection, received))
    })
    .await
}

/// Opens an HTTP/2 connection to server `index` and drives it until it ends.
pub(super) async fn http2<B>(upstream: &Upstream, index: usize) -> Result<http2::SendRequest<B>, ConnectError>
where
    B: Body + Unpin + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    within(upstream, async {
        let stream = stream(upstream, index).await?;
        let streams = u32::try_from(upstream.config.connections.streams).unwrap_or(u32::MAX);
        let meter = Rc::new(RefCell::new(Meter::new(Peer::Server, streams, clock::instant())));
        let stream = TokioIo::new(Metered::new(stream, Rc::clone(&meter), clock::instant));
        let mut builder = http2::Builder::new(LocalExecutor);
        builder
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES * 4)
            .max_header_list_size(HEAD_BYTES);
        let (sender, connection) = builder.handshake(stream).await?;
        let name = upstream.servers[index].authority.clone();
        tokio::task::spawn_local(async move {
            let Err(error) = connection.await else { return };
            match meter.borrow().excess() {
                Some(excess) => tracing::warn!(server = name, "upstream sends too much of {}", excess.name()),
                None => tracing::debug!(%error, "upstream connection ended"),
            }
        });
        Ok(sender)
    })
    .await
}

async fn within<T>(
    upstream: &Upstream,
    attempt: impl Future<Output = Result<T, ConnectError>>,
) -> Result<T, ConnectError> {
    let limit = upstream.config.timeouts.connect;
    tokio::time::timeout(limit, attempt).await.unwrap_or(Err(ConnectError::Timeout(limit)))
}

/// The first address that answers.
async fn stream(upstream: &Upstream, index: usize) -> Result<Box<dyn Stream>, ConnectError> {
    let addresses = upstream.servers[index].addresses.load_full();
    let mut last = ConnectError::Unresolved;
    for address in addresses.iter() {
        match TcpStream::connect(address).await {
            Ok(tcp) => {
                tcp.set_nodelay(true)?;
                let server = &upstream.config.servers[index];
                return match (&upstream.tls, server.tls) {
                    (Some(tls), true) => Ok(Box::new(secure(Arc::clone(tls), server, tcp).await?)),
                    _ => Ok(Box::new(tcp)),
                };
            }
            Err(error) => last = error.into(),
        }
    }
    Err(last)
}

async fn secure(
    tls: Arc<rustls::ClientConfig>,
    server: &config::Server,
    tcp: TcpStream,
) -> Result<TlsStream<TcpStream>, ConnectError> {
    let name = ServerName::try_from(server.host.clone()).map_err(std::io::Error::other)?;
    Ok(tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await?)
}

/// Runs hyper's own tasks on the worker that owns the connection.
#[derive(Clone, Copy, Debug)]
pub struct LocalExecutor;

impl<F: Future + 'static> hyper::rt::Executor<F> for LocalExecutor {
    fn execute(&self, future: F) {
        tokio::task::spawn_local(async move {
            future.await;
        });
    }
}

/// The longest head of an answer, and what is read ahead of its body.
pub(super) const BUFFER_BYTES: usize = 128 * 1024;
/// Fields in the head of an answer.
const HEADERS_MAX: usize = 200;
/// The longest head of an answer over HTTP/2, as RFC 9113 section 6.5.2 counts it.
const HEAD_BYTES: u32 = 32 * 1024;
const WINDOW_BYTES: u32 = 1024 * 1024;
