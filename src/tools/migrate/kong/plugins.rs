//! Plugins of a route: of those with one name the nearest holds, the route's before the service's before that of all.

use config::printer::{table, text};

use super::super::draft::{Route, texts};
use super::super::fields::{Fields, TO_CLIENTS, TO_SERVERS};
use super::super::template;
use super::super::yaml::Node;
use super::{Reading, name_of};

/// What the plugins of a route do to it.
#[derive(Debug, Default)]
pub(super) struct Common {
    pub(super) limits: Vec<String>,
    /// Names of methods, and whether their keys are in our file, with the groups of their consumers.
    pub(super) auth: Vec<String>,
    pub(super) has_groups: bool,
    /// Ways to authenticate, and those of them that let clients without a credential pass.
    pub(super) ways: usize,
    pub(super) ways_for_anybody: usize,
    /// Groups that may use the route.
    pub(super) groups: Vec<String>,
    pub(super) allow: Vec<String>,
    pub(super) deny: Vec<String>,
    pub(super) cors: Option<String>,
    pub(super) max_body: Option<String>,
    /// `respond` or `redirect`, in the place of an upstream.
    pub(super) answer: Option<(&'static str, String)>,
    pub(super) request: Fields,
    pub(super) response: Fields,
    /// Whether something guards the route that cannot be said.
    pub(super) is_closed: bool,
}

impl<'d> Reading<'d> {
    /// The plugins that hold for a route.
    pub(super) fn common(&mut self, route: &'d Node, service: Option<&'d Node>) -> Common {
        let mut common = Common::default();
        for (plugin, scope) in self.plugins(route, service) {
            let name = plugin.word("name").unwrap_or_default();
            plugin.skip(&["route", "service"]);
            if plugin.get("consumer").is_some() {
                self.for_one_consumer(plugin, name, &mut common);
                continue;
            }
            self.plugin(plugin, name, &scope, &mut common);
        }
        if common.ways > 1 && common.ways_for_anybody < common.ways {
            let place = self.place(route);
            let why = "Kong requires every credential, here one is enough; the route is closed (501) until you rewrite it";
            self.draft.notes.left_out(&place, "several ways to authenticate", why);
            common.is_closed = true;
        }
        if !common.groups.is_empty() && !common.has_groups {
            let place = self.place(route);
            let why =
                "only API keys have groups; the route is closed (501) until you rewrite it with `require`";
            self.draft.notes.left_out(&place, "acl", why);
            common.is_closed = true;
        }
        common
    }

    /// A plugin of a route or a service that is for one consumer alone. A limit is listed; anything else may refuse.
    fn for_one_consumer(&mut self, plugin: &'d Node, name: &str, common: &mut Common) {
        let what = format!("plugin {name} of one consumer");
        if is_harmless(name) || name.contains("rate-limiting") {
            let why =
                "write a tier: `tier` in the file of keys, [tier.…], and `limit = \"tier\"` of a policy";
            return self.left_out(plugin, &what, why);
        }
        self.left_out(
            plugin,
            &what,
            "it may refuse requests; its routes are closed (501) until you rewrite it",
        );
        common.is_closed = true;
    }

