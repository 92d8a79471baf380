//! One check from its connection to its result, within its timeout.

use std::net::SocketAddr;

use http::Version;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::Failure;
use super::probe::{self, Asked};
use crate::Upstream;
use crate::config::{self, Check, Probe};
use crate::connect;
use crate::shared::Address;
use net::descriptors;

/// Asks server `index` once. `None`: it is not the server's fault that it could not be asked.
pub(super) async fn ask(upstream: &Upstream, index: usize, check: &Check) -> Option<Result<(), Failure>> {
    let asking = tokio::time::timeout(check.timeout, ask_at_leisure(upstream, index, check));
    let result = asking.await.unwrap_or(Err(Failure::Timeout(check.timeout)));
    match &result {
        Err(Failure::Connect(error)) if descriptors::is_shortage(error) => None,
        _ => Some(result),
    }
}

async fn ask_at_leisure(upstream: &Upstream, index: usize, check: &Check) -> Result<(), Failure> {
    let tcp = match upstream.servers[index].address.as_ref().ok_or(Failure::Unresolved)? {
        Address::Unix(path) => {
            let stream = connect::unix(path).await.map_err(Failure::Connect)?;
            return ask_over(stream, upstream, index, &check.probe).await;
        }
        Address::Tcp(address) => {
            let address = SocketAddr::new(address.ip(), check.port.unwrap_or(address.port()));
            TcpStream::connect(address).await.map_err(Failure::Connect)?
        }
    };
    match upstream.tls.as_ref().filter(|_| upstream.config.servers[index].tls) {
        Some(tls) => {
            let name = upstream.config.tls.name(&upstream.servers[index].tls_name).to_owned();
            let name = ServerName::try_from(name).map_err(std::io::Error::other).map_err(Failure::Connect)?;
            let connector = tokio_rustls::TlsConnector::from(tls.load_full());
            let stream = connector.connect(name, tcp).await.map_err(Failure::Connect)?;
            ask_over(stream, upstream, index, &check.probe).await
        }
        None => ask_over(tcp, upstream, index, &check.probe).await,
    }
}

async fn ask_over<S>(stream: S, upstream: &Upstream, index: usize, probe: &Probe) -> Result<(), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let is_tls = upstream.config.servers[index].tls;
    let authority = upstream.servers[index].host.as_str();
    let version = match upstream.config.http {
        config::Version::H1 => Version::HTTP_11,
        config::Version::H2 => Version::HTTP_2,
    };
    let asked = match probe {
        Probe::Tcp => return Ok(()),
        Probe::Http { path, .. } => probe::get(path, authority, is_tls, version),
        Probe::Grpc(service) => probe::call(service, authority, is_tls),
    };
    // The configuration has seen to it that there is a request; without one nothing can be said for the server.
    let asked = asked.ok_or(Failure::Unresolved)?;
    let (answer, _connection) = exchange(stream, asked, version).await?;
    match probe {
        Probe::Tcp => Ok(()),
        Probe::Http { status, body, .. } => probe::judge_http(answer, status, body.as_deref()).await,
        Probe::Grpc(_) => probe::judge_grpc(answer).await,
    }
}

/// Sends a request over a connection that is driven for as long as [`Driven`] lives.
async fn exchange<S>(
    stream: S,
    asked: Asked,
    version: Version,
) -> Result<(http::Response<hyper::body::Incoming>, Driven), Failure>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let stream = TokioIo::new(stream);
    if version == Version::HTTP_2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(HEAD_BYTES);
        let (mut sender, connection) = builder.handshake(stream).await?;
        let driven = Driven(tokio::spawn(connection).abort_handle());
        return Ok((sender.send_request(asked).await?, driven));
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES as usize);
    let (mut sender, connection) = builder.handshake(stream).await?;
    let driven = Driven(tokio::spawn(connection).abort_handle());
    Ok((sender.send_request(asked).await?, driven))
}

/// The task of a check's connection. It ends with the check, whatever the server still sends.
struct Driven(AbortHandle);

impl Drop for Driven {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The longest head of an answer to a check.
const HEAD_BYTES: u32 = 32 * 1024;
