//! A configuration written out in its own language, with every default, secrets masked: read again it gives
//! an equal configuration, but for the masks.

use std::fmt::{self, Display, Write};
use std::time::Duration;

use crate::admin::{self, Bind};
use crate::global;
use crate::global::config::{Server, Topology};
use crate::limit::{Algorithm, Quota};
use crate::policy::definition::{
    Access, Action, Cost, HeaderChanges, Idempotency, Missing, PathEscapes, Policy, Respond, Route,
};
use crate::proxy::config::{ClientIp, ForwardedHeader};
use crate::record::{AccessConfig, Sink, StatusMatch};
use crate::service::config::{Listener, Memory, Underscores};
use crate::upstream;
use crate::upstream::config::{Balance, HostHeader, Version};

use super::units::{show_duration, show_share, show_size};
use super::{Config, limit_text, mask, policy, redis, running};

impl Config {
    /// The same configuration without its secrets: what a log, an answer or a terminal may show.
    pub fn masked(&self) -> Config {
        let mut masked = self.clone();
        if let Some(token) = masked.admin.as_mut().and_then(|admin| admin.token.as_mut()) {
            mask::MASK.clone_into(token);
        }
        for secret in masked.redis.iter_mut().flat_map(global::Config::secrets) {
            mask::MASK.clone_into(&mut secret.0);
        }
        for auth in &mut masked.auth {
            auth.hide_secrets(mask::MASK);
        }
        for route in &mut masked.routes {
            for header in &mut route.headers {
                if let Some(value) =
                    header.value.as_mut().filter(|_| mask::is_secret_name(header.name.as_str()))
                {
                    mask::MASK.clone_into(value);
                }
            }
            for changes in [&mut route.request_headers, &mut route.response_headers] {
                for (name, value) in changes.set.iter_mut().chain(&mut changes.add) {
                    if mask::is_secret_name(name.as_str()) {
                        mask::MASK.clone_into(value);
                    }
                }
            }
            if let Action::Respond(respond) = &mut route.action {
                for (name, value) in &mut respond.headers {
                    if mask::is_secret_name(name.as_str()) {
                        mask::MASK.clone_into(value);
                    }
                }
            }
        }
        masked
    }

    /// The whole configuration as a gateway.toml, with every default and every secret masked.
    pub fn effective(&self) -> String {
        let config = self.masked();
        let mut page = Page(String::new());
        match config.workers {
            Some(workers) => page.key("workers", workers),
            None => page.key("workers", text("auto")),
        }
        for listener in &config.listeners {
            page.listener(listener);
        }
        page.client_ip(&config.client_ip);
        for auth in &config.auth {
            page.auth(auth);
        }
        for upstream in &config.upstreams {
            page.upstream(upstream);
        }
        page.heading("[limits]");
        page.key("memory", size(config.limits_memory as u64));
        page.key("headers", text(word(&running::LIMIT_HEADERS, &config.limit_headers)));
        for (name, limit) in &config.tiers {
            page.tier(name, limit);
        }
        for policy in &config.policies {
            page.policy(policy);
        }
        for route in &config.routes {
            page.route(route);
        }
        page.running(&config);
        page.0
    }
}

/// The text so far.
struct Page(String);

impl Page {
    fn heading(&mut self, heading: &str) {
        self.line(format_args!("\n{heading}"));
    }

    fn key(&mut self, key: &str, value: impl Display) {
        self.line(format_args!("{key} = {value}"));
    }

    fn line(&mut self, line: fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }

