//! Listeners, their TLS, and what a connection manager says of connections.

use crate::config::printer::{array, size, table, text, time};

use super::super::draft::{Section as Listener, unique};
use super::super::file;
use super::super::values::protobuf_time;
use super::super::yaml::Node;
use super::{Reading, kind};

impl<'d> Reading<'d> {
    pub(super) fn listener(&mut self, node: &'d Node) {
        let name = node.word("name").unwrap_or("listener");
        let chains: Vec<&'d Node> =
            node.list("filter_chains").iter().chain(node.get("default_filter_chain")).collect();
        let managers: Vec<(&'d Node, &'d Node)> =
            chains.iter().filter_map(|chain| Some((*chain, self.manager(chain)?))).collect();
        let Some((_, first)) = managers.first() else {
            return self.left_out(node, &format!("listener {name}"), "only HTTP is forwarded here");
        };
        let Some(bind) = node.get("address").and_then(address) else {
            return self.left_out(
                node,
                &format!("listener {name}"),
                "its address is no number with a TCP port",
            );
        };
        let taken: Vec<&str> = self.draft.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let mut listener = Listener::new(unique(name, "listener", &taken));
        listener.key("bind", text(&bind));
        self.tls(&chains, &mut listener);
        self.connections(first, &mut listener);
        self.listener_filters(node);
        if let Some(redirect) = self.https_redirect(&managers) {
            listener.key("redirect", redirect);
        } else {
            let is_tls = listener.value("certs").is_some();
            for (_, manager) in managers {
                self.manager_routes(manager, is_tls);
            }
        }
        self.draft.listeners.push(listener);
    }

    /// The connection manager of a chain of filters.
    fn manager(&mut self, chain: &'d Node) -> Option<&'d Node> {
        let mut found = None;
        for filter in chain.list("filters") {
            let config = filter.get("typed_config").filter(|config| kind(config) == "HttpConnectionManager");
            match config {
                Some(config) => {
                    filter.skip(&["name"]);
                    found = Some(config);
                }
                None => {
                    let what = format!("filter {}", filter.word("name").unwrap_or_default());
                    self.left_out(filter, &what, "only the HTTP connection manager is read");
                }
            }
        }
        found
    }

    /// Certificates of all chains, by which the name that a client asks for chooses.
    fn tls(&mut self, chains: &[&'d Node], listener: &mut Listener) {
        let (mut pairs, mut first) = (Vec::new(), None);
        for chain in chains {
            // A certificate is chosen by its own names here.
            chain.skip(&["filter_chain_match", "name"]);
            let Some(context) = chain.at(&["transport_socket", "typed_config"]) else { continue };
            chain.at(&["transport_socket"]).into_iter().for_each(|socket| socket.skip(&["name"]));
            if kind(context) != "DownstreamTlsContext" {
                self.left_out(context, "transport_socket", "only TLS is known");
                continue;
            }
            let Some(common) = context.get("common_tls_context") else { continue };
            for certificate in common.list("tls_certificates") {
                match self.pair(certificate) {
                    Some(pair) => pairs.push(table(pair)),
                    None => self.left_out(
                        certificate,
                        "tls_certificates",
                        "write it into files: `certs` names files",
                    ),
                }
            }
            first = first.or(Some((context, common)));
        }
        if let Some((context, common)) = first {
            let alpn = common.words("alpn_protocols");
            let versions =
                ["h2", "http/1.1"].into_iter().filter(|version| alpn.is_empty() || alpn.contains(version));
            listener.key("http", array(versions.map(text)));
            listener.key("certs", array(pairs.into_iter()));
            self.versions(common, listener);
            let ca = common.at(&["validation_context", "trusted_ca", "filename"]).and_then(Node::text);
            if let Some(ca) = ca {
                listener.key("client-ca", text(&file::absolute(self.directory, ca)));
                let demand = if context.is("require_client_certificate") { "require" } else { "ask" };
                listener.key("client-cert", text(demand));
            }
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
                self.differs(params, "tls_minimum_protocol_version", "TLS before 1.2 is not spoken");
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
            let why = "name the hops in `client-ip.trust`: they are known by address here, not counted";
            self.differs(manager, "use_remote_address, xff_num_trusted_hops", why);
        }
    }

    fn listener_filters(&mut self, node: &'d Node) {
        for filter in node.list("listener_filters") {
            let name = filter.word("name").unwrap_or_default();
            match name.rsplit('.').next().unwrap_or_default() {
                "tls_inspector" | "http_inspector" => filter.dismiss(),
                "proxy_protocol" => {
                    let why = "write `proxy-protocol = { from = [...] }` at the listener: only named proxies are believed";
                    self.left_out(filter, name, why);
                }
                _ => self.left_out(filter, name, "there is no counterpart"),
            }
        }
    }

    /// `redirect` of a listener that does nothing but send its clients to https.
    fn https_redirect(&self, managers: &[(&'d Node, &'d Node)]) -> Option<String> {
        let [(_, manager)] = managers else { return None };
        let [host] = manager.at(&["route_config", "virtual_hosts"])?.items() else { return None };
        let [route] = host.list("routes") else { return None };
        let redirect = route.get("redirect").filter(|redirect| redirect.is("https_redirect"))?;
        let others = ["host_redirect", "path_redirect", "prefix_rewrite", "port_redirect", "strip_query"];
        let is_all = route.at(&["match", "prefix"]).and_then(Node::text) == Some("/");
        if !is_all || host.words("domains") != ["*"] || others.iter().any(|key| redirect.get(key).is_some()) {
            return None;
        }
        let status = super::actions::redirect_status(redirect)?;
        manager.dismiss();
        Some(table([("to", text("https")), ("status", status.to_string())]))
    }
}

/// Address and port, or the path of a Unix socket, as `bind` has them.
fn address(node: &Node) -> Option<String> {
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