    /// The plugins of a route, each with the name of what it belongs to.
    fn plugins(&self, route: &'d Node, service: Option<&'d Node>) -> Vec<(&'d Node, String)> {
        let is_for_all =
            |plugin: &&Node| ["route", "service", "consumer"].iter().all(|key| plugin.get(key).is_none());
        let mut found: Vec<(&'d Node, String)> = Vec::new();
        let own =
            self.parts(route, "plugins", "route").into_iter().map(|plugin| (plugin, name_of(route, "route")));
        let of_service = service.into_iter().flat_map(|service| {
            self.parts(service, "plugins", "service")
                .into_iter()
                .map(|plugin| (plugin, name_of(service, "service")))
        });
        let for_all =
            self.root.list("plugins").iter().filter(is_for_all).map(|plugin| (plugin, String::new()));
        for (plugin, scope) in own.chain(of_service).chain(for_all) {
            // One that is switched off is not there, so that a farther one of its name holds.
            if plugin.get("enabled").and_then(Node::flag) == Some(false) {
                plugin.dismiss();
                continue;
            }
            let name = plugin.get("name").and_then(Node::peek);
            let is_other = |(known, _): &(&Node, String)| {
                known.get("consumer").is_some() || known.get("name").and_then(Node::peek) != name
            };
            // It hides no other one, because one that names a consumer is for that one alone.
            if plugin.get("consumer").is_some() || found.iter().all(is_other) {
                found.push((plugin, scope));
            } else {
                plugin.skip(&["name", "route", "service"]);
            }
        }
        found
    }

    fn plugin(&mut self, plugin: &'d Node, name: &str, scope: &str, common: &mut Common) {
        let config = plugin.get("config").unwrap_or(plugin);
        match name {
            "rate-limiting" => common.limits.extend(self.windows(plugin, config, scope)),
            "rate-limiting-advanced" => common.limits.extend(self.advanced_windows(plugin, config, scope)),
            "key-auth" => self.key_auth(plugin, config, common),
            "jwt" => self.jwt(plugin, config, common),
            "acl" => self.groups(plugin, config, common),
            "ip-restriction" => {
                common.allow.extend(
                    ["allow", "whitelist"].iter().flat_map(|key| config.words(key)).map(str::to_owned),
                );
                common.deny.extend(
                    ["deny", "blacklist"].iter().flat_map(|key| config.words(key)).map(str::to_owned),
                );
            }
            "cors" => common.cors = self.cors(config),
            "request-size-limiting" => common.max_body = Some(max_body(config)),
            "request-termination" => common.answer = Some(("respond", termination(config))),
            "redirect" => {
                common.answer = config.word("location").map(|to| ("redirect", redirect(config, to)))
            }
            "request-transformer" => self.transformer(config, &mut common.request),
            "response-transformer" => self.transformer(config, &mut common.response),
            "correlation-id" => correlation(config, common),
            other => match HARMLESS.iter().find(|(known, _)| *known == other) {
                Some((_, "")) => plugin.dismiss(),
                Some((_, why)) => self.left_out(plugin, &format!("plugin {name}"), why),
                None => {
                    let why = "it may refuse requests; its routes are closed (501) until you rewrite it";
                    self.left_out(plugin, &format!("plugin {name}"), why);
                    common.is_closed = true;
                }
            },
        }
    }

    fn cors(&mut self, config: &'d Node) -> Option<String> {
        let mut origins = config.words("origins");
        if origins.is_empty() {
            origins.push("*");
        }
        let mut keys = vec![("origins", texts(&origins))];
        for (key, word) in [("methods", "methods"), ("headers", "headers"), ("expose", "exposed_headers")] {
            let listed = config.words(word);
            if !listed.is_empty() {
                keys.push((key, texts(&listed)));
            }
        }
        if config.is("credentials") {
            if origins.contains(&"*") {
                self.left_out(
                    config,
                    "cors",
                    "credentials cannot be allowed for all origins: list the origins",
                );
                return None;
            }
            keys.push(("credentials", "true".to_owned()));
        }
        keys.extend(config.count("max_age").map(|seconds| ("max-age", text(&format!("{seconds}s")))));
        Some(table(keys))
    }
}

/// Whether a plugin lets everybody in.
pub(super) fn is_harmless(name: &str) -> bool {
    HARMLESS.iter().any(|(known, _)| *known == name)
}

impl Common {
    /// Whether the route is answered here.
    pub(super) fn answers(&self) -> bool {
        self.answer.is_some() || self.is_closed
    }

    /// Whether it keeps requests out that another route might let in.
    pub(super) fn refuses(&self) -> bool {
        let is_refusal = |value: &String| value.contains("status = 4") || value.contains("status = 5");
        self.is_closed
            || self.ways > 0
            || !self.limits.is_empty()
            || !self.groups.is_empty()
            || !self.allow.is_empty()
            || !self.deny.is_empty()
            || self.max_body.is_some()
            || self.answer.as_ref().is_some_and(|(key, value)| *key == "respond" && is_refusal(value))
    }

