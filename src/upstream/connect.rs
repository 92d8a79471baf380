//! One new connection to a server: TCP, TLS where wanted, HTTP/2's handshake.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use http_body::Body;
use hyper::client::conn::http2;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{Upstream, config};
use crate::cause::Cause;
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
    /// The TLS handshake failed: who is there is not whom the configuration means, or refuses us.
    #[error("TLS: {source}")]
    Tls {
        /// Why, in one word.
        cause: Cause,
        /// What TLS says.
        source: std::io::Error,
    },
    /// It took too long.
    #[error("not connected within {0:?}")]
    Timeout(Duration),
    /// The HTTP handshake broke.
    #[error("{0}")]
    Http(#[from] hyper::Error),
}

impl ConnectError {
    /// What was wrong, in one word; `None` where its kind says it already.
    pub fn cause(&self) -> Option<Cause> {
        match self {
            ConnectError::Unresolved => None,
            ConnectError::Tls { cause, .. } => Some(*cause),
            ConnectError::Io(error) => Some(Cause::of_connect(error)),
            ConnectError::Http(_) => Some(Cause::ConnectFailed),
            ConnectError::Timeout(_) => Some(Cause::ConnectTimeout),
        }
    }
}

/// A stream to a server, in the clear or not.
pub trait Stream: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug {}
impl<T: AsyncRead + AsyncWrite + Unpin + std::fmt::Debug> Stream for T {}

/// Opens an HTTP/1.1 connection to server `index`.
pub(super) async fn http1(upstream: &Upstream, index: usize) -> Result<Box<dyn Stream>, ConnectError> {
    within(upstream, stream(upstream, index)).await
}

/// An HTTP/2 connection that has just been opened.
pub(super) struct Opened<B> {
    pub sender: http2::SendRequest<B>,
    /// What it knows of the frames that come on it.
    pub meter: Rc<RefCell<Meter>>,
}

/// Opens an HTTP/2 connection to server `index` and drives it until it ends.
pub(super) async fn http2<B>(upstream: &Upstream, index: usize) -> Result<Opened<B>, ConnectError>
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
        let (sender, connection) = builder.handshake(stream).await.map_err(broken)?;
        let name = upstream.servers[index].authority.clone();
        let opened = Opened { sender, meter: Rc::clone(&meter) };
        tokio::task::spawn_local(async move {
            let Err(error) = connection.await else { return };
            match meter.borrow().excess() {
                Some(excess) => tracing::warn!(server = name, "upstream sends too much of {}", excess.name()),
                None => tracing::debug!(%error, "upstream connection ended"),
            }
        });
        Ok(opened)
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
    let connected = tokio_rustls::TlsConnector::from(tls).connect(name, tcp).await;
    connected.map_err(|source| match Cause::of_tls_behind(&source) {
        Some(cause) => ConnectError::Tls { cause, source },
        // Closed or reset in the middle of it.
        None => ConnectError::Io(source),
    })
}

/// A server that refuses our certificate over TLS 1.3 does so within HTTP's handshake.
fn broken(error: hyper::Error) -> ConnectError {
    match Cause::of_tls_behind(&error) {
        Some(cause) => ConnectError::Tls { cause, source: std::io::Error::other(error) },
        None => ConnectError::Http(error),
    }
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

/// The longest head of an answer over HTTP/2, as RFC 9113 section 6.5.2 counts it.
const HEAD_BYTES: u32 = 32 * 1024;
const WINDOW_BYTES: u32 = 1024 * 1024;
