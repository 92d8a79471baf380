//! Services and upstreams with their targets, as upstreams.

use std::time::Duration;

use config::printer::{array, table, text, time};

use super::super::draft::Section as Upstream;
use super::super::values::is_field;
use super::super::yaml::Node;
use super::{Reading, name_of};

/// Where a service leads.
pub(super) struct Target<'d> {
    /// `http`, `https`, `grpc` or `grpcs`.
    pub(super) protocol: String,
    host: String,
    port: Option<u64>,
    /// What stands in front of every path.
    pub(super) path: String,
    service: &'d Node,
}

impl<'d> Reading<'d> {
    /// All services with their routes, and routes that stand alone.
    pub(super) fn services(&mut self) {
        let root = self.root;
        for service in root.list("services") {
            let name = name_of(service, "service");
            if service.get("enabled").and_then(Node::flag) == Some(false) {
                self.left_out(service, &format!("service {name}"), "it is not enabled");
                continue;
            }
            let Some(target) = self.target(service) else {
                self.left_out(service, &format!("service {name}"), "the gateway forwards only HTTP and gRPC");
                continue;
            };
            for route in self.parts(service, "routes", "service") {
                self.route(route, Some((service, &target)));
            }
        }
        for route in root.list("routes").iter().filter(|route| route.get("service").is_none()) {
            self.route(route, None);
        }
    }

