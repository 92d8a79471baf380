//! The URL in the `try  curl -i …` line of a start: a path that a route answers, at an address one can connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Method;

use config::Config;
use policy::definition::RouteDefinition;

/// A URL to try; `None` if there is no route, or no listener speaks plain HTTP/1.1. `address` maps a listener's name to its bound address.
pub(crate) fn url(config: &Config, address: impl Fn(&str) -> Option<SocketAddr>) -> Option<String> {
    let mut plain = config.listeners.iter().filter(|listener| listener.certs.is_empty() && listener.http1);
    let address = plain.find_map(|listener| address(&listener.name))?;
    Some(format!("http://{}{}", reachable(address), path(&config.routes)?))
}

/// The path of the first route without parameters that answers a bare GET; else the part of a route's path before
/// `{*rest}`; else `/`. `None` if there is no route.
fn path(routes: &[RouteDefinition]) -> Option<&str> {
    routes.first()?;
    let mut fixed = routes.iter().filter(|route| answers_bare_get(route)).map(|route| route.path.as_str());
    let mut open = fixed.clone();
    fixed.find(|path| needs_no_quotes(path)).or_else(|| open.find_map(begin_of_rest)).or(Some("/"))
}

/// What stands before `{*rest}`.
fn begin_of_rest(path: &str) -> Option<&str> {
    path.split_once("{*").map(|(head, _)| head).filter(|head| needs_no_quotes(head))
}

fn answers_bare_get(route: &RouteDefinition) -> bool {
    let get = route.methods.is_empty() || route.methods.contains(&Method::GET);
    get && route.hosts.is_empty() && route.headers.is_empty()
}

/// Whether a shell takes the path unquoted. A path with a `{parameter}` never is, so this also finds fixed paths.
fn needs_no_quotes(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte))
}

/// The loopback address replaces `0.0.0.0` and `::`, because nothing can connect to those.
fn reachable(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, addr.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(path: &str, method: Option<Method>) -> RouteDefinition {
        RouteDefinition {
            methods: method.into_iter().collect(),
            ..RouteDefinition::new(path.to_owned(), path.to_owned())
        }
    }

    #[test]
    fn the_first_answered_path_is_chosen() {
        let of = |paths: &[&str]| {
            let routes: Vec<RouteDefinition> = paths.iter().map(|path| route(path, None)).collect();
            path(&routes).map(str::to_owned)
        };
        assert_eq!(of(&["/{*rest}", "/limited", "/status"]), Some("/limited".to_owned()));
        assert_eq!(of(&["/o/{id}", "/o/{id}/{*rest}", "/api/{*rest}"]), Some("/api/".to_owned()));
        assert_eq!(of(&["/a b", "/o/{id}"]), Some("/".to_owned()));
        assert_eq!(of(&[]), None);
        assert_eq!(
            path(&[route("/login", Some(Method::POST)), route("/me", Some(Method::GET))]),
            Some("/me")
        );
    }

    #[test]
    fn unspecified_addresses_become_loopback() {
        for (bind, address) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            let bind = bind.parse().expect("an address");
            assert_eq!(reachable(bind).to_string(), address);
        }
    }
}
