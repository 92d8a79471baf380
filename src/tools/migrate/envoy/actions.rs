//! What a route does: forward, redirect, answer.

use std::time::Duration;

use config::printer::{array, table, text, time};
use config::show_share;

use super::super::draft::Route;
use super::super::template;
use super::super::values::protobuf_time;
use super::super::yaml::Node;
use super::Reading;
use super::clusters::Use;
use super::hosts::RouteScope;
use super::matches::Prefix;

impl<'d> Reading<'d> {
    /// Writes a route's action into it.
    pub(super) fn act(
        &mut self,
        node: &'d Node,
        prefix: &Prefix,
        around: &RouteScope<'_, 'd>,
        route: &mut Route,
    ) {
        let answer = if let Some(action) = node.get("route") {
            return self.forward(action, node, prefix, around, route);
        } else if let Some(redirect) = node.get("redirect") {
            redirect_to(redirect, prefix, around.is_tls).map(|to| ("redirect", to))
        } else {
            node.get("direct_response").and_then(respond).map(|answer| ("respond", answer))
        };
        match answer {
            Some((key, value)) => route.key(key, value),
            None => self.close(node, "its action has no counterpart", route),
        }
    }

    /// Closes a route whose action cannot be taken over.
    fn close(&mut self, node: &'d Node, why: &str, route: &mut Route) {
        let what = format!("route {}", route.path);
        self.left_out(node, &what, &format!("{why}; it is closed (501)"));
        route.close();
    }

    fn forward(
        &mut self,
        action: &'d Node,
        node: &'d Node,
        prefix: &Prefix,
        around: &RouteScope<'_, 'd>,
        route: &mut Route,
    ) {
        let retry = action.get("retry_policy").or_else(|| around.host.get("retry_policy"));
        let with =
            Use { retry, is_server_host: action.is("auto_host_rewrite"), hash: action.list("hash_policy") };
        let to = match (action.word("cluster"), action.get("weighted_clusters")) {
            (Some(cluster), _) => self.upstream(cluster, action, &with).map(|name| text(&name)),
            (None, Some(weighted)) => self.weighted(weighted, action, &with),
            (None, None) => return self.close(node, "its cluster depends on the request", route),
        };
        let Some(to) = to else { return route.respond(503) };
        let mirror = self.mirror(action, &to, &with);
        route.key("to", to);
        mirror.into_iter().for_each(|mirror| route.key("mirror", mirror));
        if let Some(path) =
            ["regex_rewrite", "path_rewrite_policy", "path_rewrite"].iter().find(|key| action.has(key))
        {
            return self.close(node, &format!("`{path}` has no counterpart: write `rewrite`"), route);
        }
        if let Some(rewrite) = action.word("prefix_rewrite") {
            match rewritten(rewrite, prefix) {
                Some(rewrite) => route.key("rewrite", text(&rewrite)),
                None => {
                    return self.close(
                        node,
                        "`prefix_rewrite` with a regular expression has no counterpart: write `rewrite`",
                        route,
                    );
                }
            }
        }
        self.timeouts(action, route);
        let upgrades = action.list("upgrade_configs").iter().chain(around.filters.upgrades);
        let has_websocket = upgrades.filter(|upgrade| {
            upgrade.word("upgrade_type").is_some_and(|kind| kind.eq_ignore_ascii_case("websocket"))
                && upgrade.get("enabled").and_then(Node::flag) != Some(false)
        });
        if has_websocket.count() > 0 {
            route.key("upgrade", true);
        }
    }

    /// The first mirror: a route has one here. `to` is where its requests go.
    fn mirror(&mut self, action: &'d Node, to: &str, with: &Use<'d>) -> Option<String> {
        let (first, others) = action.list("request_mirror_policies").split_first()?;
        for other in others {
            self.left_out(other, "request_mirror_policies", "a route can have only one mirror");
        }
        let upstream = text(&self.upstream(first.word("cluster")?, action, with)?);
        if to.contains(&upstream) {
            self.left_out(
                first,
                "request_mirror_policies",
                "a mirror must be another upstream than the route's",
            );
            return None;
        }
        // Not needed, because nothing changes shares while the gateway runs.
        first.get("runtime_fraction").into_iter().for_each(|fraction| fraction.skip(&["runtime_key"]));
        let share_ppm = first.at(&["runtime_fraction", "default_value"]).map_or(MILLION, |fraction| {
            let whole = match fraction.word("denominator") {
                Some("TEN_THOUSAND") => 10_000,
                Some("MILLION") => MILLION,
                _ => 100,
            };
            fraction.count("numerator").unwrap_or(0).min(whole) * (MILLION / whole)
        });
        let share = show_share(u32::try_from(share_ppm).unwrap_or(0));
        Some(table([("to", upstream), ("share", text(&share))]))
    }

