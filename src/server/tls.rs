//! The TLS side of a client's connection: the handshake, and what it has told of the client.

use std::sync::Arc;

use tokio::net::TcpStream;
use tokio::time::timeout;

use super::listener::Listener;
use super::stream::Stream;
use super::worker::Worker;
use crate::auth::mtls::Certificate;
use crate::cause::Cause;
use crate::metrics;
use crate::service::{Ends, Service, config};

/// The handshake within its deadline, and whether ALPN (RFC 7301) has agreed on HTTP/2.
pub async fn handshake<S: Service>(
    worker: &Worker<S>,
    listener: &Listener,
    config: &config::Listener,
    tls: Arc<rustls::ServerConfig>,
    (tcp, ends): (TcpStream, Ends),
) -> Option<(Stream, bool)> {
    let accept = async {
        // What a handshake costs before the client has proved anything is bounded: more of them wait for their turn.
        let _turn = worker.handshakes.acquire().await;
        tokio_rustls::TlsAcceptor::from(tls).accept(tcp).await
    };
    match timeout(worker.handshake_deadline(config.timeouts.handshake), accept).await {
        Ok(Ok(stream)) => {
            // No ALPN at all: HTTP/1.1 (RFC 9113 section 3.2 asks HTTP/2 over TLS to use it).
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            Some((Stream::Tls(Box::new(stream)), is_http2))
        }
        Ok(Err(error)) => {
            tracing::debug!(listener = %config.name, %error, "TLS handshake");
            listener.metrics.handshake_failed(worker.service.cells());
            if let Some(cause) = Cause::of_tls_behind(&error) {
                worker.service.refuse_handshake(&config.name, ends, cause);
            }
            None
        }
        Err(_) => {
            listener.metrics.deadline_passed(worker.service.cells(), metrics::Deadline::Handshake);
            None
        }
    }
}

/// Which TLS is spoken; empty in the clear.
pub fn version(stream: &Stream) -> &'static str {
    match stream {
        Stream::Plain(_) => "",
        Stream::Tls(tls) => match tls.get_ref().1.protocol_version() {
            Some(rustls::ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "TLSv1.3",
        },
    }
}

/// The name the client asked for in its hello; empty if it named none.
pub fn server_name(stream: &Stream) -> &str {
    match stream {
        Stream::Plain(_) => "",
        Stream::Tls(tls) => tls.get_ref().1.server_name().unwrap_or(""),
    }
}

/// What the client showed; of a session that is resumed, when that began.
pub fn certificate(stream: &Stream) -> Option<Box<Certificate>> {
    let Stream::Tls(tls) = stream else { return None };
    let leaf = tls.get_ref().1.peer_certificates()?.first()?;
    Certificate::read(leaf).map(Box::new)
}
