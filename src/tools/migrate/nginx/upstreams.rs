//! `upstream` and `proxy_pass`.

use std::time::Duration;

use config::printer::{array, table, text, time as show_time};

use super::super::draft::Section;
use super::super::file;
use super::Reading;
use super::lexer::Directive;
use super::limits::option;
use super::scope::Scope;
use super::values::{VarScope, time};

pub(super) struct Target {
    pub(super) https: bool,
    pub(super) http2: bool,
    /// `host:port`, the name of a group, or `unix:/path`.
    pub(super) host: String,
    /// What takes the place of the location's own path; of the whole path in a URL with variables.
    pub(super) path: Option<String>,
    pub(super) is_variable: bool,
    /// What of the request stands behind the host: `$request_uri` is its path as the client wrote it.
    pub(super) tail: Option<&'static str>,
}

impl Target {
    /// Reads a URL; `None` if it is not known before a request comes.
    pub(super) fn of(url: &str, around: &VarScope<'_, '_>) -> Option<Target> {
        let tail = TAILS.iter().copied().find(|tail| url.ends_with(tail));
        let is_variable = url.contains('$');
        let url = around.literal(url.strip_suffix(tail.unwrap_or_default()).unwrap_or(url))?;
        let (scheme, rest) = url.split_once("://")?;
        let (https, http2) = match scheme {
            "http" => (false, false),
            "https" => (true, false),
            "grpc" => (false, true),
            "grpcs" => (true, true),
            _ => return None,
        };
        let (host, path) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (path, behind) = socket.split_once(':').unwrap_or((socket, ""));
                (format!("unix:{path}"), Some(behind).filter(|behind| !behind.is_empty()))
            }
            None => {
                let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (host.to_owned(), Some(path).filter(|path| !path.is_empty()))
            }
        };
        let is_known = !host.is_empty() && (path.is_none() || tail.is_none());
        is_known.then(|| Target { https, http2, host, path: path.map(str::to_owned), is_variable, tail })
    }
}

