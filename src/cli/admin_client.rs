//! Requests of commands to the admin listener of a gateway on this machine, or of one that a URL names.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::Full;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use base::cause::Cause;
use control::admin;
use net::any_stream::AnyStream;
use net::fetch::{ConnectionFailure, over};
use net::listening::Bind;
use net::tls::{self, TlsFile};
use net::trust::Trust;
use policy::percent;

#[derive(Debug)]
pub(super) struct AdminClient {
    pub(super) place: AdminAddress,
    token: Option<String>,
    pub(super) within: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AdminAddress {
    Tcp(String),
    Tls(TlsOptions),
    Unix(PathBuf),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TlsOptions {
    pub authority: String,
    pub trust: Trust,
    /// Files of certificates of which it has to show one, the way it is known without an authority.
    pub own: Vec<PathBuf>,
}

impl AdminAddress {
    /// The listener of a configuration on this machine.
    pub(super) fn of(admin: &admin::Config) -> AdminAddress {
        match &admin.bind {
            Bind::Tcp(addr) => match &admin.tls {
                // Only with these keys, because another user's program may listen there while the gateway is down.
                Some(tls) => AdminAddress::Tls(TlsOptions {
                    authority: addr.to_string(),
                    trust: Trust { verify: false, ..Trust::default() },
                    own: tls.certs.iter().map(|pair| pair.cert.clone()).collect(),
                }),
                None => AdminAddress::Tcp(addr.to_string()),
            },
            Bind::Unix(path) => AdminAddress::Unix(path.clone()),
        }
    }

    /// What an answer that is no success says, or that whoever gives it is no admin listener.
    pub(super) fn refusal(&self, status: StatusCode, problem: &Value) -> String {
        let status = status.as_u16();
        // Only refusals of requests to routes have a `reason`.
        match problem["detail"].as_str().filter(|_| problem.get("reason").is_none()) {
            Some(detail) => {
                let own = (status == 401).then(|| with_token_remedy(detail, "of [admin]"));
                let said = own.as_deref().unwrap_or(detail).escape_debug();
                format!("the gateway on {self} answers {status}: {said}")
            }
            None => format!(
                "{self} answers {status} and is not the admin listener: correct `bind` of [admin], or --url"
            ),
        }
    }

    /// Says who does not answer. A fault of TLS is no silence.
    pub(super) fn unanswered(&self, error: anyhow::Error) -> anyhow::Error {
        if error.is::<OwnFileError>() {
            return error;
        }
        let wrapped = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let is = |kinds: &[io::ErrorKind]| {
            error.downcast_ref::<io::Error>().is_some_and(|error| kinds.contains(&error.kind()))
        };
        let is_no_http = error.downcast_ref().is_some_and(ConnectionFailure::is_no_http);
        let (what, remedy) = match wrapped.and_then(|wrapped| wrapped.downcast_ref()) {
            Some(rustls::Error::InvalidMessage(_)) => (format!("{self} does not speak TLS"), "write http://"),
            Some(fault @ rustls::Error::InvalidCertificate(_)) => match Cause::of_tls(fault) {
                Cause::TlsUnknownIssuer => (
                    format!("the certificate of {self} is not trusted"),
                    "name the authority that issued it with --ca",
                ),
                // Without what the library says, which has moments in seconds since 1970.
                cause => return anyhow!("on {self}, {}", cause.sentence()),
            },
            _ if is_no_http => (
                format!("{self} does not speak plain HTTP"),
                "if it speaks TLS, write https://; otherwise it is not a gateway",
            ),
            _ if is(&[io::ErrorKind::PermissionDenied]) => {
                (format!("{self} cannot be opened"), "run this as its owner or as root")
            }
            _ if is(&[io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound]) => {
                (format!("no gateway answers on {self}"), "start it, or name another with --url")
            }
            _ => (format!("no gateway answers on {self}"), ""),
        };
        // The remedy comes last, behind the cause.
        let why = app::error_chain(&error);
        error.context(if remedy.is_empty() { what } else { format!("{what} ({why}): {remedy}") })
    }
}

impl fmt::Display for AdminAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AdminAddress::Tcp(addr) | AdminAddress::Tls(TlsOptions { authority: addr, .. }) => {
                formatter.write_str(addr)
            }
            AdminAddress::Unix(path) => write!(formatter, "unix:{}", path.display()),
        }
    }
}

