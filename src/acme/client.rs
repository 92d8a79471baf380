//! HTTP towards an authority: one connection a request, each within a deadline and a bound on the answer. Orders are rare,
//! so connections are not kept.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, RETRY_AFTER};
use http::{HeaderMap, HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use instant_acme::{BodyWrapper, BytesResponse, HttpClient};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::trust::Trust;

/// Makes what a connection over TLS is made with, or says why it cannot.
pub type Connect = Arc<dyn Fn(&Trust) -> Result<ClientConfig, String> + Send + Sync>;

/// Why a request to the authority got no answer.
#[derive(Debug, thiserror::Error)]
enum Error {
    /// It names a URL over plain HTTP that is not on this machine.
    #[error("{0} is not https, so anyone on the network path could answer")]
    Plain(Uri),
    /// It names a URL that no request can be sent to.
    #[error("{0} is not a URL that can be asked")]
    Url(Uri),
    /// What the authority is verified by cannot be read.
    #[error("{0}")]
    Trust(String),
    /// It cannot be reached, or breaks off.
    #[error("{host}: {source}")]
    Io { host: String, source: std::io::Error },
    /// It does not speak HTTP.
    #[error("{host}: {source}")]
    Http { host: String, source: hyper::Error },
    /// It does not answer in time.
    #[error("{0}: no answer in time")]
    Timeout(String),
    /// Its answer is too long, or breaks off.
    #[error("{0}: the answer is too long or incomplete")]
    Body(String),
}

/// The client of one keeper.
#[derive(Clone)]
pub(super) struct Client {
    connect: Connect,
    trust: Trust,
    asked: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    pub(super) fn new(connect: Connect, trust: Trust) -> Client {
        Client { connect, trust, asked: Arc::default() }
    }

    /// How long the authority has asked to wait in the last error that named a time.
    pub(super) fn take_asked(&self) -> Option<Duration> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    async fn ask(&self, request: Request<BodyWrapper<Bytes>>) -> Result<Response<Full<Bytes>>, Error> {
        let uri = request.uri().clone();
        let authority = uri.authority().ok_or_else(|| Error::Url(uri.clone()))?;
        let host = authority.host().trim_start_matches('[').trim_end_matches(']').to_owned();
        let io = |source| Error::Io { host: host.clone(), source };
        if uri.scheme_str() == Some("https") {
            let name = self.trust.name(&host).to_owned();
            let name = ServerName::try_from(name).map_err(|_| Error::Url(uri.clone()))?;
            let tcp = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(443))).await;
            let (connect, trust) = (Arc::clone(&self.connect), self.trust.clone());
            // Files are read: authorities may change, and requests are rare.
            let tls = tokio::task::spawn_blocking(move || connect(&trust)).await;
            let tls = tls.map_err(|error| io(std::io::Error::other(error)))?.map_err(Error::Trust)?;
            let stream = tokio_rustls::TlsConnector::from(Arc::new(tls)).connect(name, tcp.map_err(io)?);
            return exchange(stream.await.map_err(io)?, request, &host).await;
        }
        if !is_loopback(&host) {
            return Err(Error::Plain(uri));
        }
        let tcp = TcpStream::connect((host.as_str(), authority.port_u16().unwrap_or(80))).await;
        exchange(tcp.map_err(io)?, request, &host).await
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, instant_acme::Error>> + Send>> {
        let client = self.clone();
        Box::pin(async move {
            let host = request.uri().host().unwrap_or_default().to_owned();
            let answered = timeout(ANSWER_WITHIN, client.ask(request)).await;
            let answer = answered.unwrap_or(Err(Error::Timeout(host)));
            let answer = answer.map_err(|error| instant_acme::Error::Other(error.into()))?;
            if answer.status().is_client_error() || answer.status().is_server_error() {
                let asked = retry_after(answer.headers());
                *client.asked.lock().unwrap_or_else(PoisonError::into_inner) = asked;
            }
            Ok(BytesResponse::from(answer))
        })
    }
}

/// One request and its answer.
async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    mut request: Request<BodyWrapper<Bytes>>,
    host: &str,
) -> Result<Response<Full<Bytes>>, Error> {
    let http = |source| Error::Http { host: host.to_owned(), source };
    let authority = request.uri().authority().map(ToString::to_string).unwrap_or_default();
    if let Ok(authority) = HeaderValue::from_str(&authority) {
        request.headers_mut().insert(HOST, authority);
    }
    let target = request.uri().path_and_query().map_or("/", |target| target.as_str());
    let target = target.parse().map_err(|_| Error::Url(request.uri().clone()))?;
    *request.uri_mut() = target;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(http)?;
    let driver = tokio::spawn(connection);
    let answered = async {
        let (head, body) = sender.send_request(request).await.map_err(http)?.into_parts();
        let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
        let body = body.map_err(|_| Error::Body(host.to_owned()))?.to_bytes();
        Ok(Response::from_parts(head, Full::new(body)))
    };
    let answer = answered.await;
    driver.abort();
    answer
}

/// Only in seconds: that is what authorities write, and a date would be compared with a clock that may be wrong.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    headers.get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

/// Whether a host is this machine. Plain HTTP to it cannot be changed on the way.
pub fn is_loopback(host: &str) -> bool {
    host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Longest answer. A chain is some KiB.
const ANSWER_BYTES_MAX: usize = 1024 * 1024;
