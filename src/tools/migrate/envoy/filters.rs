//! The filters of a connection manager: what each route gets of them, and which of them may refuse.

use config::printer::{size, table, text};

use super::super::draft::texts;
use super::super::values::is_among;
use super::super::yaml::Node;
use super::hosts::RouteScope;
use super::{Reading, kind};

/// What the filters of a connection manager do to its routes.
#[derive(Default)]
pub(super) struct Filters<'d> {
    pub(super) limits: Vec<&'d Node>,
    pub(super) has_cors: bool,
    /// `compress` of routes.
    pub(super) compress: Option<String>,
    /// `max-body` of routes.
    pub(super) max_body: Option<String>,
    /// Whether something may refuse requests that is not known: all routes are closed.
    pub(super) is_guarded: bool,
    /// The names of those that may refuse requests and are switched off until a route or a host switches them on.
    disabled: Vec<&'d str>,
    pub(super) upgrades: &'d [Node],
    /// `allow` of routes: the clients that their chain takes. Empty: any.
    pub(super) allow: Vec<String>,
}

impl<'d> Reading<'d> {
    pub(super) fn filters(&mut self, manager: &'d Node) -> Filters<'d> {
        let mut filters = Filters { upgrades: manager.list("upgrade_configs"), ..Filters::default() };
        for filter in manager.list("http_filters") {
            if filter.is("disabled") {
                filters.disabled.extend(filter.word("name").filter(|_| may_refuse(kind_of(filter))));
            }
            if filter.is("disabled") || filter.is("is_optional") && filter.get("typed_config").is_none() {
                filter.dismiss();
                continue;
            }
            self.filter(filter, &mut filters);
        }
        filters
    }

    fn filter(&mut self, filter: &'d Node, filters: &mut Filters<'d>) {
        let name = filter.word("name").unwrap_or_default();
        let config = filter.get("typed_config");
        match kind_of(filter) {
            "LocalRateLimit" | "local_ratelimit" => filters.limits.extend(config),
            "Cors" | "cors" => filters.has_cors = true,
            "Compressor" | "compressor" => {
                filters.compress = config.map(|config| compress(config, filters.compress.take()))
            }
            "Buffer" | "buffer" => {
                filters.max_body = config.and_then(|config| config.count("max_request_bytes")).map(size);
            }
            other if NEEDLESS.contains(&other) => filter.dismiss(),
            "RateLimit" | "ratelimit" => {
                let why =
                    "its limits are in the configuration of the rate limit service: write them as policies";
                self.left_out(filter, name, why);
            }
            "HeaderMutation"
                if config.is_some_and(|it| it.at(&["mutations", "request_mutations"]).is_some()) =>
            {
                let why = "it changes headers that clients could choose then; all routes of this listener are closed \
                    (501) until you write `headers` at its routes";
                self.left_out(filter, name, why);
                filters.is_guarded = true;
            }
            other => match HARMLESS.iter().find(|(known, _)| *known == other) {
                Some((_, why)) => self.left_out(filter, name, why),
                None => {
                    let why = "it may refuse requests; all routes of this listener are closed (501) until you \
                        rewrite it";
                    self.left_out(filter, name, why);
                    filters.is_guarded = true;
                }
            },
        }
    }

    /// `max-body` of a route's or a host's own buffer.
    pub(super) fn own_buffer(&self, node: &'d Node) -> Option<String> {
        let (_, own) = node
            .get("typed_per_filter_config")?
            .entries()
            .iter()
            .find(|(_, own)| is_of(own, "BufferPerRoute"))?;
        own.at(&["buffer", "max_request_bytes"]).and_then(Node::number).map(size)
    }

    /// `cors` of a route, from its own configuration or its host's.
    pub(super) fn cors(&mut self, node: &'d Node, around: &RouteScope<'_, 'd>) -> Option<String> {
        let own = |node: &'d Node| {
            let entries = node.get("typed_per_filter_config").map(Node::entries).unwrap_or_default();
            let typed = entries.iter().find(|(_, own)| is_of(own, "CorsPolicy")).map(|(_, own)| own);
            typed.or_else(|| node.get("cors")).or_else(|| node.at(&["route", "cors"]))
        };
        let policy = own(node).or_else(|| own(around.host)).filter(|_| around.filters.has_cors)?;
        let mut origins = Vec::new();
        for origin in policy.list("allow_origin_string_match") {
            match origin.word("exact") {
                Some(exact) => origins.push(exact.to_owned()),
                None if origin.at(&["safe_regex", "regex"]).and_then(Node::text) == Some("\\*") => {
                    origins.push("*".to_owned())
                }
                None => self.left_out(
                    origin,
                    "allow_origin_string_match",
                    "an origin must be written out, or `*`",
                ),
            }
        }
        if origins.is_empty() {
            return None;
        }
        let mut keys = vec![("origins", texts(&origins))];
        for (key, word) in
            [("methods", "allow_methods"), ("headers", "allow_headers"), ("expose", "expose_headers")]
        {
            let listed: Vec<&str> =
                policy.word(word).into_iter().flat_map(|list| list.split(',')).map(str::trim).collect();
            if !listed.is_empty() && listed != ["*"] {
                keys.push((key, texts(&listed)));
            }
        }
        if policy.is("allow_credentials") {
            keys.push(("credentials", "true".to_owned()));
        }
        keys.extend(policy.count("max_age").map(|seconds| ("max-age", text(&format!("{seconds}s")))));
        Some(table(keys))
    }
}

