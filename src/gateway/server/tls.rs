//! TLS on a client's connection: the handshake, and the facts that requests and the log take from it. Certificates and
//! settings are made in `net::tls`.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::listener::SharedListener;
use super::stream::ClientStream;
use super::worker::Worker;
use crate::service::{ClientAddresses, Service, config};
use auth::mtls::ClientCertificate;
use base::cause::Cause;
use net::outbox::QueuedSocket;

/// Does the handshake within its deadline. Returns the stream and whether HTTP/2 is spoken: because ALPN (RFC 7301) agreed on
/// it, or because the listener speaks nothing else. `None` if it failed.
pub async fn handshake<S: Service>(
    worker: &Worker<S>,
    listener: &SharedListener,
    config: &config::ListenerConfig,
    tls: Arc<rustls::ServerConfig>,
    (tcp, ends): (TcpStream, ClientAddresses),
) -> Option<(ClientStream, bool)> {
    let accept = async {
        // Only so many run at once, because a handshake costs a signature before the client has proved anything.
        let _permit = worker.handshakes.acquire().await;
        tokio_rustls::TlsAcceptor::from(tls).accept(QueuedSocket::new(tcp)).await
    };
    match timeout(worker.handshake_deadline(config.timeouts.handshake), accept).await {
        Ok(Ok(stream)) => {
            if stream.get_ref().1.alpn_protocol() == Some(acme::ALPN) {
                // Closed, because the authority has seen the certificate that it asked for, and nothing follows (RFC
                // 8737 section 4).
                return None;
            }
            // A client that offers no protocol speaks HTTP/1.1, because HTTP/2 over TLS must be negotiated (RFC 9113
            // section 3.2). A listener without HTTP/1.1 takes HTTP/2 from it, by prior knowledge, and nothing else.
            let agreed = stream.get_ref().1.alpn_protocol();
            let is_http2 = agreed == Some(b"h2") || (agreed.is_none() && !config.http1);
            Some((ClientStream::Tls(Box::new(stream)), is_http2))
        }
        Ok(Err(error)) => {
            tracing::debug!(listener = %config.name, %error, "TLS handshake failed");
            listener.metrics.handshake_failed(worker.service.cells());
            if let Some(cause) = Cause::of_tls_behind(&error) {
                worker.service.refuse_handshake(&config.name, ends, cause);
            }
            None
        }
        Err(_) => {
            listener.metrics.deadline_passed(worker.service.cells(), metrics::ConnectionDeadline::Handshake);
            None
        }
    }
}

/// The negotiated version; empty in the clear.
pub fn version(stream: &ClientStream) -> &'static str {
    match stream {
        ClientStream::Plain(_) => "",
        ClientStream::Tls(tls) => match tls.get_ref().1.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
    }
}

/// The server name (SNI) the client asked for; empty if it named none.
pub fn server_name(stream: &ClientStream) -> &str {
    match stream {
        ClientStream::Plain(_) => "",
        ClientStream::Tls(tls) => tls.get_ref().1.server_name().unwrap_or(""),
    }
}

/// The client's certificate. If the session was resumed, it is the one shown when the session began.
pub fn certificate(stream: &ClientStream) -> Option<Box<ClientCertificate>> {
    let ClientStream::Tls(tls) = stream else { return None };
    let leaf = tls.get_ref().1.peer_certificates()?.first()?;
    ClientCertificate::read(leaf).map(Box::new)
}
