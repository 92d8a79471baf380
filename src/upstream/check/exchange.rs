//! One check from its connection to its result, within its timeout.

use std::net::SocketAddr;

use http::Version;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use super::CheckFailure;
use super::probe::{self, Asked};
use crate::Upstream;
use crate::config::{self, HealthCheckConfig, HealthProbe};
use crate::connect;
use crate::ids::ServerIndex;
use crate::server::ServerAddress;
use net::any_stream::AnyStream;
use net::descriptors;

/// Asks server `index` once. `None`: it is not the server's fault that it could not be asked.
pub(super) async fn ask(
    upstream: &Upstream,
    index: ServerIndex,
    check: &HealthCheckConfig,
) -> Option<Result<(), CheckFailure>> {
    let asking = tokio::time::timeout(check.timeout, ask_at_leisure(upstream, index, check));
    let result = asking.await.unwrap_or(Err(CheckFailure::Timeout(check.timeout)));
    match &result {
        Err(CheckFailure::Connect(error)) if descriptors::is_shortage(error) => None,
        _ => Some(result),
    }
}

async fn ask_at_leisure(
    upstream: &Upstream,
    index: ServerIndex,
    check: &HealthCheckConfig,
) -> Result<(), CheckFailure> {
    let tcp = match upstream.servers[index].address.as_ref().ok_or(CheckFailure::Unresolved)? {
        ServerAddress::Unix(path) => {
            let stream = connect::unix(path).await.map_err(CheckFailure::Connect)?;
            return ask_over(Box::new(stream), upstream, index, &check.probe).await;
        }
        ServerAddress::Tcp(address) => {
            let address = SocketAddr::new(address.ip(), check.port.unwrap_or(address.port()));
            TcpStream::connect(address).await.map_err(CheckFailure::Connect)?
        }
    };
    match upstream.tls.as_ref().filter(|_| upstream.configured(index).tls) {
        Some(tls) => {
            let name = upstream.config.tls.name(&upstream.servers[index].tls_name).to_owned();
            let name =
                ServerName::try_from(name).map_err(std::io::Error::other).map_err(CheckFailure::Connect)?;
            let connector = tokio_rustls::TlsConnector::from(tls.load_full());
            let stream = connector.connect(name, tcp).await.map_err(CheckFailure::Connect)?;
            ask_over(Box::new(stream), upstream, index, &check.probe).await
        }
        None => ask_over(Box::new(tcp), upstream, index, &check.probe).await,
    }
}

async fn ask_over(
    stream: AnyStream,
    upstream: &Upstream,
    index: ServerIndex,
    probe: &HealthProbe,
) -> Result<(), CheckFailure> {
    let is_tls = upstream.configured(index).tls;
    let authority = upstream.servers[index].host.as_str();
    let version = match upstream.config.http {
        config::HttpVersion::H1 => Version::HTTP_11,
        config::HttpVersion::H2 => Version::HTTP_2,
    };
    let asked = match probe {
        HealthProbe::Tcp => return Ok(()),
        HealthProbe::Http { path, .. } => probe::get(path, authority, is_tls, version),
        HealthProbe::Grpc(service) => probe::call(service, authority, is_tls),
    };
    // The configuration has seen to it that there is a request; without one nothing can be said for the server.
    let asked = asked.ok_or(CheckFailure::Unresolved)?;
    let (answer, _connection) = exchange(stream, asked, version).await?;
    match probe {
        HealthProbe::Tcp => Ok(()),
        HealthProbe::Http { status, body, .. } => probe::judge_http(answer, status, body.as_deref()).await,
        HealthProbe::Grpc(_) => probe::judge_grpc(answer).await,
    }
}

/// Sends a request over a connection whose task ends with the check, whatever the server still sends: when the set of it
/// is dropped.
async fn exchange(
    stream: AnyStream,
    asked: Asked,
    version: Version,
) -> Result<(http::Response<hyper::body::Incoming>, JoinSet<hyper::Result<()>>), CheckFailure> {
    let (stream, mut driven) = (TokioIo::new(stream), JoinSet::new());
    if version == Version::HTTP_2 {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder.max_header_list_size(HEAD_BYTES);
        let (mut sender, connection) = builder.handshake(stream).await?;
        driven.spawn(connection);
        return Ok((sender.send_request(asked).await?, driven));
    }
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES as usize);
    let (mut sender, connection) = builder.handshake(stream).await?;
    driven.spawn(connection);
    Ok((sender.send_request(asked).await?, driven))
}

const HEAD_BYTES: u32 = 32 * 1024;
