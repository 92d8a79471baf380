//! An explained request up to its route: its head as a client would send it, the listener that would take it, and the
//! client past trusted hops. The checks are the proxy's own, in its order.

use std::net::{IpAddr, Ipv4Addr};

use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderValue, Method, Request, Uri, Version, request};

use super::{Asked, InForce};
use crate::policy::path;
use crate::proxy::client::{self, Client};
use crate::proxy::headers::{self, Present};
use crate::proxy::validate;
use crate::service::config::{Listener, Sizes, Underscores};
use crate::service::refusal::Refusal;

/// A request that has come as far as to a route.
pub(super) struct Arrived {
    pub(super) method: Method,
    /// The target, its path normalised.
    pub(super) uri: Uri,
    pub(super) headers: HeaderMap,
    /// Without port.
    pub(super) host: String,
    pub(super) client: Client,
    /// What servers could read in different ways in the path.
    pub(super) doubt: Option<path::Error>,
}

/// What becomes of a request before a route is looked for.
pub(super) enum Arrival {
    /// A route decides.
    Routed(Box<Arrived>),
    /// The listener answers every request with a redirect to this port.
    Redirected { listener: String, port: u16 },
}

/// Brings a request to the routes.
///
/// # Errors
/// If the proxy would refuse it before that.
pub(super) fn arrive(in_force: &InForce<'_>, asked: &Asked<'_>) -> Result<Arrival, Refusal> {
    let listener = listener(in_force.listeners, asked.url);
    let mut head = head(asked);
    let (max, underscores) = match listener {
        Some(listener) => (listener.max.clone(), listener.underscores),
        None => (Sizes::default(), Underscores::default()),
    };
    let peer = asked.from.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let client = client::find(in_force.client_ip, peer, &head.headers);
    validate::head(&head, Present::of(&head.headers), &max, underscores)?;
    let doubt = validate::normalise(&mut head.uri)?;
    let authority = headers::authority(&head.uri, &head.headers);
    let host = validate::host(&authority).into_owned();
    if let Some(listener) = listener {
        if listener.sni_strict && asked.url.scheme() == Some(&Scheme::HTTPS) {
            validate::sni(asked.url.host().unwrap_or_default(), &host)?;
        }
        if let Some(redirect) = &listener.redirect_https {
            return Ok(Arrival::Redirected { listener: listener.name.clone(), port: redirect.port });
        }
        if !listener.addresses.admit(client.ip) {
            return Err(Refusal::AddressDenied);
        }
    }
    let request::Parts { method, uri, headers, .. } = head;
    Ok(Arrival::Routed(Box::new(Arrived { method, uri, headers, host, client, doubt })))
}

/// The head that a client sends for a URL: the host of the URL is its `Host`, unless the headers name another one, as
/// with `curl -H`. Without any host it is a head of HTTP/1.0, which needs none.
fn head(asked: &Asked<'_>) -> request::Parts {
    let (mut head, ()) = Request::new(()).into_parts();
    head.method = asked.method.clone();
    head.headers = asked.headers.clone();
    let target = asked.url.path_and_query().cloned();
    head.uri = target.map_or_else(|| asked.url.clone(), Uri::from);
    if !head.headers.contains_key(HOST) {
        let host = asked.url.authority().map(Authority::as_str);
        match host.and_then(|host| HeaderValue::from_str(host).ok()) {
            Some(host) => _ = head.headers.insert(HOST, host),
            None => head.version = Version::HTTP_10,
        }
    }
    head
}

/// The listener that a URL leads to: by its port, else by its scheme, else the first.
fn listener<'l>(listeners: &'l [Listener], url: &Uri) -> Option<&'l Listener> {
    let is_https = url.scheme() == Some(&Scheme::HTTPS);
    let port = url.scheme().map(|_| url.port_u16().unwrap_or(if is_https { 443 } else { 80 }));
    let by_port =
        listeners.iter().find(|listener| listener.bind.tcp().is_some_and(|bind| Some(bind.port()) == port));
    let by_scheme =
        || listeners.iter().find(|listener| port.is_some() && listener.certs.is_empty() != is_https);
    by_port.or_else(by_scheme).or(listeners.first())
}