    fn target(&self, service: &'d Node) -> Option<Target<'d>> {
        let url = service.word("url");
        let (scheme, rest) = match url {
            Some(url) => url.split_once("://")?,
            None => ("", ""),
        };
        let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        let (host, port) =
            match authority.rsplit_once(':').filter(|(_, port)| port.bytes().all(|it| it.is_ascii_digit())) {
                Some((host, port)) => (host, port.parse().ok()),
                None => (authority, None),
            };
        let word = |key: &str, of_url: &str| service.word(key).map_or(of_url.to_owned(), str::to_owned);
        let protocol =
            Some(word("protocol", scheme)).filter(|it| !it.is_empty()).unwrap_or("http".to_owned());
        let is_known = matches!(protocol.as_str(), "http" | "https" | "grpc" | "grpcs");
        let host = word("host", host);
        (is_known && !host.is_empty()).then(|| Target {
            protocol,
            host,
            port: service.count("port").or(port),
            path: word("path", path).trim_end_matches('/').to_owned(),
            service,
        })
    }

    /// The upstream of a service, and the `Host` that it is sent if that is a word of its own.
    pub(super) fn upstream(
        &mut self,
        target: &Target<'d>,
        keeps_host: bool,
    ) -> Option<(String, Option<String>)> {
        let root = self.root;
        let is_name = |found: &str| (found == target.host).then_some(());
        let is_it = |upstream: &&Node| upstream.get("name").and_then(|found| found.parsed(is_name)).is_some();
        let entity = root.list("upstreams").iter().find(is_it);
        let is_tls = matches!(target.protocol.as_str(), "https" | "grpcs");
        let scheme = if is_tls { "https" } else { "http" };
        let mut upstream =
            Upstream::new(entity.map_or(name_of(target.service, "service"), |it| name_of(it, "upstream")));
        let servers = match entity {
            Some(entity) => self.targets(entity, scheme),
            None => {
                let port = target.port.unwrap_or(if is_tls { 443 } else { 80 });
                vec![text(&format!("{scheme}://{}:{port}", target.host))]
            }
        };
        if servers.is_empty() {
            let why = "its upstream has no target that takes requests; its routes answer 503";
            self.left_out(target.service, &format!("service {}", target.host), why);
            return None;
        }
        let count = servers.len();
        upstream.key("servers", array(servers.into_iter()));
        if let Some(entity) = entity {
            self.balance(entity, &mut upstream);
        }
        if target.protocol.starts_with("grpc") {
            upstream.key("http", text("h2"));
        }
        if !keeps_host {
            upstream.key("host", text("server"));
        }
        self.service_settings(target.service, &mut upstream);
        let host =
            entity.and_then(|entity| entity.word("host_header")).filter(|_| !keeps_host).map(str::to_owned);
        if let Some(entity) = entity {
            self.checks(entity, count, &mut upstream);
        }
        Some((self.draft.add_upstream(upstream), host))
    }

    fn targets(&mut self, entity: &'d Node, scheme: &str) -> Vec<String> {
        let mut servers = Vec::new();
        for target in self.parts(entity, "targets", "upstream") {
            let Some(address) = target.word("target") else { continue };
            // Kong's default port of a target, and its default weight.
            let has_port =
                address.rsplit_once(':').is_some_and(|(_, port)| port.bytes().all(|it| it.is_ascii_digit()));
            let port = if has_port { "" } else { ":8000" };
            let url = text(&format!("{scheme}://{address}{port}"));
            match target.count("weight").unwrap_or(100) {
                0 => self.left_out(target, &format!("target {address}"), "its weight is 0"),
                100 => servers.push((url, 100)),
                weight => servers.push((url, weight)),
            }
        }
        let are_equal = servers.iter().all(|(_, weight)| *weight == servers[0].1);
        let weighted = |(url, weight): (String, u64)| match are_equal {
            true => url,
            false => table([("url", url), ("weight", weight.to_string())]),
        };
        servers.into_iter().map(weighted).collect()
    }

    fn balance(&mut self, entity: &'d Node, upstream: &mut Upstream) {
        let algorithm = entity.word("algorithm").unwrap_or("round-robin");
        let balance = match algorithm {
            "round-robin" => "round-robin".to_owned(),
            "least-connections" => "least-requests".to_owned(),
            "consistent-hashing" => match hashed(entity) {
                Some(dimension) => format!("hash:{dimension}"),
                None => {
                    self.differs(
                        entity,
                        "consistent-hashing",
                        "this cannot be hashed: the less loaded of two random targets is chosen",
                    );
                    "p2c".to_owned()
                }
            },
            other => {
                self.differs(
                    entity,
                    &format!("algorithm: {other}"),
                    "the less loaded of two random targets is chosen",
                );
                "p2c".to_owned()
            }
        };
        upstream.key("balance", text(&balance));
    }

    /// Timeouts, with Kong's minute if nothing is written, and retries.
    fn service_settings(&mut self, service: &'d Node, upstream: &mut Upstream) {
        let millis = |key: &str| Duration::from_millis(service.count(key).unwrap_or(60_000).max(1));
        let (connect, read) = (millis("connect_timeout"), millis("read_timeout"));
        let stall = read.max(millis("write_timeout"));
        let timeouts = [("connect", connect), ("response", read), ("stall", stall)];
        upstream.key("timeouts", table(timeouts.map(|(key, value)| (key, time(value)))));
        match service.count("retries") {
            Some(0) => upstream.key("retry", "{ times = 0 }"),
            Some(1) | None => {}
            Some(more) => {
                self.differs(service, &format!("retries: {more}"), "a request is retried at most once")
            }
        }
        if service.get("tls_verify").and_then(Node::flag) == Some(false) {
            self.differs(service, "tls_verify: false", "the server's certificate is verified here");
        }
    }

    /// Active checks as `health`, passive ones as `eject`.
    fn checks(&mut self, entity: &'d Node, count: usize, upstream: &mut Upstream) {
        let Some(checks) = entity.get("healthchecks") else { return };
        let seconds = |keys: &[&str]| {
            let written = checks.at(keys)?.parsed(|text| text.parse::<f64>().ok())?;
            (written >= 0.001).then(|| Duration::try_from_secs_f64(written).ok()).flatten()
        };
        let number = |keys: &[&str]| checks.at(keys).and_then(Node::number);
        let every = seconds(&["active", "healthy", "interval"]);
        let every = every.into_iter().chain(seconds(&["active", "unhealthy", "interval"])).min();
        if let Some(every) = every {
            let mut keys = Vec::new();
            if checks.at(&["active", "type"]).and_then(Node::text) == Some("tcp") {
                keys.push(("tcp", "true".to_owned()));
            } else {
                let path = checks.at(&["active", "http_path"]).and_then(Node::text).unwrap_or("/");
                keys.push(("path", text(path)));
                let statuses =
                    checks.at(&["active", "healthy", "http_statuses"]).map(Node::texts).unwrap_or_default();
                let statuses = if statuses.is_empty() { vec!["200", "302"] } else { statuses };
                keys.push(("status", array(statuses.into_iter().map(text))));
            }
            keys.push(("every", time(every)));
            keys.extend(seconds(&["active", "timeout"]).map(|it| ("timeout", time(it))));
            let failures = ["http_failures", "tcp_failures", "timeouts"];
            let failures = failures.iter().filter_map(|key| number(&["active", "unhealthy", key]));
            keys.extend(failures.filter(|it| *it > 0).min().map(|it| ("unhealthy-after", it.to_string())));
            let good = number(&["active", "healthy", "successes"]).filter(|it| *it > 0);
            keys.extend(good.map(|it| ("healthy-after", it.to_string())));
            upstream.key("health", table(keys));
        }
        let failures = ["http_failures", "tcp_failures", "timeouts"];
        let failures = failures.iter().filter_map(|key| number(&["passive", "unhealthy", key]));
        if let Some(after) = failures.filter(|it| *it > 0).min() {
            if count > 1 {
                upstream.key("eject", table([("after", after.to_string()), ("most", text("100%"))]));
            }
            self.differs(
                checks,
                "healthchecks.passive",
                "use `eject`, which readmits a server after a while",
            );
        }
    }
}

/// The dimension that `hash_on` means.
fn hashed(entity: &Node) -> Option<String> {
    match entity.word("hash_on")? {
        "ip" => Some("ip".to_owned()),
        "consumer" => Some("consumer".to_owned()),
        "path" => Some("path".to_owned()),
        "header" => {
            let name = entity.word("hash_on_header").filter(|name| is_field(name))?;
            Some(format!("header:{}", name.to_ascii_lowercase()))
        }
        "query_arg" => {
            let name = entity.word("hash_on_query_arg").filter(|name| is_field(name))?;
            Some(format!("query:{name}"))
        }
        _ => None,
    }
}