    fn listener(&mut self, listener: &Listener) {
        self.heading(&format!("[listener.{}]", key(&listener.name)));
        self.key("bind", text(&listener.bind.to_string()));
        let versions = [("h2", listener.http2), ("http/1.1", listener.http1)];
        let versions = versions.iter().filter(|(_, served)| *served).map(|(name, _)| text(name));
        self.key("http", array(versions));
        if !listener.certs.is_empty() {
            self.key(
                "certs",
                array(listener.certs.iter().map(|pair| {
                    let (cert, key) = (pair.cert.to_string_lossy(), pair.key.to_string_lossy());
                    let self_signed = pair.self_signed;
                    format!("{{ cert = {}, key = {}, self-signed = {self_signed} }}", text(&cert), text(&key))
                })),
            );
        }
        self.key("sni", text(if listener.sni_strict { "strict" } else { "any" }));
        let underscores = match listener.underscores {
            Underscores::Refuse => "refuse",
            Underscores::Keep => "keep",
        };
        self.key("underscores", text(underscores));
        if let Some(auth) = &listener.client_auth {
            self.key("client-ca", text(&auth.ca.to_string_lossy()));
            self.key("client-cert", text(word(&super::listener::DEMANDS, &auth.demand)));
            if let Some(crl) = &auth.crl {
                self.key("client-crl", text(&crl.to_string_lossy()));
            }
        }
        for (key, value) in super::access::show_addresses(&listener.addresses) {
            self.key(key, value);
        }
        if !listener.proxies.is_empty() {
            let from = array(listener.proxies.iter().map(|network| text(&network.to_string())));
            self.key("proxy-protocol", table([("from", from)]));
        }
        if let Some(port) = listener.redirect_https {
            self.key("redirect", text(&super::listener::show_redirect(port)));
        }
        if listener.reuse_port {
            self.key("reuse-port", true);
        }
        self.key("max-connections", listener.connections_max);
        self.key("max-connections-per-ip", listener.connections_per_ip_max);
        let timeouts = &listener.timeouts;
        self.key(
            "timeouts",
            table([
                ("handshake", time(timeouts.handshake)),
                ("header", time(timeouts.header)),
                ("idle", time(timeouts.idle)),
                ("body-stall", time(timeouts.body_stall)),
            ]),
        );
        let max = &listener.max;
        self.key(
            "max",
            table([
                ("header-bytes", size(max.header_bytes as u64)),
                ("headers", max.headers.to_string()),
                ("uri-bytes", size(max.uri_bytes as u64)),
                ("body", size(max.body_bytes)),
                ("streams", max.streams.to_string()),
            ]),
        );
    }

    fn client_ip(&mut self, client_ip: &ClientIp) {
        self.heading("[client-ip]");
        self.key("trust", array(client_ip.trust.iter().map(|network| text(&network.to_string()))));
        let header = match client_ip.header {
            ForwardedHeader::XForwarded => "x-forwarded-for",
            ForwardedHeader::Forwarded => "forwarded",
        };
        self.key("header", text(header));
        self.key("ipv6-prefix", client_ip.ipv6_prefix);
    }

    fn auth(&mut self, auth: &crate::auth::Config) {
        self.heading(&format!("[auth.{}]", key(&auth.name)));
        for (key, value) in super::auth::show(auth) {
            self.key(key, value);
        }
    }

    fn access(&mut self, access: &Access) {
        for (key, value) in super::access::show(access) {
            self.key(key, value);
        }
    }

    fn upstream(&mut self, upstream: &upstream::Config) {
        self.heading(&format!("[upstream.{}]", key(&upstream.name)));
        self.key(
            "servers",
            array(upstream.servers.iter().map(|server| {
                let scheme = if server.tls { "https" } else { "http" };
                let host = if server.host.contains(':') {
                    format!("[{}]", server.host)
                } else {
                    server.host.clone()
                };
                let url = text(&format!("{scheme}://{host}:{}", server.port));
                format!("{{ url = {url}, weight = {} }}", server.weight)
            })),
        );
        self.key(
            "balance",
            text(match upstream.balance {
                Balance::P2c => "p2c",
                Balance::RoundRobin => "round-robin",
            }),
        );
        self.key(
            "http",
            text(match upstream.http {
                Version::H1 => "h1",
                Version::H2 => "h2",
            }),
        );
        if upstream.servers.iter().any(|server| server.tls) {
            self.key("tls", super::trust::show(&upstream.tls));
        }
        self.key(
            "host",
            text(match upstream.host {
                HostHeader::Client => "client",
                HostHeader::Server => "server",
            }),
        );
        self.upstream_bounds(upstream);
    }

