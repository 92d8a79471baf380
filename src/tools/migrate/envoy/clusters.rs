//! Clusters as upstreams, one for each way in which routes use them.

use config::printer::{array, table, text, time};

use super::super::draft::Section as Upstream;
use super::super::file;
use super::super::values::{is_field, protobuf_time};
use super::super::yaml::Node;
use super::{Reading, kind};

/// What a route says of the upstream that it leads to, and an upstream of ours says itself.
pub(super) struct Use<'d> {
    pub(super) retry: Option<&'d Node>,
    /// Whether the server's own name is its `Host`.
    pub(super) is_server_host: bool,
    pub(super) hash: &'d [Node],
}

impl<'d> Reading<'d> {
    /// The upstream of a cluster. `None` if there is none, or none of its servers is known; this is listed.
    pub(super) fn upstream(&mut self, name: &str, used: &'d Node, with: &Use<'d>) -> Option<String> {
        let resources = self.resources;
        // Only the name that fits counts as read, so that a cluster that no route leads to is listed whole.
        let is_name = |found: &str| (found == name).then_some(());
        let is_it = |cluster: &&Node| cluster.get("name").and_then(|found| found.parsed(is_name)).is_some();
        let Some(cluster) = resources.list("clusters").iter().find(is_it) else {
            let place = self.place(used);
            self.draft.notes.left_out(
                &place,
                &format!("cluster {name}"),
                "it is not in this file; its routes answer 503",
            );
            return None;
        };
        let mut upstream = Upstream::new(name);
        let context = self.tls_context(cluster);
        let servers = self.servers(cluster, context.is_some());
        if servers.is_empty() {
            let why = "none of its servers is in this file; its routes answer 503";
            self.left_out(cluster, &format!("cluster {name}"), why);
            return None;
        }
        let count = servers.len();
        upstream.key("servers", array(servers.into_iter()));
        self.balance(cluster, with, &mut upstream);
        if is_http2(cluster) {
            upstream.key("http", text("h2"));
        }
        if with.is_server_host {
            upstream.key("host", text("server"));
        }
        if let Some(context) = context {
            self.trust(context, &mut upstream);
        }
        let mut timeouts = Vec::new();
        timeouts.extend(
            cluster
                .get("connect_timeout")
                .and_then(|it| it.parsed(protobuf_time))
                .map(|it| ("connect", time(it))),
        );
        let each =
            with.retry.and_then(|retry| retry.get("per_try_timeout")).and_then(|it| it.parsed(protobuf_time));
        timeouts.extend(each.filter(|it| !it.is_zero()).map(|it| ("try", time(it))));
        if !timeouts.is_empty() {
            upstream.key("timeouts", table(timeouts));
        }
        self.bounds(cluster, &mut upstream);
        self.retry(with.retry, &mut upstream);
        self.health(cluster, &mut upstream);
        self.eject(cluster, count, &mut upstream);
        Some(self.draft.add_upstream(upstream))
    }

