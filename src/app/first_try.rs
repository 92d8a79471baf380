//! What to ask a gateway that has just started: a path that a route answers, at an address one can connect to.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use http::Method;

use crate::config::Config;
use crate::policy::definition::Route;

/// A URL that a first curl may ask for; `None` if nothing is served in the clear. `address` says where a listener listens.
pub(super) fn url(config: &Config, address: impl Fn(&str) -> Option<SocketAddr>) -> Option<String> {
    let plain = config.listeners.iter().find(|listener| listener.certs.is_empty() && listener.http1)?;
    Some(format!("http://{}{}", reachable(address(&plain.name)?), path(&config.routes)))
}

/// The path of the first route that stands for one path and answers a bare GET; else what stands before the
/// `{*rest}` of one; else `/`.
fn path(routes: &[Route]) -> &str {
    let mut bare = routes.iter().filter(|route| answers_bare_get(route)).map(|route| route.path.as_str());
    let mut open = bare.clone();
    bare.find(|path| needs_no_quotes(path))
        .or_else(|| {
            open.find_map(|path| {
                path.split_once("{*").map(|(head, _)| head).filter(|head| needs_no_quotes(head))
            })
        })
        .unwrap_or("/")
}

fn answers_bare_get(route: &Route) -> bool {
    let get = route.methods.is_empty() || route.methods.contains(&Method::GET);
    get && route.hosts.is_empty() && route.headers.is_empty()
}

/// Whether a shell takes it as it is; a pattern with a parameter is none of these.
fn needs_no_quotes(path: &str) -> bool {
    path.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/-._~".contains(&byte))
}

/// "Every address" is none to connect to: the loopback of its kind stands for it.
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

    fn route(path: &str, method: Option<Method>) -> Route {
        Route { methods: method.into_iter().collect(), ..Route::new(path.to_owned(), path.to_owned()) }
    }

    #[test]
    fn a_path_that_is_answered() {
        let of = |paths: &[&str]| {
            let routes: Vec<Route> = paths.iter().map(|path| route(path, None)).collect();
            path(&routes).to_owned()
        };
        assert_eq!(of(&["/{*rest}", "/limited", "/status"]), "/limited");
        assert_eq!(of(&["/o/{id}", "/o/{id}/{*rest}", "/api/{*rest}"]), "/api/");
        assert_eq!(of(&["/a b", "/o/{id}"]), "/");
        assert_eq!(path(&[route("/login", Some(Method::POST)), route("/me", Some(Method::GET))]), "/me");
    }

    #[test]
    fn an_address_to_connect_to() {
        for (bind, address) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("10.0.0.1:80", "10.0.0.1:80")]
        {
            let bind = bind.parse().expect("an address");
            assert_eq!(reachable(bind).to_string(), address);
        }
    }
}
