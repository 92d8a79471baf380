//! An explained request up to its route: its head as a client would send it, and the client past trusted hops. The checks
//! are the connection's and the proxy's own, in their order.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, request};

use super::InForce;
use super::listener::{self, ChosenListener};
use control::admin::ExplainRequest;
use gateway::proxy::headers::{self, HeadersPresent};
use gateway::proxy::request::client::{self, RequestClient};
use gateway::proxy::request::validate;
use gateway::service::config::{Sizes, Underscores};
use gateway::service::refusal::Refusal;
use net::wire::http1::{Framing, FramingFault, ScanEnd};
use policy::matching::path;
use policy::percent::{self, Plus};

/// A request that has come as far as to a route.
pub(super) struct RoutedRequest {
    pub(super) method: Method,
    /// The target, its path normalised.
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// Without port.
    pub(super) host: String,
    pub(super) client: RequestClient,
    /// What servers could read in different ways in the path.
    pub(super) doubt: Option<path::Error>,
    pub(super) asks_certificate: bool,
    pub(super) body_bytes: u64,
    /// What the listener takes of a body, unless the route says otherwise.
    pub(super) body_bytes_max: u64,
}

/// What becomes of a request before a route is looked for.
pub(super) enum Arrival {
    /// A route decides about the request, which came as far as that.
    Routed(Box<RoutedRequest>),
    /// It asks what the server as a whole can do, and the gateway answers.
    Server,
    /// The listener answers every request with a redirect to this port.
    Redirected { listener: String, port: u16 },
}

/// Brings a request to the routes of the listener that takes it.
///
/// # Errors
/// If the gateway would refuse it before that.
pub(super) fn arrive(
    in_force: &InForce<'_>,
    taken: &ChosenListener<'_>,
    asked: &ExplainRequest,
) -> Result<Arrival, Refusal> {
    let mut head = head(asked);
    let (max, underscores) = match taken.listener {
        Some(listener) => (listener.max.clone(), listener.underscores),
        None => (Sizes::default(), Underscores::default()),
    };
    framed(&head, &max)?;
    let peer = asked.from.unwrap_or_else(|| taken.loopback(&asked.url));
    let client = client::find(in_force.client_ip, peer, &head.headers);
    validate::head(&head, HeadersPresent::of(&head.headers), &max, underscores)?;
    let doubt = validate::normalise(&mut head.uri)?;
    let authority = headers::authority(&head.uri, &head.headers);
    let host = validate::host(&authority).into_owned();
    let asks_server = validate::asks_server(&head);
    if let Some(listener) = taken.listener {
        if listener.sni_strict && asked.url.scheme() == Some(&Scheme::HTTPS) {
            validate::sni(sni(&asked.url), &host)?;
        }
        if let Some(redirect) = listener.redirect_https.as_ref().filter(|_| !asks_server) {
            return Ok(Arrival::Redirected { listener: listener.name.clone(), port: redirect.port });
        }
        if !listener.addresses.admit(client.ip) {
            return Err(Refusal::AddressDenied);
        }
    }
    if asks_server {
        return Ok(Arrival::Server);
    }
    let asks_certificate = taken.listener.is_some_and(|listener| listener.client_auth.is_some());
    let length = head.headers.get(CONTENT_LENGTH).and_then(|value| headers::length(value.as_bytes()));
    let request::Parts { method, uri, headers, .. } = head;
    Ok(Arrival::Routed(Box::new(RoutedRequest {
        method,
        uri,
        headers,
        host,
        client,
        doubt,
        asks_certificate,
        body_bytes: length.unwrap_or(0),
        body_bytes_max: max.body_bytes,
    })))
}

/// The name in the TLS hello: none for an address, because clients send none then (RFC 6066 section 3).
fn sni(url: &Uri) -> &str {
    url.host().filter(|_| listener::address(url).is_none()).unwrap_or_default()
}

/// Checks what the connection checks before the proxy sees a head: its framing, as HTTP/1.1 carries it, and its size.
fn framed(head: &request::Parts, max: &Sizes) -> Result<(), Refusal> {
    // A head without a host is of HTTP/1.0 only because nobody has named one; its fields are those of HTTP/1.1.
    let line = format!("{} {} HTTP/1.1\r\n", head.method, head.uri);
    let mut bytes = line.clone().into_bytes();
    for (name, value) in &head.headers {
        for part in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            bytes.extend_from_slice(part);
        }
    }
    bytes.extend_from_slice(b"\r\n");
    if let ScanEnd::Head(fault) = Framing::default().scan(&bytes).end {
        return Err(Refusal::Framing(fault));
    }
    if line.len() > max.header_bytes {
        return Err(Refusal::Framing(FramingFault::TargetTooLong));
    }
    if bytes.len() > max.header_bytes {
        return Err(Refusal::Framing(FramingFault::HeadTooLong));
    }
    if head.headers.len() > max.headers {
        return Err(Refusal::HeadersTooLarge);
    }
    Ok(())
}

/// The head that a client sends for a URL: the host of the URL is its `Host`, unless the headers name another one, as
/// with `curl -H`; a name and a password before it are its `Authorization`. Without any host it is a head of HTTP/1.0,
/// which needs none.
fn head(asked: &ExplainRequest) -> request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = asked.method.clone();
    head.headers = asked.headers.clone();
    let target = asked.url.path_and_query().cloned();
    head.uri = target.map_or_else(|| asked.url.clone(), Uri::from);
    let authority = asked.url.authority().map(Authority::as_str);
    let (user, host) = match authority.map(|authority| authority.rsplit_once('@').ok_or(authority)) {
        Some(Ok((user, host))) => (Some(user), Some(host)),
        Some(Err(host)) => (None, Some(host)),
        None => (None, None),
    };
    if let Some(user) = user.filter(|_| !head.headers.contains_key(AUTHORIZATION)) {
        let decoded: Vec<u8> = percent::decode(user, Plus::Itself).collect();
        let basic = HeaderValue::try_from(format!("Basic {}", STANDARD.encode(decoded)));
        basic.into_iter().for_each(|basic| _ = head.headers.insert(AUTHORIZATION, basic));
    }
    if !head.headers.contains_key(HOST) {
        match host.and_then(|host| HeaderValue::from_str(host).ok()) {
            Some(host) => _ = head.headers.insert(HOST, host),
            None => head.version = Version::HTTP_10,
        }
    }
    head
}
