//! Endpoints of a cluster, and what is known of their health.

use config::printer::{array, table, text, time};

use super::super::draft::Section as Upstream;
use super::super::values::protobuf_time;
use super::super::yaml::Node;
use super::Reading;

impl<'d> Reading<'d> {
    /// The endpoints of the first priority, as `servers` has them.
    pub(super) fn servers(&mut self, cluster: &'d Node, is_tls: bool) -> Vec<String> {
        let mut servers = Vec::new();
        cluster.get("load_assignment").into_iter().for_each(|it| it.skip(&["cluster_name"]));
        for locality in cluster.at(&["load_assignment", "endpoints"]).map(Node::items).unwrap_or_default() {
            locality.skip(&["locality"]);
            if locality.count("priority").unwrap_or(0) > 0 {
                self.left_out(
                    locality,
                    "endpoints of a lower priority",
                    "the gateway has no backup servers: all take requests",
                );
                continue;
            }
            for endpoint in locality.list("lb_endpoints") {
                match self.server(endpoint, is_tls) {
                    Some(server) => servers.push(server),
                    None => self.left_out(
                        endpoint,
                        "lb_endpoints",
                        "its address is not in this file, or its weight is 0",
                    ),
                }
            }
        }
        // Read as well, because before `load_assignment` there was a list of addresses.
        for host in cluster.list("hosts") {
            servers.extend(url(host, is_tls).map(|url| text(&url)));
        }
        servers
    }

    fn server(&mut self, endpoint: &'d Node, is_tls: bool) -> Option<String> {
        let inner = endpoint.get("endpoint")?;
        inner.skip(&["hostname"]);
        let url = text(&url(inner.get("address")?, is_tls)?);
        if !matches!(endpoint.word("health_status"), None | Some("UNKNOWN" | "HEALTHY")) {
            return None;
        }
        match endpoint.count("load_balancing_weight") {
            None | Some(1) => Some(url),
            Some(0) => None,
            Some(weight) => Some(table([("url", url), ("weight", weight.to_string())])),
        }
    }

    /// The first of `health_checks`.
    pub(super) fn health(&mut self, cluster: &'d Node, upstream: &mut Upstream) {
        let [check, others @ ..] = cluster.list("health_checks") else { return };
        others
            .iter()
            .for_each(|other| self.left_out(other, "health_checks", "an upstream has only one health check"));
        let mut keys = Vec::new();
        if let Some(http) = check.get("http_health_check") {
            keys.push(("path", text(http.word("path").unwrap_or("/"))));
            let statuses: Vec<String> = http.list("expected_statuses").iter().filter_map(statuses).collect();
            keys.push((
                "status",
                if statuses.is_empty() { text("200") } else { array(statuses.into_iter()) },
            ));
            if http.get("host").is_some() {
                self.differs(http, "http_health_check.host", "a health check uses the server's own name");
                http.skip(&["host"]);
            }
        } else if let Some(grpc) = check.get("grpc_health_check") {
            keys.push(("grpc", grpc.word("service_name").map_or("true".to_owned(), text)));
        } else if check.has("tcp_health_check") {
            keys.push(("tcp", "true".to_owned()));
        } else {
            return self.left_out(check, "health_checks", "it has no counterpart");
        }
        let time_of = |key: &str| check.get(key).and_then(|it| it.parsed(protobuf_time)).map(time);
        keys.extend(time_of("interval").map(|it| ("every", it)));
        keys.extend(time_of("timeout").map(|it| ("timeout", it)));
        keys.extend(check.count("unhealthy_threshold").map(|it| ("unhealthy-after", it.to_string())));
        keys.extend(check.count("healthy_threshold").map(|it| ("healthy-after", it.to_string())));
        upstream.key("health", table(keys));
    }

    /// `outlier_detection`. Envoy ejects at least one server, whatever the share is.
    pub(super) fn eject(&mut self, cluster: &'d Node, servers: usize, upstream: &mut Upstream) {
        let Some(outliers) = cluster.get("outlier_detection") else { return };
        let share = outliers.count("max_ejection_percent").unwrap_or(10).min(100);
        let one = 100_usize.div_ceil(servers.max(1)) as u64;
        let time_of = outliers.get("base_ejection_time").and_then(|it| it.parsed(protobuf_time));
        let mut keys = Vec::new();
        keys.push(("after", outliers.count("consecutive_5xx").unwrap_or(5).to_string()));
        keys.extend(time_of.map(|it| ("for", time(it))));
        keys.push(("most", text(&format!("{}%", share.max(one).min(100)))));
        outliers.skip(&["interval", "enforcing_consecutive_5xx"]);
        upstream.key("eject", table(keys));
        let panic =
            cluster.at(&["common_lb_config", "healthy_panic_threshold", "value"]).and_then(Node::number);
        if let Some(panic) = panic.filter(|panic| *panic <= 100) {
            upstream.key("panic", text(&format!("{panic}%")));
        }
    }
}

/// A range of statuses: its end does not belong to it.
fn statuses(range: &Node) -> Option<String> {
    let (start, end) = (range.count("start")?, range.count("end")?);
    let last = end.checked_sub(1).filter(|last| *last >= start)?;
    Some(text(&if last == start { start.to_string() } else { format!("{start}-{last}") }))
}

fn url(address: &Node, is_tls: bool) -> Option<String> {
    if let Some(path) = address.at(&["pipe", "path"]).and_then(Node::text) {
        return (!is_tls).then(|| format!("unix:{path}"));
    }
    let socket = address.get("socket_address")?;
    socket.skip(&["protocol"]);
    let (host, port) = (socket.word("address")?, socket.count("port_value")?);
    let host = if host.contains(':') { format!("[{host}]") } else { host.to_owned() };
    Some(format!("{}://{host}:{port}", if is_tls { "https" } else { "http" }))
}