impl AdminClient {
    /// `within` is the time for one request with its answer.
    pub(super) fn new(place: AdminAddress, token: Option<String>, within: Duration) -> AdminClient {
        AdminClient { place, token, within }
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
                Ok(answer) => answer.map_err(|error| self.place.unanswered(error)),
                Err(_) => bail!("the gateway on {} has not answered within {:?}", self.place, self.within),
            }
        })
    }

    /// The answer to a GET as JSON.
    ///
    /// # Errors
    /// If there is no whole answer in time, or it is a refusal: what that says.
    pub(super) fn read(&self, target: &str) -> anyhow::Result<Value> {
        let answer = self.ask(&Method::GET, target, &HeaderMap::new(), None)?;
        let shown = serde_json::from_slice(answer.body()).unwrap_or_default();
        match answer.status() {
            StatusCode::OK => Ok(shown),
            status => bail!("{}", self.place.refusal(status, &shown)),
        }
    }

    pub(super) fn request(
        &self,
        method: &Method,
        target: &str,
        body: String,
    ) -> anyhow::Result<Request<Full<Bytes>>> {
        let mut request = Request::builder().method(method).uri(target).header(HOST, "localhost");
        if let Some(token) = &self.token {
            let mut bearer = HeaderValue::try_from(format!("Bearer {token}"))
                .context("the token has characters that a header cannot carry")?;
            // Sensitive, so that no output of the request shows it.
            bearer.set_sensitive(true);
            request = request.header(AUTHORIZATION, bearer);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        Ok(request.body(Full::from(body))?)
    }

    async fn exchange(&self, request: Request<Full<Bytes>>) -> anyhow::Result<Response<Bytes>> {
        Ok(over(self.connect().await?, request, ANSWER_BYTES_MAX).await?)
    }

    pub(super) async fn connect(&self) -> anyhow::Result<AnyStream> {
        Ok(match &self.place {
            AdminAddress::Tcp(addr) => Box::new(TcpStream::connect(addr).await?),
            AdminAddress::Tls(place) => Box::new(secured(place).await?),
            AdminAddress::Unix(path) => Box::new(UnixStream::connect(path).await?),
        })
    }
}

pub(super) const TOKEN_VARIABLE: &str = "SLUICEGATE_TOKEN";

/// What the API says of a missing or weak token, with the remedy for who types a command in place of its own, which
/// stands behind a colon. `which` says which token is meant.
pub(super) fn with_token_remedy(detail: &str, which: &str) -> String {
    let said = detail.split(": ").next().unwrap_or(detail);
    format!("{said}: set {TOKEN_VARIABLE} to a token {which}, or name its file with --token-file")
}

/// A file of ours cannot be used, for which who would have answered is not to blame.
#[derive(Debug)]
struct OwnFileError(tls::Error);

impl fmt::Display for OwnFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0.part() {
            Some(TlsFile::Authorities | TlsFile::Revocations) => "--ca: ",
            Some(TlsFile::Certificate) => "--cert: ",
            Some(TlsFile::Key) => "--key: ",
            None => "",
        })?;
        write!(f, "{}", self.0)
    }
}

impl std::error::Error for OwnFileError {}

/// A connection over TLS to the listener, and to nobody else.
async fn secured(place: &TlsOptions) -> anyhow::Result<TlsStream<TcpStream>> {
    let config = tls::client_config(false, &place.trust).map_err(OwnFileError)?;
    let host = place.authority.rsplit_once(':').map_or(&*place.authority, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let name = ServerName::try_from(host.to_owned()).context("the host is neither a name nor an address")?;
    let stream = TcpStream::connect(&place.authority).await?;
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await?;
    // Compared with the listener's own files, because no authority is asked about it.
    if !place.trust.verify {
        let shown = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
        let own: Vec<_> = place.own.iter().filter_map(|file| tls::leaf(file).ok()).collect();
        if !shown.is_some_and(|shown| own.contains(shown)) {
            bail!(
                "the listener's certificate is not one of gateway.toml's: name the authority that issued it with --ca"
            );
        }
    }
    Ok(stream)
}

/// The target of a request: a path and its query, the values of which may have any characters.
pub(super) fn target<V: AsRef<[u8]>>(
    path: &str,
    query: impl IntoIterator<Item = (&'static str, V)>,
) -> String {
    let mut target = path.to_owned();
    for (name, value) in query {
        target.push(if target.contains('?') { '&' } else { '?' });
        target += &format!("{name}={}", encoded(value));
    }
    target
}

pub(super) fn encoded(value: impl AsRef<[u8]>) -> String {
    let mut encoded = String::new();
    percent::encode_segment(value, &mut encoded);
    encoded
}

/// So much, because `explain --all` has a line and a JSON object for each of up to a million routes.
const ANSWER_BYTES_MAX: usize = 512 * 1024 * 1024;