/// The filter that a route, its host or its table switches on and that may refuse requests. The nearest level that
/// names a filter decides.
pub(super) fn enabled<'d>(node: &'d Node, around: &RouteScope<'_, 'd>) -> Option<&'d str> {
    let clusters = node.at(&["route", "weighted_clusters"]).map(|it| it.list("clusters"));
    let is_on = |level: &'d Node, name: &str| {
        let entries = level.get("typed_per_filter_config").map(Node::entries).unwrap_or_default();
        let own = entries.iter().find(|(key, _)| key == name).map(|(_, own)| own);
        own.inspect(|own| own.dismiss()).map(|own| !own.is("disabled"))
    };
    around.filters.disabled.iter().copied().find(|name| {
        let levels = [node, around.host, around.table];
        levels.into_iter().find_map(|level| is_on(level, name)) == Some(true)
            || clusters.unwrap_or_default().iter().any(|cluster| is_on(cluster, name) == Some(true))
    })
}

/// What a filter is, by the type of its configuration or by its name.
fn kind_of(filter: &Node) -> &str {
    let named = filter.word("name").and_then(|name| name.rsplit('.').next()).unwrap_or_default();
    filter.get("typed_config").map(kind).filter(|kind| !kind.is_empty()).unwrap_or(named)
}

/// Whether it is not known that a filter lets everybody in.
fn may_refuse(kind: &str) -> bool {
    const TAKEN_OVER: &str =
        "LocalRateLimit local_ratelimit Cors cors Compressor compressor Buffer buffer RateLimit ratelimit";
    !is_among(kind, TAKEN_OVER)
        && !NEEDLESS.contains(&kind)
        && HARMLESS.iter().all(|(known, _)| *known != kind)
}

/// Whether a configuration is of a type.
pub(super) fn is_of(config: &Node, wanted: &str) -> bool {
    let found = config.get("@type").and_then(|node| node.parsed(|text| text.ends_with(wanted).then_some(())));
    found.is_some()
}

/// `compress` with one coding more.
fn compress(config: &Node, so_far: Option<String>) -> String {
    let library = config.at(&["compressor_library", "typed_config"]).map(kind).unwrap_or_default();
    config.skip(&["compressor_library", "choose_first"]);
    let coding = match library {
        "Brotli" => "br",
        "Zstd" => "zstd",
        _ => "gzip",
    };
    let before = so_far.unwrap_or_default();
    let mut codings: Vec<&str> =
        ["br", "zstd", "gzip"].into_iter().filter(|known| before.contains(&text(known))).collect();
    if !codings.contains(&coding) {
        codings.push(coding);
    }
    table([("encodings", texts(&codings))])
}

/// Filters that are part of every gateway, or change nothing.
const NEEDLESS: &[&str] = &["Router", "router", "GrpcStats", "grpc_stats", "OnDemand", "Tap", "FilterConfig"];

/// Filters that let everybody in, and what becomes of them.
const HARMLESS: &[(&str, &str)] = &[
    ("HTTPFault", "faults are not injected"),
    ("GrpcWeb", "gRPC-Web is not translated"),
    ("GrpcJsonTranscoder", "JSON is not translated to gRPC"),
    ("HeaderMutation", "write `headers` and `response-headers` at its routes"),
    ("Decompressor", "bodies are not decompressed"),
    ("AdaptiveConcurrency", "write a limit of requests in flight"),
    ("AdmissionControl", "write a limit of requests in flight"),
    ("BandwidthLimit", "bandwidth is not limited"),
    ("CacheConfig", "responses are not cached"),
    ("HealthCheck", "use /healthz and /readyz of the admin listener, or a route with `respond`"),
    ("StatefulSession", "write `sticky = { cookie = … }` at the upstream"),
    ("IPTagging", "it has no counterpart"),
    ("Config", "it has no counterpart"),
];