    /// Writes it into a route; `host` is what its upstream is sent as `Host`.
    pub(super) fn apply(&self, route: &mut Route, host: Option<&str>) {
        if self.is_closed {
            return route.close();
        }
        if let Some((key, value)) = &self.answer {
            route.keys = vec![(key, value.clone())];
        }
        let is_forwarded = self.answer.is_none();
        route.limits.clone_from(&self.limits);
        if !self.auth.is_empty() {
            route.key("auth", texts(&self.auth));
        }
        if !self.groups.is_empty() {
            let claims = table([("claims", table([("groups", texts(&self.groups))]))]);
            route.key("require", claims);
        }
        for (key, list) in [("allow", &self.allow), ("deny", &self.deny)] {
            if !list.is_empty() {
                route.key(key, texts(list));
            }
        }
        route.keys.extend(self.cors.clone().map(|cors| ("cors", cors)));
        let mut request = self.request.clone();
        request.set.extend(host.map(|host| ("host".to_owned(), template::literal(host))));
        if !self.auth.is_empty() {
            request.set.push(("x-consumer-username".to_owned(), "{consumer}".to_owned()));
        }
        if is_forwarded {
            route.keys.extend(self.max_body.clone().map(|most| ("max-body", most)));
            route.keys.extend(request.shown(TO_SERVERS).map(|shown| ("headers", shown)));
        }
        route.keys.extend(self.response.shown(TO_CLIENTS).map(|shown| ("response-headers", shown)));
    }
}

/// `max-body`: 128 MB unless written; Kong's units are powers of 1,024.
fn max_body(config: &Node) -> String {
    let size = config.count("allowed_payload_size").unwrap_or(128);
    let unit = match config.word("size_unit").unwrap_or("megabytes") {
        "bytes" => "B",
        "kilobytes" => "KiB",
        _ => "MiB",
    };
    text(&format!("{size}{unit}"))
}

fn termination(config: &Node) -> String {
    let status = config.count("status_code").unwrap_or(503);
    let (body, kind) = match (config.word("body"), config.word("message")) {
        (Some(body), _) => {
            (body.to_owned(), config.word("content_type").unwrap_or("application/json; charset=utf-8"))
        }
        (None, message) => {
            let message = serde_json::json!({ "message": message.unwrap_or_default() });
            (message.to_string(), "application/json; charset=utf-8")
        }
    };
    table([
        ("status", status.to_string()),
        ("body", text(&template::body(&body))),
        ("headers", table([("content-type", text(kind))])),
    ])
}

fn redirect(config: &Node, to: &str) -> String {
    let status = config.count("status_code").unwrap_or(301);
    let path = if config.is("keep_incoming_path") { "{path}" } else { "" };
    let to = template::literal(to);
    let to = if path.is_empty() { to } else { to.trim_end_matches('/').to_owned() };
    table([("to", text(&format!("{to}{path}"))), ("status", status.to_string())])
}

/// The request's id, under a name of its own.
fn correlation(config: &Node, common: &mut Common) {
    let name = config.word("header_name").unwrap_or("Kong-Request-ID").to_ascii_lowercase();
    config.skip(&["generator"]);
    if config.is("echo_downstream") {
        common.response.set.push((name.clone(), "{request_id}".to_owned()));
    }
    if name != "x-request-id" {
        common.request.set.push((name, "{request_id}".to_owned()));
    }
}

/// Plugins that let everybody in, and what becomes of them. Without a reason they are not needed.
const HARMLESS: &[(&str, &str)] = &[
    ("prometheus", ""),
    ("file-log", "use the access log: `access` of [log]"),
    ("http-log", "the access log goes to a file, a syslog server or standard output"),
    ("tcp-log", "the access log goes to a file, a syslog server or standard output"),
    ("udp-log", "the access log goes to a file, a syslog server or standard output"),
    ("syslog", "the access log goes to a file, a syslog server or standard output"),
    ("loggly", "the access log goes to a file, a syslog server or standard output"),
    ("statsd", "use /metrics of the admin listener"),
    ("datadog", "use /metrics of the admin listener"),
    ("zipkin", "write [trace] with `otlp`"),
    ("opentelemetry", "write [trace] with `otlp`"),
    ("proxy-cache", "responses are not cached"),
    ("proxy-cache-advanced", "responses are not cached"),
    ("grpc-web", "gRPC-Web is not translated"),
    ("grpc-gateway", "JSON is not translated to gRPC"),
    ("response-ratelimiting", "write `cost = { response-header = … }` at a policy"),
    ("acme", "write `certs = { acme = … }` at the listener"),
];
