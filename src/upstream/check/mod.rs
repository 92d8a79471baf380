//! Active checks: every server is asked now and then whether it works, once a process, on the control runtime.
//!
//! A check opens a connection of its own, over the way that requests take, so that a server whose kernel still accepts
//! does not pass for one that answers. What becomes of the result is [`super::health`]'s.

mod exchange;
mod probe;
pub mod watch;

use std::error::Error;
use std::time::Duration;

/// Why a server failed a check.
#[derive(Debug, thiserror::Error)]
enum CheckFailure {
    #[error("its name does not resolve")]
    Unresolved,
    #[error("no connection: {0}")]
    Connect(std::io::Error),
    /// The whole check took too long.
    #[error("no response within {0:?}")]
    Timeout(Duration),
    /// It speaks something else, or broke off; over TLS 1.3 also that it refuses the certificate.
    #[error("{}", with_causes(.0))]
    Http(#[from] hyper::Error),
    /// It answered, with a status that is not expected.
    #[error("it answered its health check with status {0}")]
    Status(u16),
    /// It answered, without what is expected in its body.
    #[error("the body of its response to the health check does not contain `body`")]
    Body,
    /// The gRPC service does not say that it serves.
    #[error("its gRPC health service does not report SERVING")]
    NotServing,
    /// The call of the gRPC service ended with this status.
    #[error("its gRPC health service answered with grpc-status {0}")]
    Code(u32),
    /// The call ended without one, as if the server had broken off.
    #[error("its gRPC health service answered without a grpc-status")]
    NoCode,
}

/// An error and what is behind it, because hyper says only that there was one, TLS says which.
fn with_causes(error: &hyper::Error) -> String {
    let causes = std::iter::successors(error.source(), |error| (**error).source());
    let text = causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"));
    // A server can write much into a GOAWAY.
    text.chars().take(TEXT_CHARS_MAX).collect()
}

/// So much of an error is shown.
const TEXT_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use http::{HeaderMap, HeaderValue, Request, Response};
    use http_body_util::{BodyExt, Full};
    use hyper::body::Incoming;
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    use tokio::net::TcpListener;

    use super::exchange::ask;
    use crate::config::{self, Config, HealthCheckConfig, HealthProbe, HttpVersion};
    use crate::{Upstream, config::ConfiguredServer};

    /// What the health service of a gRPC server says of the service that it is asked for.
    async fn said(request: Request<Incoming>) -> (Vec<u8>, Option<&'static str>) {
        let path = request.uri().path().to_owned();
        let asked = request.into_body().collect().await.expect("a message").to_bytes();
        let status = match &asked[5..] {
            b"" => 1,
            b"\x0a\x06orders" => 2,
            b"\x0a\x06failed" | b"\x0a\x06broken" => 1,
            _ => 3,
        };
        // How the call ends.
        let code = match &asked[5..] {
            b"\x0a\x06failed" => Some("2"),
            b"\x0a\x06broken" => None,
            _ => Some("0"),
        };
        assert_eq!(path, "/grpc.health.v1.Health/Check");
        (vec![0, 0, 0, 0, 2, 0x08, status], code)
    }

    /// An upstream that is one gRPC server.
    async fn server() -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let port = listener.local_addr().expect("it is bound").port();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let service = service_fn(|request| async {
                    let (message, code) = said(request).await;
                    let name = http::HeaderName::from_static("grpc-status");
                    let trailers =
                        code.map(|code| HeaderMap::from_iter([(name, HeaderValue::from_static(code))]));
                    let body = Full::new(Bytes::from(message));
                    let body = body.with_trailers(std::future::ready(trailers.map(Ok)));
                    Ok::<_, Infallible>(Response::new(body))
                });
                let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                tokio::spawn(builder.serve_connection(TokioIo::new(stream), service));
            }
        });
        Upstream::new(
            Config {
                name: "u".to_owned(),
                servers: vec![ConfiguredServer {
                    tls: false,
                    place: config::ServerLocation::Tcp { host: "127.0.0.1".to_owned(), port },
                    weight: 1,
                }],
                balance: config::Balance::default(),
                sticky: None,
                http: HttpVersion::H2,
                tls: Default::default(),
                connections: Default::default(),
                timeouts: Default::default(),
                retry: Default::default(),
                retry_budget_percent: 0,
                uploads: Default::default(),
                host: Default::default(),
                health: Default::default(),
            },
            None,
        )
    }

    #[tokio::test]
    async fn a_grpc_service_is_healthy_if_it_says_that_it_serves() {
        let upstream = Arc::new(server().await);
        for (service, said) in [
            ("", None),
            ("orders", Some("SERVING")),
            ("others", Some("SERVING")),
            ("failed", Some("grpc-status 2")),
            ("broken", Some("without a grpc-status")),
        ] {
            let probe = HealthProbe::Grpc(service.to_owned());
            let check =
                HealthCheckConfig { probe, timeout: Duration::from_secs(10), ..HealthCheckConfig::default() };
            let result =
                ask(&upstream, crate::ServerIndex::new(0), &check).await.expect("there are descriptors");
            match (said, result) {
                (None, result) => result.expect("it serves"),
                (Some(word), Err(failure)) => assert!(failure.to_string().contains(word), "{failure}"),
                (Some(_), Ok(())) => panic!("{service} does not serve"),
            }
        }
    }
}
