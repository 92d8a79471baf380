//! Requests of commands to the admin listener of a gateway on this machine, or of one that a URL names.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use control::admin;
use net::fetch::over;
use net::listening::Bind;
use net::tls;
use net::trust::Trust;
use policy::percent;

/// Where to ask, and as whom.
#[derive(Debug)]
pub(super) struct AdminClient {
    place: Place,
    token: Option<String>,
    within: Duration,
}

/// The address of an admin listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Host and port.
    Tcp(String),
    /// Over TLS.
    Tls(Secure),
    /// A Unix socket.
    Unix(PathBuf),
}

/// A listener with TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Secure {
    /// Host and port.
    pub authority: String,
    /// How it is verified, and what it is shown.
    pub trust: Trust,
    /// Files of certificates of which it has to show one, the way it is known without an authority.
    pub own: Vec<PathBuf>,
}

impl Place {
    /// The listener of a configuration on this machine.
    pub(super) fn of(admin: &admin::Config) -> Place {
        match &admin.bind {
            Bind::Tcp(addr) => match &admin.tls {
                // Another user's program may listen there while the gateway is down; it does not have these keys.
                Some(tls) => Place::Tls(Secure {
                    authority: addr.to_string(),
                    trust: Trust { verify: false, ..Trust::default() },
                    own: tls.certs.iter().map(|pair| pair.cert.clone()).collect(),
                }),
                None => Place::Tcp(addr.to_string()),
            },
            Bind::Unix(path) => Place::Unix(path.clone()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(addr) | Place::Tls(Secure { authority: addr, .. }) => formatter.write_str(addr),
            Place::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl AdminClient {
    /// `within` is the time for one request with its answer.
    pub(super) fn new(place: Place, token: Option<String>, within: Duration) -> AdminClient {
        AdminClient { place, token, within }
    }

    /// Where it asks.
    pub(super) fn place(&self) -> &Place {
        &self.place
    }

    /// Sends one request and reads the whole answer. `target` is a path with its query; a body is JSON.
    ///
    /// # Errors
    /// If there is no whole answer in time.
    pub(super) fn ask(
        &self,
        method: &Method,
        target: &str,
        headers: &HeaderMap,
        body: Option<String>,
    ) -> anyhow::Result<Response<Bytes>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut request = self.request(method, target, body.unwrap_or_default())?;
        request.headers_mut().extend(headers.clone());
        runtime.block_on(async {
            match timeout(self.within, self.exchange(request)).await {
                Ok(answer) => answer.with_context(|| format!("no gateway answers on {}", self.place)),
                Err(_) => bail!("the gateway on {} has not answered within {:?}", self.place, self.within),
            }
        })
    }

    /// Asks for an answer that does not end, and hands over each piece of it until `each` returns `false`.
    ///
    /// # Errors
    /// If there is no answer in time, or a refusal: its reason.
    pub(super) fn follow(&self, target: &str, each: &mut dyn FnMut(&[u8]) -> bool) -> anyhow::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let request = self.request(&Method::GET, target, String::new())?;
        runtime.block_on(async {
            let begun = timeout(self.within, async {
                match &self.place {
                    Place::Tcp(addr) => begin(TcpStream::connect(addr).await?, request).await,
                    Place::Tls(place) => begin(secured(place).await?, request).await,
                    Place::Unix(path) => begin(UnixStream::connect(path).await?, request).await,
                }
            });
            let begun = begun.await.unwrap_or_else(|_| bail!("it has not answered within {:?}", self.within));
            let begun = begun.with_context(|| format!("no gateway answers on {}", self.place))?;
            let mut body =
                begun.map_err(|refusal| anyhow!("the gateway on {} answers {refusal}", self.place))?;
            // The server sends something each second.
            while let Some(frame) = timeout(self.within, body.frame()).await.context("it fell silent")? {
                if frame?.data_ref().is_some_and(|piece| !each(piece)) {
                    break;
                }
            }
            Ok(())
        })
    }

    fn request(&self, method: &Method, target: &str, body: String) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(target).header(HOST, "localhost");
        if let Some(token) = &self.token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
                .context("the token has characters that no header can carry")?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        Ok(request.body(Full::from(body))?)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
        match &self.place {
            Place::Tcp(addr) => Ok(over(TcpStream::connect(addr).await?, request, ANSWER_BYTES_MAX).await?),
            Place::Tls(place) => Ok(over(secured(place).await?, request, ANSWER_BYTES_MAX).await?),
            Place::Unix(path) => Ok(over(UnixStream::connect(path).await?, request, ANSWER_BYTES_MAX).await?),
        }
    }
}

/// Sends a request over a connection that ends with the answer, and returns the body of a good one, or what another says.
async fn begin(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Result<Incoming, String>> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with the runtime, which is this answer's own.
    tokio::spawn(connection);
    let answer = sender.send_request(request).await?;
    let status = answer.status();
    if status == StatusCode::OK {
        return Ok(Ok(answer.into_body()));
    }
    let body = Limited::new(answer.into_body(), REFUSAL_BYTES_MAX).collect().await;
    let body = body.map(Collected::to_bytes).unwrap_or_default();
    let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
    let detail = problem["detail"].as_str().unwrap_or("without a reason").escape_debug().to_string();
    Ok(Err(format!("{}: {detail}", status.as_u16())))
}

/// A connection over TLS to the listener, and to nobody else.
async fn secured(place: &Secure) -> anyhow::Result<TlsStream<TcpStream>> {
    let config = tls::client_config(false, &place.trust)?;
    let host = place.authority.rsplit_once(':').map_or(&*place.authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).context("the host is no name and no address")?;
    let stream = TcpStream::connect(&place.authority).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    if !place.trust.verify {
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let own: Vec<_> = place.own.iter().filter_map(|file| tls::leaf(file).ok()).collect();
        if !shown.is_some_and(|shown| own.contains(shown)) {
            bail!(
                "who listens there shows another certificate than those of gateway.toml: --ca says whom to trust"
            );
        }
    }
    Ok(stream)
}

/// A text as it stands in a path or in a query.
pub(super) fn encoded(value: impl AsRef<[u8]>) -> String {
    let mut encoded = String::new();
    percent::encode_segment(value, &mut encoded);
    encoded
}

/// `explain --all` has a line and a JSON object for each of up to a million routes.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
/// The reason of a refusal.
const REFUSAL_BYTES_MAX: usize = 64 * 1024;
