//! Requests of commands to the admin listener of a gateway on this machine, or of one that a URL names.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::admin::{self, Bind};
use crate::fetch::over;
use crate::policy::percent;
use crate::tls;
use crate::trust::Trust;

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
    /// Host and port, over TLS; how the listener is verified, and what it is shown.
    Tls(String, Trust),
    /// A Unix socket.
    Unix(PathBuf),
}

impl Place {
    /// The listener of a configuration on this machine.
    pub(super) fn of(admin: &admin::Config) -> Place {
        match &admin.bind {
            // The address is this machine's own: what is sent there meets no other.
            Bind::Tcp(addr) if admin.tls.is_some() => {
                Place::Tls(addr.to_string(), Trust { verify: false, ..Trust::default() })
            }
            Bind::Tcp(addr) => Place::Tcp(addr.to_string()),
            Bind::Unix(path) => Place::Unix(path.clone()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Tcp(addr) | Place::Tls(addr, _) => formatter.write_str(addr),
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

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
        match &self.place {
            Place::Tcp(addr) => Ok(over(TcpStream::connect(addr).await?, request, ANSWER_BYTES_MAX).await?),
            Place::Tls(addr, trust) => {
                Ok(over(secured(addr, trust).await?, request, ANSWER_BYTES_MAX).await?)
            }
            Place::Unix(path) => Ok(over(UnixStream::connect(path).await?, request, ANSWER_BYTES_MAX).await?),
        }
    }
}

/// A connection over TLS.
async fn secured(addr: &str, trust: &Trust) -> anyhow::Result<TlsStream<TcpStream>> {
    let config = tls::client_config(false, trust)?;
    let host = addr.rsplit_once(':').map_or(addr, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).context("the host is no name and no address")?;
    let stream = TcpStream::connect(addr).await?;
    Ok(TlsConnector::from(Arc::new(config)).connect(name, stream).await?)
}

/// A text as it stands in a path or in a query.
pub(super) fn encoded(value: impl AsRef<[u8]>) -> String {
    let mut encoded = String::new();
    percent::encode_segment(value, &mut encoded);
    encoded
}

/// `explain --all` has a line and a JSON object for each of up to a million routes.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
