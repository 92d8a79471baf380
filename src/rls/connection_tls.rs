//! TLS of the gRPC listener: the handshake, and whether the client may ask.

use std::sync::Arc;

use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use super::config::{Config, GrpcClient};
use super::limits::PRELUDE;
use super::stats::RlsStats;
use auth::mtls::ClientCertificate;
use base::{clock, log_lines::RareLine};

static REFUSED: RareLine = RareLine::new();

pub(super) struct ConnectionTls {
    pub(super) settings: Arc<ServerConfig>,
    pub(super) clients: Arc<[GrpcClient]>,
    pub(super) stats: RlsStats,
}

impl ConnectionTls {
    /// Does the handshake. `None` if it fails, or the client may not ask.
    pub(super) async fn accept(self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let acceptor = TlsAcceptor::from(self.settings);
        let stream = match timeout(PRELUDE, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, "gRPC connection: TLS handshake failed");
                // Only then, because a client that just leaves, as probes do, was not refused.
                if error.get_ref().is_some_and(|error| error.is::<rustls::Error>()) {
                    self.stats.refused_connection();
                }
                return None;
            }
            Err(_) => return None,
        };
        let shown =
            stream.get_ref().1.peer_certificates().and_then(|chain| ClientCertificate::read(chain.first()?));
        if !Config::admits(&self.clients, shown.as_ref()) {
            if let (true, Ok(from)) = (REFUSED.is_due(clock::now_ns()), stream.get_ref().0.peer_addr()) {
                tracing::warn!(%from, "gRPC client refused: its certificate is not in `clients` of `grpc` in [admin]");
            }
            self.stats.refused_connection();
            return None;
        }
        Some(stream)
    }
}
