//! Listeners, their TLS, and what a connection manager says of connections.

use config::printer::{array, size, table, text, time};

use super::super::draft::{Section as Listener, texts, unique};
use super::super::file;
use super::super::other_ports;
use super::super::values::protobuf_time;
use super::super::yaml::Node;
use super::chains::{Chain, ChainMatch};
use super::ports::{Side, chains};
use super::{Reading, kind};

impl<'d> Reading<'d> {
    pub(super) fn listener(&mut self, node: &'d Node, side: Side) {
        let name = node.word("name").unwrap_or("listener");
        if side == Side::LeftOut {
            return self.left_out(node, &format!("listener {name}"), other_ports::UNKNOWN);
        }
        let chains: Vec<&'d Node> = chains(node).collect();
        let mut is_guarded = false;
        let found: Vec<Option<&'d Node>> =
            chains.iter().map(|chain| self.manager(chain, &mut is_guarded)).collect();
        let managers: Vec<&'d Node> = found.iter().copied().flatten().collect();
        let Some(first) = managers.first() else {
            return self.left_out(node, &format!("listener {name}"), "the gateway forwards only HTTP");
        };
        let Some(bind) = node.get("address").and_then(address) else {
            let why = "its address is not an IP address with a TCP port";
            return self.left_out(node, &format!("listener {name}"), why);
        };
        let taken: Vec<&str> = self.draft.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let mut listener = Listener::new(unique(name, "listener", &taken));
        listener.key("bind", text(&bind));
        is_guarded |= self.tls(&chains, &mut listener);
        self.connections(first, &mut listener);
        let asked = self.asked(node, &chains, &bind);
        self.listener_filters(node);
        is_guarded |= asked.is_none();
        let asked = asked.unwrap_or_else(|| vec![ChainMatch::default(); chains.len()]);
        // Only if all chains have one list, because a listener has one here.
        if let [first, others @ ..] = asked.as_slice()
            && !first.allow.is_empty()
            && others.iter().all(|other| other.allow == first.allow)
        {
            listener.key("allow", texts(&first.allow));
        }
        let redirect = if is_guarded { None } else { https_redirect(&managers) };
        if let Some(redirect) = redirect {
            managers.iter().for_each(|manager| manager.dismiss());
            listener.key("redirect", redirect);
        } else if side == Side::Twin {
            managers.iter().for_each(|manager| manager.dismiss());
        } else {
            if side == Side::Main && self.is_certified_alone(node) {
                let why = "another listener does not ask for a certificate, and all listeners serve all routes here: \
                    its routes are closed (501); run a separate gateway for it";
                let place = self.place(node);
                self.draft.notes.left_out(&place, "require_client_certificate", why);
                is_guarded = true;
            }
            let before =
                if side == Side::Apart { std::mem::take(&mut self.draft.routes) } else { Vec::new() };
            let is_tls = listener.value("certs").is_some();
            for (manager, asked) in found.into_iter().zip(asked) {
                if let Some(manager) = manager {
                    self.manager_routes(&Chain { manager, asked }, is_tls, is_guarded);
                }
            }
            if side == Side::Apart {
                let place = self.place(node);
                self.draft.close_apart(before, &place, &format!("listener {name}"));
            }
        }
        match listener.value("certs") {
            // Left out, because in the clear it would not be what it was.
            Some("[]") => {
                let why = "none of its certificates is in a file: write `certs`";
                let place = self.place(node);
                self.draft.notes.left_out(&place, &format!("listener {name}"), why);
            }
            _ => self.draft.listeners.push(listener),
        }
    }

