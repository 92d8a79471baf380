//! The gateway's own requests to authorities and issuers: one connection a request, over TLS unless it is to this
//! machine, each within a deadline and a bound on the answer. Connections are not kept, because such requests are rare.
//! Requests of clients never go this way.

use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::any_stream::AnyStream;
use crate::trust::Trust;
use base::cause::Cause;

#[derive(Clone)]
pub struct Connect {
    /// Makes what a connection over TLS is made with, or says why it cannot. It reads files.
    pub tls: Arc<dyn Fn(&Trust) -> Trusted + Send + Sync>,
    /// Finds the addresses of a name. A look-up that is given up ends.
    pub names: Arc<dyn Fn(String) -> Found + Send + Sync>,
}

/// What a connection over TLS is made with, or why there is nothing.
pub type Trusted = Result<ClientConfig, String>;

/// The addresses of a name, or why there are none.
pub type Found = Pin<Box<dyn Future<Output = std::io::Result<Vec<IpAddr>>> + Send>>;

/// Why a request got no answer. Only host and port are named, because the rest of the URL may hold a secret.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The URL is of plain HTTP to another machine.
    #[error("{0} must be fetched over https: over plain http anyone on the network path could answer")]
    Plain(String),
    /// No request can be sent to the URL.
    #[error("{0} is not a host that requests can be sent to")]
    Url(String),
    /// What the server is verified by cannot be read.
    #[error("{0}")]
    Trust(String),
    /// It cannot be reached, or breaks off.
    #[error("{host}: {}", said(.source))]
    Io { host: String, source: std::io::Error },
    #[error("{host}: {source}")]
    Http { host: String, source: hyper::Error },
    /// It does not answer in time.
    #[error("{0}: no response in time")]
    Timeout(String),
    /// Its answer is too long, or breaks off.
    #[error("{0}: the response is too long or incomplete")]
    Body(String),
}

/// What TLS or the operating system says of a connection. In our own words, because those of the library have moments in
/// seconds since 1970.
fn said(error: &std::io::Error) -> String {
    Cause::of_tls_behind(error).map_or_else(|| error.to_string(), |cause| cause.sentence().to_owned())
}

/// Who is asked, by what they are verified.
#[derive(Clone)]
pub struct FetchClient {
    connect: Connect,
    trust: Trust,
    clear: Clear,
    protocol: FetchProtocol,
}

/// Which servers may be asked without TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clear {
    ThisMachine,
    Anybody,
}

/// How a server is spoken to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchProtocol {
    Http1,
    Http2,
}

impl FetchClient {
    /// A client that verifies servers by `trust`.
    pub fn new(connect: Connect, trust: Trust) -> FetchClient {
        FetchClient { connect, trust, clear: Clear::ThisMachine, protocol: FetchProtocol::Http1 }
    }

    /// The same for servers that may be asked over plain HTTP: where neither question nor answer decides anything.
    pub fn also_in_the_clear(self) -> FetchClient {
        FetchClient { clear: Clear::Anybody, ..self }
    }

    /// The same over HTTP/2, without asking whether a server speaks it. Trailers are among an answer's fields.
    pub fn over_http2(self) -> FetchClient {
        FetchClient { protocol: FetchProtocol::Http2, ..self }
    }

    /// Sends a request to its absolute URL and reads the whole answer. Redirects are not followed, because where to ask
    /// is the operator's word.
    ///
    /// # Errors
    /// If there is no whole answer of at most a MiB within this time.
    pub async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        within: Duration,
    ) -> Result<Response<Bytes>, Error> {
        let authority = request.uri().authority().map(|it| it.as_str()).unwrap_or_default();
        let server = authority.rsplit('@').next().unwrap_or_default().to_owned();
        let exchange = self.exchange(request, &server);
        timeout(within, exchange).await.unwrap_or(Err(Error::Timeout(server)))
    }

    async fn exchange(&self, request: Request<Full<Bytes>>, server: &str) -> Result<Response<Bytes>, Error> {
        let io = |source| Error::Io { host: server.to_owned(), source };
        let (url, port) = (request.uri().clone(), request.uri().port_u16());
        let host = host(&url);
        if request.uri().scheme_str() != Some("https") {
            if self.clear == Clear::ThisMachine && !is_loopback(host) {
                return Err(Error::Plain(server.to_owned()));
            }
            let tcp = self.reach(host, port.unwrap_or(80)).await.map_err(io)?;
            return talk(Box::new(tcp), request, server, self.protocol).await;
        }
        let name = ServerName::try_from(self.trust.name(host).to_owned());
        let name = name.map_err(|_| Error::Url(server.to_owned()))?;
        let tcp = self.reach(host, port.unwrap_or(443)).await.map_err(io)?;
        let (connect, trust) = (Arc::clone(&self.connect.tls), self.trust.clone());
        // Read anew for each request, because the files may have changed since the last one.
        let tls = tokio::task::spawn_blocking(move || connect(&trust)).await;
        let mut tls = tls.map_err(|error| io(std::io::Error::other(error)))?.map_err(Error::Trust)?;
        if self.protocol == FetchProtocol::Http2 {
            tls.alpn_protocols = vec![b"h2".to_vec()];
        }
        let connector = tokio_rustls::TlsConnector::from(Arc::new(tls));
        let stream = connector.connect(name, tcp).await.map_err(io)?;
        talk(Box::new(stream), request, server, self.protocol).await
    }
}

