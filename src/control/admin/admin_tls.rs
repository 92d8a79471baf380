//! TLS of the admin listener: the handshake, and whom a client's certificate stands for. Files are read by `app`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::Router;
use rustls::ServerConfig;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::activity::AdminActivity;
use super::connection::converse;
use super::limits::AdminLimits;
use super::state::AdminState;
use auth::mtls::ClientCertificate;

/// The settings in force; they change when files do.
pub type Settings = Arc<ArcSwap<ServerConfig>>;

#[derive(Clone)]
pub(super) struct AdminTls {
    pub settings: Settings,
    pub state: Arc<AdminState>,
}

impl AdminTls {
    /// Does the handshake within the time for a head, and answers requests from then on.
    pub(super) async fn converse(
        self,
        stream: TcpStream,
        router: Router,
        activity: Arc<AdminActivity>,
        limits: AdminLimits,
        stopped: watch::Receiver<()>,
    ) {
        let acceptor = TlsAcceptor::from(self.settings.load_full());
        let stream = match timeout(limits.head, acceptor.accept(stream)).await {
            Ok(Ok(stream)) => stream,
            Ok(Err(error)) => {
                tracing::debug!(%error, from = ?activity.from, "admin connection: TLS handshake failed");
                return;
            }
            Err(_) => return,
        };
        let shown =
            stream.get_ref().1.peer_certificates().and_then(|chain| ClientCertificate::read(chain.first()?));
        if let Some(vouched) = shown.and_then(|certificate| self.state.access.vouched(&certificate)) {
            // Never set before, because a connection has one handshake.
            let _ = activity.vouched.set(vouched);
        }
        converse(Box::new(stream), router, activity, limits, stopped).await;
    }
}