    /// The configuration of TLS to servers.
    fn tls_context(&mut self, cluster: &'d Node) -> Option<&'d Node> {
        let socket = cluster.get("transport_socket")?;
        socket.skip(&["name"]);
        let context = socket.get("typed_config")?;
        match kind(context) {
            "UpstreamTlsContext" => Some(context),
            "RawBuffer" => None,
            _ => {
                self.left_out(socket, "transport_socket", "only TLS can be migrated");
                None
            }
        }
    }

    fn balance(&mut self, cluster: &'d Node, with: &Use<'d>, upstream: &mut Upstream) {
        let name = cluster.word("lb_policy").unwrap_or("ROUND_ROBIN");
        cluster.skip(&["ring_hash_lb_config", "maglev_lb_config"]);
        let slow = ["round_robin_lb_config", "least_request_lb_config"];
        let slow = slow.iter().find_map(|key| cluster.at(&[key, "slow_start_config", "slow_start_window"]));
        let balance = match name {
            "ROUND_ROBIN" => "round-robin".to_owned(),
            // The same, because both take the less loaded one of two that are drawn.
            "LEAST_REQUEST" => "p2c".to_owned(),
            "RING_HASH" | "MAGLEV" => match with.hash.iter().find_map(hashed) {
                Some(dimension) => format!("hash:{dimension}"),
                None => {
                    self.differs(
                        cluster,
                        &format!("lb_policy: {name}"),
                        "no route says what to hash: the less loaded of two random servers is chosen",
                    );
                    "p2c".to_owned()
                }
            },
            other => {
                self.differs(
                    cluster,
                    &format!("lb_policy: {other}"),
                    "the less loaded of two random servers is chosen",
                );
                "p2c".to_owned()
            }
        };
        upstream.key("balance", text(&balance));
        if let Some(slow) = slow.and_then(|it| it.parsed(protobuf_time)).filter(|it| !it.is_zero()) {
            upstream.key("slow-start", time(slow));
        }
    }

    fn trust(&mut self, context: &'d Node, upstream: &mut Upstream) {
        let common = context.get("common_tls_context");
        let mut keys = Vec::new();
        let validation = common.and_then(|common| common.get("validation_context"));
        let ca =
            validation.and_then(|validation| validation.at(&["trusted_ca", "filename"])).and_then(Node::text);
        keys.extend(ca.map(|ca| ("ca", text(&file::absolute(self.directory, ca)))));
        if validation.is_none() {
            let why = "the server's certificate is verified here, with `tls.ca` or the system's authorities";
            self.differs(context, "UpstreamTlsContext", why);
        }
        if let Some(common) = common {
            common.skip(&["alpn_protocols"]);
            keys.extend(
                common.list("tls_certificates").iter().find_map(|pair| self.pair(pair)).into_iter().flatten(),
            );
        }
        keys.extend(context.word("sni").map(|sni| ("sni", text(sni))));
        if !keys.is_empty() {
            upstream.key("tls", table(keys));
        }
    }

    /// Bounds of connections: Envoy's are of a cluster, ours of each of its servers.
    fn bounds(&mut self, cluster: &'d Node, upstream: &mut Upstream) {
        let [threshold, ..] =
            cluster.at(&["circuit_breakers", "thresholds"]).map(Node::items).unwrap_or_default()
        else {
            return;
        };
        let mut keys = Vec::new();
        threshold.skip(&["priority"]);
        if let Some(most) = threshold.count("max_connections").filter(|most| *most > 0) {
            keys.push(("max", most.min(1_000_000).to_string()));
            self.differs(
                threshold,
                "max_connections",
                "here it bounds the connections to each server, not to all together",
            );
        }
        if let Some(most) = threshold.count("max_pending_requests") {
            keys.push(("waiting", most.min(1_000_000).to_string()));
            self.differs(
                threshold,
                "max_pending_requests",
                "here it bounds the waiting requests of each worker",
            );
        }
        if !keys.is_empty() {
            upstream.key("connections", table(keys));
        }
    }

    /// Without `retry_policy` Envoy tries once.
    fn retry(&mut self, retry: Option<&'d Node>, upstream: &mut Upstream) {
        let words: Vec<&str> =
            retry.and_then(|retry| retry.word("retry_on")).unwrap_or_default().split(',').collect();
        let mut on: Vec<String> = Vec::new();
        for word in words.into_iter().map(str::trim).filter(|word| !word.is_empty()) {
            let known: &[&str] = match word {
                "5xx" => &["connect", "reset-before-bytes", "timeout", "5xx"],
                "gateway-error" => &["connect", "reset-before-bytes", "timeout", "502", "503", "504"],
                "connect-failure" | "refused-stream" => &["connect"],
                "reset" | "reset-before-request" => &["reset-before-bytes", "timeout"],
                "retriable-status-codes" => &[],
                other => {
                    if let Some(retry) = retry {
                        let why = "only broken connections, timeouts and statuses are retried";
                        let place = self.place(retry);
                        self.draft.notes.left_out(&place, &format!("retry_on: {other}"), why);
                    }
                    &[]
                }
            };
            on.extend(
                known
                    .iter()
                    .filter(|known| !on.iter().any(|it| it == *known))
                    .map(|it| (*it).to_owned())
                    .collect::<Vec<_>>(),
            );
        }
        let statuses = retry.map(|retry| retry.list("retriable_status_codes")).unwrap_or_default();
        on.extend(statuses.iter().filter_map(Node::number).map(|status| status.to_string()));
        if let Some(more) = retry.and_then(|retry| retry.count("num_retries")).filter(|more| *more > 1)
            && let Some(retry) = retry
        {
            self.differs(retry, &format!("num_retries: {more}"), "a request is retried at most once");
        }
        let value = match on.is_empty() {
            true => table([("times", "0".to_owned())]),
            false => table([("on", array(on.iter().map(|word| text(word))))]),
        };
        upstream.key("retry", value);
    }
}

/// Whether HTTP/2 is spoken to a cluster.
fn is_http2(cluster: &Node) -> bool {
    let options = cluster.get("typed_extension_protocol_options").map(Node::entries).unwrap_or_default();
    let is_explicit = options.iter().any(|(_, options)| {
        options.skip(&["@type"]);
        options.get("explicit_http_config").is_some_and(|explicit| explicit.has("http2_protocol_options"))
    });
    cluster.has("http2_protocol_options") || is_explicit
}

/// The dimension of a `hash_policy`.
fn hashed(policy: &Node) -> Option<String> {
    if policy.at(&["connection_properties", "source_ip"]).and_then(Node::flag) == Some(true) {
        return Some("ip".to_owned());
    }
    let header = policy.at(&["header", "header_name"]).and_then(Node::text).filter(|name| is_field(name));
    let query = policy.at(&["query_parameter", "name"]).and_then(Node::text).filter(|name| is_field(name));
    let header = header.map(|name| format!("header:{}", name.to_ascii_lowercase()));
    // Not with a time to live, because Envoy makes the cookie then.
    let cookie = policy.at(&["cookie"]).filter(|cookie| cookie.at(&["ttl"]).is_none());
    let cookie = cookie.and_then(|cookie| cookie.word("name")).filter(|name| is_field(name));
    let cookie = cookie.map(|name| format!("cookie:{name}"));
    header.or(cookie).or_else(|| query.map(|name| format!("query:{name}")))
}