    fn upstream_bounds(&mut self, upstream: &upstream::Config) {
        let connections = &upstream.connections;
        self.key(
            "connections",
            table([
                ("max", connections.max.to_string()),
                ("idle", connections.idle.to_string()),
                ("idle-timeout", time(connections.idle_timeout)),
                ("max-age", time(connections.max_age)),
                ("wait", time(connections.wait)),
                ("waiting", connections.waiting.to_string()),
                ("streams", connections.streams.to_string()),
            ]),
        );
        let timeouts = &upstream.timeouts;
        let mut keys = vec![
            ("connect", time(timeouts.connect)),
            ("response", time(timeouts.response)),
            ("stall", time(timeouts.stall)),
        ];
        keys.extend(timeouts.total.map(|total| ("total", time(total))));
        self.key("timeouts", table(keys));
        let retry = &upstream.retry;
        let on = [("connect", retry.on_connect), ("reset-before-bytes", retry.on_reset)];
        let on = on.iter().filter(|(_, is_on)| *is_on).map(|(name, _)| text(name));
        let budget = show_share(retry.budget_percent * 10_000);
        self.key(
            "retry",
            table([("times", retry.times.to_string()), ("on", array(on)), ("budget", text(&budget))]),
        );
        let uploads = &upstream.uploads;
        let (gather, rate) = (size(uploads.gather_bytes as u64), size(uploads.rate_min));
        self.key("uploads", table([("gather", gather), ("least-rate", rate)]));
    }

    fn tier(&mut self, name: &str, limit: &[Quota]) {
        self.heading(&format!("[tier.{}]", key(name)));
        self.key("limit", windows(limit));
    }

    fn policy(&mut self, policy: &Policy) {
        self.heading(&format!("[policy.{}]", key(&policy.name)));
        self.key("by", array(policy.by.iter().map(|by| text(&limit_text::show_dimension(by)))));
        match &policy.tiers {
            Some(tiers) => {
                self.key("limit", text("tier"));
                self.key("default-tier", text(&tiers.default));
            }
            None => self.key("limit", windows(&policy.windows)),
        }
        // All windows of a policy count alike, but for what is in flight; without one nothing counts.
        let mut algorithms = policy.windows.iter().map(Quota::algorithm);
        let algorithm = algorithms.find(|algorithm| *algorithm != Algorithm::Concurrency);
        let algorithm = algorithm.unwrap_or(Algorithm::TokenBucket);
        self.key("algorithm", text(word(&policy::ALGORITHMS, &algorithm)));
        self.key(
            "missing",
            text(match policy.missing {
                Missing::Ip => "ip",
                Missing::Skip => "skip",
                Missing::Reject => "reject",
            }),
        );
        if policy.matches != Default::default() {
            let methods = &policy.matches.methods;
            let mut keys = vec![("method", array(methods.iter().map(|method| text(method.as_str()))))];
            keys.extend(policy.matches.path.as_ref().map(|path| ("path", text(path))));
            self.key("match", table(keys));
        }
        self.cost(&policy.cost);
        self.key("shadow", policy.shadow);
        self.key("count-denied", policy.count_denied);
        if let Some(Idempotency { header, window }) = &policy.idempotency {
            let keys = [("key", text(&format!("header:{header}"))), ("window", time(*window))];
            self.key("idempotency-key", table(keys));
        }
        if let Some(penalty) = &policy.penalty {
            let keys = [
                ("after", penalty.after().to_string()),
                ("within", time(Duration::from_nanos(penalty.within_ns()))),
                ("factor", penalty.factor().to_string()),
                ("max", time(Duration::from_secs(penalty.max_seconds().into()))),
            ];
            self.key("penalty", table(keys));
        }
        match policy.overshoot_ppm {
            0 => self.key("overshoot", 0),
            share => self.key("overshoot", text(&show_share(share))),
        }
        self.key("when-redis-down", text(word(&policy::WHEN_DOWN, &policy.when_down)));
    }

    fn cost(&mut self, cost: &Cost) {
        let mut keys = vec![("default".to_owned(), cost.default.to_string())];
        for (method, path, units) in &cost.rules {
            let method = method.as_ref().map(|method| format!("{method} ")).unwrap_or_default();
            keys.push((key(&format!("{method}{path}")), units.to_string()));
        }
        let fields = [("header", &cost.header), ("response-header", &cost.response_header)];
        for (field, header) in fields {
            keys.extend(header.as_ref().map(|header| (field.to_owned(), text(header.as_str()))));
        }
        keys.extend(cost.max.map(|max| ("max".to_owned(), max.to_string())));
        self.key("cost", table(keys));
    }