    /// `timeout` counts from the end of the request to the end of the answer.
    fn timeouts(&mut self, action: &'d Node, route: &mut Route) {
        let written = action.get("timeout").and_then(|node| node.parsed(protobuf_time));
        let stream = action.at(&["max_stream_duration", "max_stream_duration"]);
        let total = stream.and_then(|node| node.parsed(protobuf_time)).filter(|time| !time.is_zero());
        let mut keys = Vec::new();
        match written {
            Some(none) if none.is_zero() => {
                keys.push(("response", time(LONG)));
                self.differs(
                    action,
                    "timeout: 0s",
                    "a response must begin within an hour here; Envoy waits without a limit",
                );
            }
            Some(written) => {
                keys.push(("response", time(written)));
                keys.push(("total", time(total.unwrap_or(written))));
            }
            None => keys.extend(total.map(|total| ("total", time(total)))),
        }
        if !keys.is_empty() {
            route.key("timeouts", table(keys));
        }
    }

    /// Clusters by weight.
    fn weighted(&mut self, weighted: &'d Node, action: &'d Node, with: &Use<'d>) -> Option<String> {
        let clusters = weighted.list("clusters");
        let most = clusters.iter().filter_map(|cluster| cluster.count("weight")).max().unwrap_or(0);
        let divisor = most.div_ceil(WEIGHT_MAX).max(1);
        if divisor > 1 {
            self.differs(
                weighted,
                "weighted_clusters",
                "weights are scaled down so that none is above 1,000",
            );
        }
        let mut parts: Vec<(String, u64)> = Vec::new();
        for cluster in clusters {
            let Some(upstream) = cluster.word("name").and_then(|name| self.upstream(name, action, with))
            else {
                continue;
            };
            let weight = cluster.count("weight").unwrap_or(0).div_ceil(divisor);
            match parts.iter_mut().find(|(known, _)| *known == upstream) {
                Some((_, known)) => *known += weight,
                None => parts.push((upstream, weight)),
            }
        }
        let shown = |(upstream, weight): &(String, u64)| {
            table([("upstream", text(upstream)), ("weight", weight.to_string())])
        };
        match parts.as_slice() {
            [] => None,
            [(only, _)] => Some(text(only)),
            parts => Some(array(parts.iter().map(shown))),
        }
    }
}

/// The path that is sent: the prefix replaced, the rest as it came.
fn rewritten(rewrite: &str, prefix: &Prefix) -> Option<String> {
    let to = template::literal(rewrite);
    let to = if to.starts_with('/') { to } else { format!("/{to}") };
    match prefix {
        Prefix::Whole => Some(to),
        // Without a slash between them, because the rest follows at once in Envoy.
        Prefix::Begin => Some(format!("{to}{{rest}}")),
        Prefix::Segments => Some(format!("{}/{{rest}}", to.trim_end_matches('/'))),
        Prefix::Unknown => None,
    }
}

/// The number of a `response_code` of a redirect.
pub(super) fn redirect_status(redirect: &Node) -> Option<u16> {
    Some(match redirect.word("response_code").unwrap_or("MOVED_PERMANENTLY") {
        "MOVED_PERMANENTLY" => 301,
        "FOUND" => 302,
        "SEE_OTHER" => 303,
        "TEMPORARY_REDIRECT" => 307,
        "PERMANENT_REDIRECT" => 308,
        _ => return None,
    })
}

/// Where a redirect leads.
fn redirect_to(redirect: &Node, prefix: &Prefix, is_tls: bool) -> Option<String> {
    let status = redirect_status(redirect)?;
    if redirect.get("regex_rewrite").is_some() {
        return None;
    }
    let path = match (redirect.word("path_redirect"), redirect.word("prefix_rewrite")) {
        (Some(path), _) => template::literal(path),
        (None, Some(rewrite)) => rewritten(rewrite, prefix)?,
        (None, None) => "{path}".to_owned(),
    };
    let scheme = match (redirect.is("https_redirect"), redirect.word("scheme_redirect")) {
        (true, _) => Some("https"),
        (false, scheme) => scheme,
    };
    let port = redirect.count("port_redirect");
    let host = redirect.word("host_redirect");
    let to = if scheme.is_none() && host.is_none() && port.is_none() {
        path
    } else if scheme == Some("https") && host.is_none() && path == "{path}" && !redirect.is("strip_query") {
        port.map_or("https".to_owned(), |port| format!("https:{port}"))
    } else {
        let scheme = scheme.unwrap_or(if is_tls { "https" } else { "http" });
        let host = host.map_or("{host}".to_owned(), template::literal);
        let port = port.map(|port| format!(":{port}")).unwrap_or_default();
        format!("{scheme}://{host}{port}{path}")
    };
    let to = if redirect.is("strip_query") && !to.contains('?') { format!("{to}?") } else { to };
    Some(table([("to", text(&to)), ("status", status.to_string())]))
}

/// An answer of a route's own.
fn respond(answer: &Node) -> Option<String> {
    let mut keys = vec![("status", answer.count("status")?.to_string())];
    if let Some(body) = answer.get("body") {
        keys.push(("body", text(&template::body(body.word("inline_string")?))));
        keys.push(("headers", table([("content-type", text("text/plain"))])));
    }
    Some(table(keys))
}

const MILLION: u64 = 1_000_000;
/// In the place of a time without end.
const LONG: Duration = Duration::from_secs(3_600);
/// The most that a weight of ours may be.
const WEIGHT_MAX: u64 = 1_000;
