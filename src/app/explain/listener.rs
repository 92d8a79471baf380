//! Chooses the listener that would take an explained request, and says why this one if the URL does not tell.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::Uri;
use http::uri::Scheme;

use base::identity::NO_ADDRESS;
use gateway::service::config::ListenerConfig;
use net::listening::Bind;

#[derive(Debug, Default)]
pub(super) struct ChosenListener<'l> {
    pub(super) listener: Option<&'l ListenerConfig>,
    /// Why this one, if its address is not the URL's, or several could have been meant.
    pub(super) why: Option<String>,
    pub(super) unanswered: Option<String>,
}

impl ChosenListener<'_> {
    /// `edge on 127.0.0.1:8080`, and why this one.
    pub(super) fn shown(&self) -> Option<String> {
        let listener = self.listener?;
        let why = self.why.as_ref().map_or(String::new(), |why| format!(" ({why})"));
        Some(format!("{} on {}{why}", listener.name, listener.bind))
    }

    /// The address that a request over loopback comes from.
    pub(super) fn loopback(&self, url: &Uri) -> IpAddr {
        let bind = self.listener.and_then(|listener| listener.bind.tcp()).map(|bind| bind.ip());
        let address = address(url).or(bind.filter(|ip| !ip.is_unspecified()));
        match address {
            Some(IpAddr::V6(_)) => Ipv6Addr::LOCALHOST.into(),
            _ => Ipv4Addr::LOCALHOST.into(),
        }
    }
}

/// The listener that a request comes to: the one on the URL's address and port. A URL may also name a host or a port that
/// something in front of the gateway maps, so a guess is made that says so.
pub(super) fn take<'l>(
    listeners: &'l [ListenerConfig],
    url: &Uri,
    from: Option<IpAddr>,
) -> ChosenListener<'l> {
    let because = |listener: Option<&'l ListenerConfig>, why: String| ChosenListener {
        listener,
        why: Some(why),
        unanswered: None,
    };
    if from == Some(NO_ADDRESS) {
        let mut unix = listeners.iter().filter(|listener| matches!(listener.bind, Bind::Unix(_)));
        return match (unix.next(), unix.next()) {
            (None, _) => because(usual(listeners), "no listener is a Unix socket".to_owned()),
            (first, None) => ChosenListener { listener: first, ..ChosenListener::default() },
            (first, Some(_)) => because(first, "the first Unix socket of several".to_owned()),
        };
    }
    let Some(scheme) = url.scheme() else {
        let listener = usual(listeners);
        return match listeners.len() {
            0 | 1 => ChosenListener { listener, ..ChosenListener::default() },
            _ => because(
                listener,
                "the URL names no port: the first listener that does not only redirect".to_owned(),
            ),
        };
    };
    let is_https = *scheme == Scheme::HTTPS;
    let port = url.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let has_port = |listener: &&ListenerConfig| listener.bind.tcp().is_some_and(|bind| bind.port() == port);
    let on_port: Vec<&ListenerConfig> = listeners.iter().filter(has_port).collect();
    let Some(first) = on_port.first() else {
        let by_scheme = listeners.iter().find(|listener| listener.certs.is_empty() != is_https);
        let guess = by_scheme.or_else(|| usual(listeners));
        return because(guess, format!("a guess: no listener is on port {port}"));
    };
    let mut taken = match (addresses(url), &on_port[..]) {
        (None, [only]) => ChosenListener { listener: Some(only), ..ChosenListener::default() },
        (None, _) => because(Some(first), format!("the first of {} on port {port}", on_port.len())),
        (Some(addresses), _) => match addresses.iter().find_map(|address| on_address(&on_port, *address)) {
            Some(listener) => ChosenListener { listener: Some(listener), ..ChosenListener::default() },
            None => because(Some(first), format!("a guess: no listener is on {}:{port}", host(url))),
        },
    };
    taken.unanswered = taken.listener.and_then(|listener| mismatch(listener, is_https));
    taken
}

/// The listener that a request most likely means that names none: not one that only redirects, because that shows
/// nothing of the routes.
fn usual(listeners: &[ListenerConfig]) -> Option<&ListenerConfig> {
    listeners.iter().find(|listener| listener.redirect_https.is_none()).or(listeners.first())
}

/// The listener on this address, or the one on all addresses of its family; `[::]` takes IPv4, too.
fn on_address<'l>(on_port: &[&'l ListenerConfig], address: IpAddr) -> Option<&'l ListenerConfig> {
    let bound_to = |wanted: IpAddr| {
        let bind = |listener: &&&ListenerConfig| listener.bind.tcp().is_some_and(|bind| bind.ip() == wanted);
        on_port.iter().find(bind).copied()
    };
    let every_v4 = || bound_to(Ipv4Addr::UNSPECIFIED.into()).filter(|_| address.is_ipv4());
    bound_to(address).or_else(every_v4).or_else(|| bound_to(Ipv6Addr::UNSPECIFIED.into()))
}

/// A client that speaks TLS to a plain listener, or none to one with certificates, gets no answer of HTTP.
fn mismatch(listener: &ListenerConfig, is_https: bool) -> Option<String> {
    let name = &listener.name;
    match (is_https, listener.certs.is_empty()) {
        (false, false) => {
            Some(format!("no HTTP response: listener {name} accepts only TLS; write an https URL"))
        }
        (true, true) => {
            Some(format!("no HTTP response: listener {name} does not accept TLS; write an http URL"))
        }
        _ => None,
    }
}

/// The addresses that a URL leads to, if its host is one or is `localhost`.
fn addresses(url: &Uri) -> Option<Vec<IpAddr>> {
    if host(url).eq_ignore_ascii_case("localhost") {
        return Some(vec![Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()]);
    }
    address(url).map(|address| vec![address])
}

/// The address that a URL's host is.
pub(super) fn address(url: &Uri) -> Option<IpAddr> {
    host(url).trim_start_matches('[').trim_end_matches(']').parse().ok()
}

fn host(url: &Uri) -> &str {
    url.host().unwrap_or_default()
}