    fn route(&mut self, route: &Route) {
        self.heading("[[route]]");
        self.key("name", text(&route.name));
        if !route.hosts.is_empty() {
            self.key("host", array(route.hosts.iter().map(|host| text(host))));
        }
        self.key("path", text(&route.path));
        if !route.methods.is_empty() {
            self.key("methods", array(route.methods.iter().map(|method| text(method.as_str()))));
        }
        if !route.headers.is_empty() {
            let headers = route.headers.iter().map(|header| {
                let value = header.value.as_ref().map_or("true".to_owned(), |value| text(value));
                (key(header.name.as_str()), value)
            });
            self.key("match", table([("header", table(headers))]));
        }
        self.access(&route.access);
        self.key("limit", array(route.limits.iter().map(|limit| text(limit))));
        match &route.action {
            Action::Forward { upstream, rewrite } => {
                self.key("to", text(upstream));
                if let Some(rewrite) = rewrite {
                    self.key("rewrite", text(rewrite));
                }
            }
            Action::Respond(respond) => self.key("respond", show_respond(respond)),
            Action::Echo => self.key("to", text(super::upstream::ECHO)),
            Action::RedirectHttps { port } => {
                self.key("redirect", text(&super::listener::show_redirect(*port)))
            }
        }
        for (key, changes) in
            [("headers", &route.request_headers), ("response-headers", &route.response_headers)]
        {
            if *changes != HeaderChanges::default() {
                self.key(key, show_changes(changes));
            }
        }
        if let Some(bytes) = route.body_bytes_max {
            self.key("max-body", size(bytes));
        }
        self.key("upgrade", route.upgrade);
        let path_escapes = match route.path_escapes {
            PathEscapes::Refuse => "refuse",
            PathEscapes::Keep => "keep",
        };
        self.key("path-escapes", text(path_escapes));
    }

    fn running(&mut self, config: &Config) {
        match &config.admin {
            Some(admin) => self.admin(admin),
            None => {
                // A bare key after a table would belong to it: it goes to the top.
                self.0.insert_str(0, "admin = false\n");
            }
        }
        if let Some(redis) = &config.redis {
            self.redis(redis);
        }
        self.heading("[overload]");
        match config.overload.memory {
            Memory::Machine => self.key("memory", text("auto")),
            Memory::Bytes(bytes) => self.key("memory", size(bytes)),
            Memory::Unbounded => self.key("memory", false),
        }
        for (key, ppm) in running::OVERLOAD_MARKS.into_iter().zip(config.overload.marks_ppm) {
            self.key(key, text(&show_share(ppm)));
        }
        self.heading("[shutdown]");
        self.key("ready-delay", time(config.shutdown.ready_delay));
        self.key("drain", time(config.shutdown.drain));
        self.heading("[log]");
        self.key("level", text(&config.log_level));
        self.key("access", show_access(&config.access_log));
    }

    fn redis(&mut self, redis: &global::Config) {
        self.heading("[redis]");
        if let Topology::Single(servers)
        | Topology::Sentinel { sentinels: servers, .. }
        | Topology::Cluster(servers) = &redis.topology
        {
            self.key("url", text(&redis::url(servers)));
        }
        self.key("topology", text(&redis::topology_word(&redis.topology)));
        self.key("deadline", time(redis.deadline));
        self.key("prefix", text(&redis.prefix));
        self.key("connections", redis.connections);
        if let Some(secret) = &redis.key_secret {
            self.key("key-secret", text(&secret.0));
        }
        if let Some(ca) = &redis.ca {
            self.key("ca", text(&ca.to_string_lossy()));
        }
        if let Topology::Ring { shards, dedicated } = &redis.topology {
            self.heading("[redis.ring]");
            let url = |server: &Server| ("url", text(&redis::url(std::slice::from_ref(server))));
            let shards =
                shards.iter().map(|shard| table([url(&shard.server), ("weight", shard.weight.to_string())]));
            self.key("shards", array(shards));
            let dedicated = dedicated.iter().map(|shard| {
                let tenants = array(shard.tenants.iter().map(|tenant| text(tenant)));
                table([url(&shard.server), ("tenants", tenants)])
            });
            self.key("dedicated", array(dedicated));
        }
    }

