//! Requests of commands to the admin listener of a gateway on this machine, or of one that a URL names.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

use crate::admin::Bind;

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
    /// A Unix socket.
    Unix(PathBuf),
}

impl From<&Bind> for Place {
    fn from(bind: &Bind) -> Place {
        match bind {
            Bind::Tcp(addr) => Place::Tcp(addr.to_string()),
            Bind::Unix(path) => Place::Unix(path.clone()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(addr) => formatter.write_str(addr),
            Place::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

/// What the listener answers.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
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
    ) -> anyhow::Result<Answer> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut request = Request::builder().method(method).uri(target).header(HOST, "localhost");
        if let Some(token) = &self.token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
                .context("the token has characters that no header can carry")?;
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        let mut request = request.body(Full::from(body.unwrap_or_default()))?;
        request.headers_mut().extend(headers.clone());
        runtime.block_on(async {
            match timeout(self.within, self.exchange(request)).await {
                Ok(answer) => answer.with_context(|| format!("no gateway answers on {}", self.place)),
                Err(_) => bail!("the gateway on {} has not answered within {:?}", self.place, self.within),
            }
        })
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Answer> {
        match &self.place {
            Place::Tcp(addr) => talk(TcpStream::connect(addr).await?, request).await,
            Place::Unix(path) => talk(UnixStream::connect(path).await?, request).await,
        }
    }
}

async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Answer> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    // It ends with this command.
    let _driven = tokio::spawn(connection);
    let (head, body) = sender.send_request(request).await?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(anyhow::Error::from_boxed)?.to_bytes();
    Ok(Answer { status: head.status, headers: head.headers, body })
}

/// Percent-encodes everything but unreserved characters (RFC 3986 section 2.3).
pub(super) fn encoded(bytes: &[u8]) -> String {
    bytes
        .iter()
        .map(|byte| match *byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(*byte).to_string()
            }
            byte => format!("%{byte:02X}"),
        })
        .collect()
}

/// `explain --all` has a line and a JSON object for each of up to a million routes.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