impl Reading<'_> {
    /// The upstream of a target, made with the timeouts and the TLS of the first place that names it.
    pub(super) fn upstream(&mut self, target: &Target, scope: &Scope<'_>) -> Option<String> {
        let http = self.http;
        let is_it = |group: &&Directive| group.name == "upstream" && group.arg(0) == target.host;
        let group = http.iter().find(is_it);
        let mut upstream = Section::new(target.host.trim_start_matches("unix:").trim_start_matches('/'));
        let servers = match group {
            Some(group) => self.servers_of(group.taken(), target),
            None => vec![text(&url(&target.host, target.https))],
        };
        if servers.is_empty() {
            return None;
        }
        upstream.key("servers", array(servers.into_iter()));
        if let Some(group) = group {
            self.balance(group, &mut upstream);
        }
        if target.http2 {
            upstream.key("http", text("h2"));
        }
        if target.https {
            self.trust_of(scope, &mut upstream);
        }
        let timeout = |word: &str| scope.word(word).and_then(time).unwrap_or(TIMEOUT);
        let (connect, read) = (timeout("proxy_connect_timeout"), timeout("proxy_read_timeout"));
        let stall = read.max(timeout("proxy_send_timeout"));
        let timeouts = [("connect", connect), ("response", read), ("stall", stall)];
        upstream.key("timeouts", table(timeouts.map(|(key, value)| (key, show_time(value)))));
        self.retry(scope, &mut upstream);
        Some(self.draft.add_upstream(upstream))
    }

    /// The servers of a group, as `servers` has them.
    fn servers_of(&mut self, group: &Directive, target: &Target) -> Vec<String> {
        let mut servers = Vec::new();
        for server in group.block().iter().filter(|inside| inside.name == "server") {
            let has = |word: &str| server.taken().args.iter().any(|arg| arg == word);
            let spare = [
                ("down", "it is marked as down"),
                ("backup", "the gateway has no backup servers, so it gets no requests"),
                ("drain", "it takes no new clients"),
            ];
            if let Some((word, why)) = spare.iter().find(|(word, _)| has(word)) {
                self.draft.notes.left_out(&server.place, &format!("server {} {word}", server.arg(0)), *why);
                continue;
            }
            for word in ["max_fails", "fail_timeout"] {
                if option(server, word).is_some() {
                    let why = "use `eject` if you want it: it counts 5xx responses, too";
                    self.draft.notes.left_out_line(server, why);
                    break;
                }
            }
            for word in ["max_conns", "slow_start", "route", "service"] {
                if option(server, word).is_some() {
                    let why = format!(
                        "`{word}` of one server has no counterpart: write `connections = {{ max = … }}` or \
                         `slow-start` at the upstream"
                    );
                    self.draft.notes.left_out_line(server, why);
                }
            }
            let mut address = server.arg(0).to_owned();
            if target.https && address.starts_with("unix:") {
                self.draft.notes.left_out_line(server, "TLS over a Unix socket is not supported");
                continue;
            }
            // Written out, because in a group it is port 80, whatever the scheme.
            if target.https && !has_port(&address) {
                address.push_str(":80");
            }
            let address = text(&url(&address, target.https));
            servers.push(match option(server, "weight") {
                Some(weight) if weight != "1" => format!("{{ url = {address}, weight = {weight} }}"),
                _ => address,
            });
        }
        if servers.is_empty() {
            self.draft.notes.left_out_line(group, "it has no server that takes requests");
        }
        servers
    }

    fn balance(&mut self, group: &Directive, upstream: &mut Section) {
        let has = |word: &str| group.block().iter().find(|inside| inside.name == word);
        if let Some(least) = has("least_conn") {
            least.taken();
            upstream.key("balance", text("least-requests"));
        } else if let Some(random) = has("random") {
            if random.taken().arg(0) != "two" {
                let why = "the less loaded of two random servers is chosen";
                self.draft.notes.line_differs(random, why);
            }
            upstream.key("balance", text("p2c"));
        } else if let Some(hash) = has("ip_hash") {
            let why = "nginx hashes three of the four bytes of an address, here the whole address is hashed";
            self.draft.notes.line_differs(hash.taken(), why);
            upstream.key("balance", text("hash:ip"));
        } else if let Some((hash, dimension)) =
            has("hash").and_then(|hash| Some((hash, hashed(hash.arg(0))?)))
        {
            if hash.taken().arg(0) == "$request_uri" {
                self.draft.notes.line_differs(hash, "the query is not hashed");
            }
            upstream.key("balance", text(&format!("hash:{dimension}")));
        } else {
            upstream.key("balance", text("round-robin"));
        }
        if let Some(idle) = has("keepalive_timeout").and_then(|it| time(it.taken().arg(0))) {
            upstream.key("connections", table([("idle-timeout", show_time(idle))]));
        }
    }

    /// `proxy_ssl_*`. nginx does not look at the certificate unless it is told to; here it is looked at.
    fn trust_of(&mut self, scope: &Scope<'_>, upstream: &mut Section) {
        let mut keys = Vec::new();
        let files = [
            ("ca", "proxy_ssl_trusted_certificate"),
            ("cert", "proxy_ssl_certificate"),
            ("key", "proxy_ssl_certificate_key"),
        ];
        for (key, word) in files {
            keys.extend(scope.word(word).map(|path| (key, text(&file::absolute(self.directory, path)))));
        }
        keys.extend(scope.word("proxy_ssl_name").map(|name| ("sni", text(name))));
        let verify = scope.last("proxy_ssl_verify").map(Directive::taken);
        if verify.is_none_or(|verify| verify.arg(0) != "on") {
            let found = verify.or_else(|| scope.last("proxy_pass")).or_else(|| scope.last("grpc_pass"));
            if let Some(found) = found {
                let why =
                    "the server's certificate is verified here, with `tls.ca` or the system's authorities";
                self.draft.notes.line_differs(found, why);
            }
        }
        if !keys.is_empty() {
            upstream.key("tls", table(keys));
        }
    }

    /// `proxy_next_upstream`, if it is written.
    fn retry(&mut self, scope: &Scope<'_>, upstream: &mut Section) {
        let Some(found) = scope.last("proxy_next_upstream") else { return };
        let mut on: Vec<&str> = Vec::new();
        for word in &found.taken().args {
            match word.as_str() {
                "off" => {
                    upstream.key("retry", "{ times = 0 }");
                    return;
                }
                "error" | "invalid_header" => {
                    let both = ["connect", "reset-before-bytes"];
                    on.extend(both.iter().filter(|it| !on.contains(it)).copied().collect::<Vec<_>>());
                }
                "timeout" => on.push("timeout"),
                other => match other.strip_prefix("http_") {
                    Some(status) => on.push(status),
                    None => {
                        let why = format!("`{other}`: only idempotent requests without a body are retried");
                        self.draft.notes.left_out_line(found, why);
                    }
                },
            }
        }
        upstream.key("retry", table([("on", array(on.iter().map(|word| text(word))))]));
    }
}

/// The dimension of a variable that requests are hashed by.
fn hashed(variable: &str) -> Option<String> {
    // Not of several, because of several together none is one dimension.
    let name = variable.strip_prefix('$').filter(|name| !name.contains('$'))?;
    let (header, argument) = (name.strip_prefix("http_"), name.strip_prefix("arg_"));
    match name {
        "uri" | "document_uri" | "request_uri" => Some("path".to_owned()),
        "remote_addr" | "binary_remote_addr" => Some("ip".to_owned()),
        "host" => Some("host".to_owned()),
        _ => {
            let header = header.map(|header| format!("header:{}", header.replace('_', "-")));
            let cookie = name.strip_prefix("cookie_").map(|cookie| format!("cookie:{cookie}"));
            header.or(cookie).or_else(|| argument.map(|argument| format!("query:{argument}")))
        }
    }
}

fn url(server: &str, https: bool) -> String {
    match server.starts_with("unix:") {
        true => server.to_owned(),
        false => format!("{}://{server}", if https { "https" } else { "http" }),
    }
}

fn has_port(server: &str) -> bool {
    server
        .rsplit_once(':')
        .is_some_and(|(_, port)| !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Paths of requests at the end of a URL.
const TAILS: &[&str] = &["$request_uri", "$uri$is_args$args", "$uri$is_args$query_string", "$uri"];
/// nginx's default of all three.
const TIMEOUT: Duration = Duration::from_secs(60);