    /// The connection manager of a chain of filters. Other filters may refuse connections.
    fn manager(&mut self, chain: &'d Node, is_guarded: &mut bool) -> Option<&'d Node> {
        let mut found = None;
        for filter in chain.list("filters") {
            let config = filter.get("typed_config");
            if let Some(config) = config.filter(|config| kind(config) == "HttpConnectionManager") {
                filter.skip(&["name"]);
                found = Some(config);
                continue;
            }
            let name = filter.word("name").unwrap_or_default();
            let is_bound = name.ends_with(".connection_limit") || name.ends_with(".local_ratelimit");
            let why = match is_bound {
                true => "write `max-connections` and `max-connections-per-ip` at the listener",
                false => {
                    "it may refuse connections; the listener's routes are closed (501) until you rewrite it"
                }
            };
            *is_guarded |= !is_bound;
            self.left_out(filter, &format!("filter {name}"), why);
        }
        found
    }

    /// Certificates of all chains, by which the name that a client asks for chooses. Returns whether clients had to show
    /// a certificate that is not asked for here.
    fn tls(&mut self, chains: &[&'d Node], listener: &mut Listener) -> bool {
        let (mut pairs, mut contexts) = (Vec::new(), Vec::new());
        for chain in chains {
            // Not needed, because a certificate is chosen by its own names here.
            chain.skip(&["name"]);
            let Some(socket) = chain.get("transport_socket") else { continue };
            socket.skip(&["name"]);
            let Some(context) = socket.get("typed_config") else { continue };
            let common = context.get("common_tls_context");
            let Some(common) = common.filter(|_| kind(context) == "DownstreamTlsContext") else {
                self.left_out(socket, "transport_socket", "only TLS can be migrated");
                continue;
            };
            for certificate in common.list("tls_certificates") {
                match self.pair(certificate) {
                    Some(pair) => pairs.push(table(pair)),
                    None => {
                        let why = "write it to files: `certs` names files";
                        self.left_out(certificate, "tls_certificates", why);
                    }
                }
            }
            contexts.push((context, common, context.is("require_client_certificate")));
        }
        // The strictest, because what one of the chains demands holds for the whole listener.
        let strictest = contexts.iter().find(|(_, _, is_required)| *is_required).or_else(|| contexts.first());
        let Some((context, common, is_required)) = strictest else { return false };
        let alpn = common.words("alpn_protocols");
        let versions =
            ["h2", "http/1.1"].into_iter().filter(|version| alpn.is_empty() || alpn.contains(version));
        listener.key("http", array(versions.map(text)));
        listener.key("certs", array(pairs.into_iter()));
        self.versions(common, listener);
        match common.at(&["validation_context", "trusted_ca", "filename"]).and_then(Node::text) {
            Some(ca) => {
                listener.key("client-ca", text(&file::absolute(self.directory, ca)));
                listener.key("client-cert", text(if *is_required { "require" } else { "ask" }));
                false
            }
            None if *is_required => {
                let place = self.place(context);
                let why = "the authorities of clients are not in a file: write `client-ca`; the listener's routes are closed (501)";
                self.draft.notes.left_out(&place, "require_client_certificate", why);
                true
            }
            None => false,
        }
    }

    /// Files of a certificate and its key.
    pub(super) fn pair(&self, certificate: &'d Node) -> Option<[(&'static str, String); 2]> {
        let path = |key: &str| certificate.at(&[key, "filename"]).and_then(Node::text);
        let (cert, key) = (path("certificate_chain")?, path("private_key")?);
        let path = |path: &str| text(&file::absolute(self.directory, path));
        Some([("cert", path(cert)), ("key", path(key))])
    }

    fn versions(&mut self, common: &'d Node, listener: &mut Listener) {
        let Some(params) = common.get("tls_params") else { return };
        match params.word("tls_minimum_protocol_version") {
            Some("TLSv1_3") => listener.key("min-version", text("1.3")),
            Some("TLSv1_0" | "TLSv1_1") => {
                self.differs(params, "tls_minimum_protocol_version", "TLS older than 1.2 is not supported");
            }
            _ => {}
        }
    }

    /// Bounds of connections and heads.
    fn connections(&mut self, manager: &'d Node, listener: &mut Listener) {
        let time_of = |keys: &[&str]| manager.at(keys).and_then(|node| node.parsed(protobuf_time));
        let mut timeouts = Vec::new();
        let header = time_of(&["request_headers_timeout"]).filter(|time| !time.is_zero());
        timeouts.extend(header.map(|it| ("header", time(it))));
        let idle = time_of(&["common_http_protocol_options", "idle_timeout"]).filter(|time| !time.is_zero());
        timeouts.extend(idle.map(|it| ("idle", time(it))));
        if !timeouts.is_empty() {
            listener.key("timeouts", table(timeouts));
        }
        let mut max = Vec::new();
        max.extend(
            manager.count("max_request_headers_kb").map(|kib| ("header-bytes", size(kib.min(1 << 20) << 10))),
        );
        let headers =
            manager.at(&["common_http_protocol_options", "max_headers_count"]).and_then(Node::number);
        max.extend(headers.map(|count| ("headers", count.to_string())));
        let streams =
            manager.at(&["http2_protocol_options", "max_concurrent_streams"]).and_then(Node::number);
        max.extend(streams.map(|count| ("streams", count.to_string())));
        if !max.is_empty() {
            listener.key("max", table(max));
        }
        let hops = manager.count("xff_num_trusted_hops").unwrap_or(0);
        if hops > 0 || manager.get("use_remote_address").and_then(Node::flag) == Some(false) {
            let why = "list the hops in `client-ip.trust`: they are known by address here, not by number";
            self.differs(manager, "use_remote_address, xff_num_trusted_hops", why);
        }
    }

    fn listener_filters(&mut self, node: &'d Node) {
        for filter in node.list("listener_filters") {
            let name = filter.word("name").unwrap_or_default();
            match name.rsplit('.').next().unwrap_or_default() {
                "tls_inspector" | "http_inspector" => filter.dismiss(),
                "proxy_protocol" => {
                    let why = "write `proxy-protocol = { from = [...] }` at the listener: only listed proxies are \
                        trusted";
                    self.left_out(filter, name, why);
                }
                _ => self.left_out(filter, name, "it has no counterpart"),
            }
        }
    }
}

/// `redirect` of a listener that does nothing but send its clients to https.
pub(super) fn https_redirect(managers: &[&Node]) -> Option<String> {
    let [manager] = managers else { return None };
    let [host] = manager.at(&["route_config", "virtual_hosts"])?.items() else { return None };
    let [route] = host.list("routes") else { return None };
    let redirect = route.get("redirect").filter(|redirect| redirect.is("https_redirect"))?;
    let others = ["host_redirect", "path_redirect", "prefix_rewrite", "port_redirect", "strip_query"];
    let is_all = route.at(&["match", "prefix"]).and_then(Node::text) == Some("/");
    if !is_all || host.words("domains") != ["*"] || others.iter().any(|key| redirect.get(key).is_some()) {
        return None;
    }
    let status = super::actions::redirect_status(redirect)?;
    Some(table([("to", text("https")), ("status", status.to_string())]))
}

/// Address and port, or the path of a Unix socket, as `bind` has them.
pub(super) fn address(node: &Node) -> Option<String> {
    if let Some(path) = node.at(&["pipe", "path"]).and_then(Node::text) {
        return Some(format!("unix:{path}"));
    }
    let socket = node.get("socket_address")?;
    if socket.word("protocol").is_some_and(|protocol| protocol != "TCP") {
        return None;
    }
    let address: std::net::IpAddr = socket.word("address")?.parse().ok()?;
    let port = u16::try_from(socket.count("port_value")?).ok()?;
    Some(std::net::SocketAddr::new(address, port).to_string())
}
