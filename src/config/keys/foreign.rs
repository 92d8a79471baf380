//! Keys that people bring along from other programs: where they are written, and what to write here.

use super::process::ROOT;
use super::route::ROUTE;

/// The key that is meant by another in the section with this heading, and what to write.
pub(crate) fn foreign_key(heading: &str, key: &str) -> Option<(&'static str, &'static str)> {
    let key = key.to_ascii_lowercase().replace('_', "-");
    let is_it = |(section, words, ..): &&ForeignKey| *section == heading && words.contains(&&*key);
    if heading == ROOT.heading && ROUTE.key(&key).is_some() {
        return Some(("route", "it is a key of a route: write `[[route]]` above it"));
    }
    FOREIGN.iter().find(is_it).map(|(.., meant, hint)| (*meant, *hint))
}

/// The section, the words in lower case with `-`, the key that is meant, and the hint.
type ForeignKey = (&'static str, &'static [&'static str], &'static str, &'static str);

const FOREIGN: &[ForeignKey] = &[
    (
        "[redis]",
        &["host", "port", "address", "addr", "username", "user", "password", "db", "database"],
        "url",
        "write it in `url`: `redis://USER:PASSWORD@HOST:6379/DATABASE`",
    ),
    ("[redis]", &["tls", "ssl"], "url", "write `rediss://` in `url`"),
    ("[admin]", &["port", "address", "listen", "host"], "bind", "write `bind = \"127.0.0.1:9900\"`"),
    (
        "[listener.<name>]",
        &["port", "address", "listen", "host"],
        "bind",
        "write `bind = \"127.0.0.1:8080\"`",
    ),
    (
        "[listener.<name>]",
        &["tls", "ssl", "https", "cert", "certificate", "key"],
        "certs",
        "write `certs = [{ cert = \"certs/api.pem\", key = \"certs/api.key\" }]`",
    ),
    (
        "[log]",
        &["file", "path", "to", "output"],
        "access",
        "write `access = { to = \"/var/log/sluicegate.log\" }`",
    ),
    ("[log]", &["format"], "access", "write `access = { format = \"json\" }`"),
    (
        "a route",
        &["rate-limit", "ratelimit", "rate", "limits", "policy"],
        "limit",
        "write `limit = \"100/m by ip\"`",
    ),
    (
        "a route",
        &["proxy-pass", "upstream", "backend", "service", "server", "servers", "url", "target"],
        "to",
        "write `to = \"http://127.0.0.1:3000\"`, or the name of an upstream",
    ),
    (
        "a route",
        &["strip-path", "strip-prefix", "prefix-rewrite"],
        "rewrite",
        "write `path = \"/api/{*rest}\"` and `rewrite = \"/{rest}\"`",
    ),
    ("a route", &["method"], "methods", "write `methods = [\"GET\"]`"),
    (
        "[upstream.<name>]",
        &["outlier", "outlier-detection", "max-fails", "circuit-breaker"],
        "eject",
        "write `eject = { after = 5 }`",
    ),
    (
        "[upstream.<name>]",
        &["keepalive", "keep-alive", "pool"],
        "connections",
        "write `connections = { idle = 256 }`",
    ),
    (
        "[upstream.<name>]",
        &["url", "server", "hosts", "targets"],
        "servers",
        "write `servers = [\"http://127.0.0.1:3000\"]`",
    ),
    ("[policy.<name>]", &["rate", "requests"], "limit", "write `limit = \"100/m\"`"),
];