    fn admin(&mut self, admin: &admin::Config) {
        self.heading("[admin]");
        match &admin.bind {
            Bind::Tcp(address) => self.key("bind", text(&address.to_string())),
            Bind::Unix(path) => self.key("bind", text(&format!("unix:{}", path.display()))),
        }
        if let Some(token) = &admin.token {
            self.key("token", text(token));
        }
        if !admin.hosts.is_empty() {
            self.key("hosts", array(admin.hosts.iter().map(|host| text(host))));
        }
    }
}

fn windows(windows: &[Quota]) -> String {
    array(windows.iter().map(|window| text(&limit_text::show_window(window))))
}

fn show_changes(changes: &HeaderChanges) -> String {
    table([
        ("remove", array(changes.remove.iter().map(|name| text(name.as_str())))),
        ("set", show_fields(changes.set.iter().map(|(name, value)| (name.as_str(), value.as_str())))),
        ("add", show_fields(changes.add.iter().map(|(name, value)| (name.as_str(), value.as_str())))),
    ])
}

/// Fields as a table: one that comes several times is an array, as a key stands once.
fn show_fields<'f>(fields: impl Iterator<Item = (&'f str, &'f str)>) -> String {
    let mut values: Vec<(&str, Vec<String>)> = Vec::new();
    for (name, value) in fields {
        match values.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(text(value)),
            None => values.push((name, vec![text(value)])),
        }
    }
    table(values.into_iter().map(|(name, values)| (key(name), array(values.into_iter()))))
}

fn show_respond(respond: &Respond) -> String {
    let body = String::from_utf8_lossy(&respond.body);
    let headers = respond.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    table([
        ("status", respond.status.as_u16().to_string()),
        ("body", text(&body)),
        ("headers", show_fields(headers)),
    ])
}

fn show_access(access: &AccessConfig) -> String {
    let to = match &access.to {
        Sink::Stdout => text("stdout"),
        Sink::Stderr => text("stderr"),
        Sink::Off => text("off"),
        Sink::File(path) => text(&path.to_string_lossy()),
    };
    let sample = access.sample.iter().map(|(status, ppm)| {
        let status = match status {
            StatusMatch::Exact(status) => format!("\"{status}\""),
            StatusMatch::Class(class) => format!("\"{class}xx\""),
        };
        (status, text(&show_share(*ppm)))
    });
    let headers = array(access.headers.iter().map(|name| text(name.as_str())));
    let query = text(word(&running::QUERIES, &access.query));
    table([
        ("to", to),
        ("format", text("json")),
        ("headers", headers),
        ("query", query),
        ("sample", table(sample)),
    ])
}

/// A quoted string; a `${` in it stays one.
pub(super) fn text(value: &str) -> String {
    let mut quoted = String::from('"');
    for character in value.replace("${", "$${").chars() {
        match character {
            '"' | '\\' => quoted.extend(['\\', character]),
            _ if character.is_control() => {
                write!(quoted, "\\u{:04X}", u32::from(character)).expect("writing to a string cannot fail");
            }
            _ => quoted.push(character),
        }
    }
    quoted.push('"');
    quoted
}

/// A key, quoted where it has to be. Keys hold no references.
pub(super) fn key(name: &str) -> String {
    let is_bare = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !name.is_empty() && name.bytes().all(is_bare) {
        return name.to_owned();
    }
    text(name).replace("$${", "${")
}

pub(super) fn array(values: impl Iterator<Item = String>) -> String {
    format!("[{}]", values.collect::<Vec<_>>().join(", "))
}

pub(super) fn table<K: Display>(entries: impl IntoIterator<Item = (K, String)>) -> String {
    let entries: Vec<String> = entries.into_iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if entries.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", entries.join(", ")) }
}

pub(super) fn time(duration: Duration) -> String {
    text(&show_duration(duration))
}

fn size(bytes: u64) -> String {
    text(&show_size(bytes))
}

/// The word of a value among the words a key can say.
fn word<T: PartialEq>(words: &[(&'static str, T)], value: &T) -> &'static str {
    words.iter().find(|(_, known)| known == value).map_or("", |(word, _)| word)
}