impl FetchClient {
    /// A connection to the first of a host's addresses that takes one.
    async fn reach(&self, host: &str, port: u16) -> std::io::Result<TcpStream> {
        let ips = match host.parse() {
            Ok(ip) => vec![ip],
            Err(_) => (self.connect.names)(host.to_owned()).await?,
        };
        let addresses: Vec<SocketAddr> = ips.into_iter().map(|ip| SocketAddr::new(ip, port)).collect();
        TcpStream::connect(&addresses[..]).await
    }
}

/// One request and its answer over a connection that ends with it.
async fn talk(
    stream: AnyStream,
    mut request: Request<Full<Bytes>>,
    server: &str,
    protocol: FetchProtocol,
) -> Result<Response<Bytes>, Error> {
    let broken = |broken| match broken {
        ConnectionFailure::Http(source) => Error::Http { host: server.to_owned(), source },
        ConnectionFailure::Body => Error::Body(server.to_owned()),
    };
    if protocol == FetchProtocol::Http2 {
        return over_http2(stream, request).await.map_err(broken);
    }
    let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    if let Ok(authority) = HeaderValue::from_str(&authority) {
        request.headers_mut().insert(HOST, authority);
    }
    *request.uri_mut() = request.uri().path_and_query().cloned().map(Uri::from).unwrap_or_default();
    over(stream, request, ANSWER_BYTES_MAX).await.map_err(broken)
}

/// Why a connection brought no answer.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionFailure {
    #[error(transparent)]
    Http(#[from] hyper::Error),
    /// The answer is too long, or breaks off.
    #[error("the response is too long or incomplete")]
    Body,
}

impl ConnectionFailure {
    /// Whether what came back is no HTTP.
    pub fn is_no_http(&self) -> bool {
        matches!(self, ConnectionFailure::Http(error) if error.is_parse())
    }
}

/// Sends a request over a connection that ends with it, and reads the whole answer.
///
/// # Errors
/// If there is no whole answer of at most so many bytes.
pub async fn over(
    stream: AnyStream,
    request: Request<Full<Bytes>>,
    answer_bytes_max: usize,
) -> Result<Response<Bytes>, ConnectionFailure> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let _driver = AbortOnDrop(tokio::spawn(connection));
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, answer_bytes_max).collect().await.map_err(|_| ConnectionFailure::Body)?;
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// The same over HTTP/2; trailers become fields of the answer.
async fn over_http2(
    stream: AnyStream,
    request: Request<Full<Bytes>>,
) -> Result<Response<Bytes>, ConnectionFailure> {
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
    let _driver = AbortOnDrop(tokio::spawn(connection));
    let (mut head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await.map_err(|_| ConnectionFailure::Body)?;
    head.headers.extend(body.trailers().cloned().unwrap_or_default());
    Ok(Response::from_parts(head, body.to_bytes()))
}

/// The task of a connection. It ends with the request, also if that is dropped at its deadline.
struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The host of a URL; an IPv6 address without its brackets.
fn host(url: &Uri) -> &str {
    url.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
}

/// Whether a URL is one that may be asked: over TLS, or on this machine, where nobody can change an answer on its way.
pub fn is_private(url: &Uri) -> bool {
    url.scheme_str() == Some("https") || is_loopback(host(url))
}

fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// Longest answer. A chain of certificates is some KiB, a key set not much more.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use rustls::CertificateError;

    use super::*;

    #[test]
    fn an_error_names_the_server_and_says_what_is_wrong_with_its_certificate() {
        let expired = rustls::Error::InvalidCertificate(CertificateError::Expired);
        for (source, why) in [
            (std::io::Error::other(expired), "its certificate has expired"),
            (std::io::ErrorKind::ConnectionReset.into(), "connection reset"),
        ] {
            let error = Error::Io { host: "id.example.com:8443".to_owned(), source };
            assert_eq!(error.to_string(), format!("id.example.com:8443: {why}"));
        }
    }

    #[tokio::test]
    async fn the_port_is_named_and_no_password() {
        let connect = Connect {
            tls: Arc::new(|_| Err("it is not asked".to_owned())),
            names: Arc::new(|_| Box::pin(async { Ok(Vec::new()) })),
        };
        let client = FetchClient::new(connect, Trust::default());
        let url = "https://ann:hunter2@127.0.0.1:1/keys";
        let request = Request::get(url).body(Full::default()).expect("a request");
        let error = client.ask(request, Duration::from_secs(5)).await.expect_err("nothing listens there");
        assert!(error.to_string().starts_with("127.0.0.1:1: "), "{error}");
    }
}
