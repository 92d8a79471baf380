//! Checks the host that a request names, against DNS rebinding: a web page whose name resolves to this machine could
//! otherwise read every page through its visitor's browser, if the listener asks for no token.

use std::net::IpAddr;

use http::Request;
use http::header::HOST;
use http::uri::Authority;

/// Whether a request names only loopback and `own` hosts, in its target and in `Host`. A probe may also name any
/// address, or no host, because orchestrators probe by address, some load balancers send no `Host`, and rebinding
/// needs a name.
pub(super) fn is_served<B>(request: &Request<B>, own: &[String], is_probe: bool) -> bool {
    let fields = request.headers().get_all(HOST).iter();
    let fields = fields.map(|field| field.to_str().ok().and_then(|field| field.parse::<Authority>().ok()));
    let mut named = fields.chain(request.uri().authority().cloned().map(Some)).peekable();
    if named.peek().is_none() {
        return is_probe;
    }
    named.all(|authority| {
        authority.is_some_and(|authority| !has_user(&authority) && is_one(authority.host(), own, is_probe))
    })
}

/// Whether the authority has user information, as in `evil.example@localhost`. It is refused, because `Host` must not
/// (RFC 9110 section 7.2), and another parser may take it for the host.
fn has_user(authority: &Authority) -> bool {
    authority.as_str().contains('@')
}

fn is_one(host: &str, own: &[String], is_probe: bool) -> bool {
    let host = canonical(host);
    if let Ok(address) = host.parse::<IpAddr>() {
        return is_probe || address.to_canonical().is_loopback() || own.contains(&host);
    }
    host == "localhost" || host.ends_with(".localhost") || own.contains(&host)
}

/// The form in which hosts are compared: no brackets, lower case, no trailing dot, addresses as Rust prints them.
pub fn canonical(host: &str) -> String {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    match host.parse::<IpAddr>() {
        Ok(address) => address.to_canonical().to_string(),
        Err(_) => host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_served_by(target: &str, hosts: &[&str], own: &[&str], is_probe: bool) -> bool {
        let mut request = Request::builder().uri(target);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        let own: Vec<String> = own.iter().map(|host| canonical(host)).collect();
        is_served(&request.body(()).expect("a request"), &own, is_probe)
    }

    #[test]
    fn loopback_is_served_and_names_that_only_resolve_to_it_are_not() {
        for host in [
            "localhost",
            "LOCALHOST:9900",
            "localhost.",
            "a.localhost",
            "127.0.0.1:9900",
            "127.9.9.9",
            "[::1]:1",
        ] {
            assert!(is_served_by("/", &[host], &[], false), "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "evillocalhost",
            "127.0.0.1.evil.example",
            "10.0.0.1",
            "[2001:db8::1]",
            "0.0.0.0",
            "a b",
            "",
            "evil.example@localhost",
            "evil.example:80@127.0.0.1:9900",
            "@localhost",
        ] {
            assert!(!is_served_by("/", &[host], &[], false), "{host}");
        }
        assert!(!is_served_by("/", &[], &[], false) && is_served_by("/", &[], &[], true));
    }

    #[test]
    fn every_host_that_is_named_has_to_be_served() {
        assert!(!is_served_by("/", &["localhost", "evil.example"], &[], false));
        assert!(!is_served_by("http://evil.example/", &["localhost"], &[], false));
        assert!(!is_served_by("http://localhost/", &["evil.example"], &[], false));
        assert!(!is_served_by("http://evil.example@localhost/", &["localhost"], &[], false));
        assert!(is_served_by("http://localhost/", &["localhost"], &[], false));
    }

    #[test]
    fn configured_hosts_are_served_and_a_probe_by_any_address() {
        let own = ["Metrics.Example.", "10.0.0.1", "[2001:db8::1]"];
        for host in ["metrics.example:9900", "10.0.0.1:9900", "[2001:db8:0::1]:9900"] {
            assert!(is_served_by("/", &[host], &own, false), "{host}");
        }
        assert!(!is_served_by("/", &["other.example"], &own, false));
        assert!(is_served_by("/", &["10.0.0.9:9900"], &[], true));
        assert!(!is_served_by("/", &["evil.example"], &[], true));
        assert!(!is_served_by("/", &["evil.example@10.0.0.9"], &[], true));
    }
}
