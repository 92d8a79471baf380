//! `listen`, certificates, and ports that only send clients to https.

use std::collections::{BTreeMap, BTreeSet};

use config::printer::{array, table, text, time as show_time};

use super::super::draft::{Section, texts, unique};
use super::super::file;
use super::Reading;
use super::lexer::Directive;
use super::real_ip::RealIp;
use super::scope::Scope;
use super::server::{Listen, Server};
use super::values::{network, time};

/// Listeners that send every request to https, by address: where to, and with which status.
pub(super) type Redirecting = BTreeMap<String, (String, String)>;

impl<'d> Reading<'d> {
    /// The addresses of a server; those that have no counterpart are listed.
    pub(super) fn listens(&mut self, block: &'d Directive) -> Vec<Listen> {
        let own = Scope::new(block.block());
        let mut listens = Vec::new();
        for listen in own.all("listen") {
            let has = |word: &str| listen.taken().args.iter().any(|arg| arg == word);
            if has("quic") {
                let why = "HTTP/3 is not supported; listeners speak HTTP/1.1 and HTTP/2";
                self.draft.notes.left_out_line(listen, why);
                continue;
            }
            let Some(address) = address(listen.arg(0)) else {
                self.draft.notes.left_out_line(listen, "its address is not an IP address");
                continue;
            };
            listens.push(Listen {
                address,
                tls: has("ssl"),
                http2: has("http2") || own.is_on("http2"),
                is_default: has("default_server") || has("default"),
                proxy_protocol: has("proxy_protocol"),
            });
        }
        if own.all("listen").is_empty() {
            let address = "0.0.0.0:80".to_owned();
            listens.push(Listen {
                address,
                tls: false,
                http2: false,
                is_default: false,
                proxy_protocol: false,
            });
        }
        listens
    }

    /// Addresses on which every server only sends its clients to https.
    pub(super) fn redirecting(&mut self, servers: &[Server<'d>], scope: &Scope<'d>) -> Redirecting {
        let mut found = Redirecting::new();
        let addresses: BTreeSet<String> =
            servers.iter().flat_map(|server| &server.listens).map(|listen| listen.address.clone()).collect();
        for address in addresses {
            let there: Vec<&Server<'_>> = servers
                .iter()
                .filter(|server| server.listens.iter().any(|it| it.address == address))
                .collect();
            let is_clear =
                |server: &Server<'_>| !server.listens.iter().any(|it| it.address == address && it.tls);
            let has_tls = |server: &Server<'_>| server.listens.iter().any(|it| it.tls);
            let mut to = there.iter().map(|server| {
                let of_clear = scheme_redirect(server).filter(|_| is_clear(server)).map(|(_, to)| to);
                of_clear.or_else(|| https_redirect(server, scope).filter(|_| !has_tls(server)))
            });
            let Some(Some(first)) = to.next() else { continue };
            if to.all(|other| other.as_ref() == Some(&first)) {
                for server in there {
                    match scheme_redirect(server) {
                        Some((condition, _)) => condition.taken_whole(),
                        None => self.redirected(server),
                    }
                }
                found.insert(address, first);
            }
        }
        found
    }

    /// Lists what a server does beside sending its clients to https.
    fn redirected(&mut self, server: &Server<'d>) {
        server.block.taken_whole();
        for location in Scope::new(server.block.block()).own("location") {
            if location.args != ["/"] {
                let why = "its listener redirects every request to https; to order certificates write `certs = { \
                    acme = … }`";
                self.draft.notes.left_out_line(location, why);
            }
        }
    }

    pub(super) fn listeners(&mut self, servers: &[Server<'d>], redirecting: &Redirecting, scope: &Scope<'d>) {
        let all = servers.iter().flat_map(|server| server.listens.iter().map(move |listen| (listen, server)));
        let mut by_address: BTreeMap<&str, Vec<(&Listen, &Server<'d>)>> = BTreeMap::new();
        for (listen, server) in all {
            by_address.entry(&listen.address).or_default().push((listen, server));
        }
        let addresses: Vec<String> = by_address.keys().map(|address| (*address).to_owned()).collect();
        for address in &addresses {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            // The two are one listener, because `[::]` takes IPv4, too.
            let (only_v4, both) = (format!("0.0.0.0:{port}"), format!("[::]:{port}"));
            if *address == only_v4 && addresses.contains(&both) {
                continue;
            }
            let mut there = by_address.get(address.as_str()).cloned().unwrap_or_default();
            match by_address.get(only_v4.as_str()).filter(|_| *address == both) {
                Some(v4) => there.splice(0..0, v4.iter().copied()).for_each(drop),
                None if *address == both => {
                    let place = &there[0].1.block.place;
                    self.draft.notes.differs(place, &format!("listen {address}"), "it accepts IPv4, too");
                }
                None => {}
            }
            let is_redirecting =
                addresses.iter().filter(|it| **it == only_v4 || **it == both || *it == address);
            let redirect = match is_redirecting.clone().all(|it| redirecting.contains_key(it)) {
                true => redirecting.get(address.as_str()),
                false => None,
            };
            self.listener(address, &there, redirect, scope);
        }
    }

    fn listener(
        &mut self,
        address: &str,
        there: &[(&Listen, &Server<'d>)],
        redirect: Option<&(String, String)>,
        scope: &Scope<'d>,
    ) {
        let is_tls = there.iter().any(|(listen, _)| listen.tls);
        let port = address.rsplit_once(':').map_or("", |(_, port)| port);
        let wanted = match (is_tls, port) {
            (true, "443") => "https".to_owned(),
            (false, "80") => "http".to_owned(),
            _ if address.starts_with("unix:") => "unix".to_owned(),
            _ => format!("port-{port}"),
        };
        let taken: Vec<&str> = self.draft.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let mut listener = Section::new(unique(&wanted, "listener", &taken));
        listener.key("bind", text(address));
        if address.starts_with("unix:") {
            // For everybody, because nginx lets everybody of this host connect.
            listener.key("mode", text("0666"));
        }
        let http2 = there.iter().any(|(listen, _)| listen.http2);
        listener.key(
            "http",
            if http2 { array(["h2", "http/1.1"].map(text).into_iter()) } else { text("http/1.1") },
        );
        if is_tls {
            self.certificates(&mut listener, there, scope);
        }
        if let Some((to, status)) = redirect {
            listener.key("redirect", table([("to", text(to)), ("status", status.clone())]));
        }
        if there.iter().any(|(listen, _)| listen.proxy_protocol) {
            self.proxy_protocol(&mut listener, there, scope);
        }
        let words = [
            ("header", "client_header_timeout"),
            ("idle", "keepalive_timeout"),
            ("body-stall", "client_body_timeout"),
        ];
        let inner = there.first().map(|(_, server)| scope.within(server.block.block()));
        let value = |word: &str| inner.as_ref().and_then(|scope| scope.word(word)).and_then(time);
        let timeouts: Vec<_> =
            words.iter().filter_map(|(key, word)| value(word).map(|time| (*key, show_time(time)))).collect();
        if !timeouts.is_empty() {
            listener.key("timeouts", table(timeouts));
        }
        self.draft.listeners.push(listener);
    }

    /// The pairs of all servers of a listener, the default server's first.
    fn certificates(&mut self, listener: &mut Section, there: &[(&Listen, &Server<'d>)], scope: &Scope<'d>) {
        let mut servers: Vec<_> = there.to_vec();
        servers.sort_by_key(|(listen, _)| !listen.is_default);
        let mut pairs: Vec<String> = Vec::new();
        for (_, server) in servers {
            let inner = scope.within(server.block.block());
            let (certs, keys) = (inner.all("ssl_certificate"), inner.all("ssl_certificate_key"));
            for (cert, private) in certs.iter().zip(keys) {
                let path = |found: &Directive| text(&file::absolute(self.directory, found.taken().arg(0)));
                let pair = table([("cert", path(cert)), ("key", path(private))]);
                if !pairs.contains(&pair) {
                    pairs.push(pair);
                }
            }
            for protocols in inner.all("ssl_protocols") {
                let mut words = protocols.taken().args.clone();
                words.sort();
                if words == ["TLSv1.3"] {
                    if listener.value("min-version").is_none() {
                        listener.key("min-version", text("1.3"));
                    }
                } else if words != ["TLSv1.2", "TLSv1.3"] {
                    let why = "TLS 1.2 and 1.3 are supported, nothing older; write `min-version = \"1.3\"` for 1.3 \
                        alone";
                    self.draft.notes.line_differs(protocols, why);
                }
            }
            self.client_certificates(listener, server, &inner, there.len() == 1);
        }
        listener.key("certs", array(pairs.into_iter()));
    }

    /// `ssl_verify_client`, which belongs to a listener here and to a server in nginx.
    fn client_certificates(
        &mut self,
        listener: &mut Section,
        server: &Server<'d>,
        inner: &Scope<'d>,
        is_alone: bool,
    ) {
        let Some(verify) = inner.last("ssl_verify_client").filter(|verify| verify.taken().arg(0) != "off")
        else {
            return;
        };
        if !is_alone {
            let why = "all servers of this address ask for certificates here, and verify them with the first \
                server's authorities";
            self.draft.notes.line_differs(verify, why);
        }
        let demand = match verify.arg(0) {
            "on" => "require",
            "optional" => "ask",
            _ => {
                let why = "certificates of unknown authorities are refused";
                self.draft.notes.line_differs(verify, why);
                "ask"
            }
        };
        let path = |word: &str| inner.word(word).map(|path| text(&file::absolute(self.directory, path)));
        let (ca, crl) = (path("ssl_client_certificate"), path("ssl_crl"));
        if let Some(known) = listener.value("client-ca") {
            let is_asked = listener.value("client-cert") == Some(text("require").as_str());
            let is_same = ca.as_deref() == Some(known) && crl.as_deref() == listener.value("client-crl");
            if demand == "require" && !(is_asked && is_same) {
                let why = "the first server of this address asks for other certificates or none; this server is \
                    closed (501)";
                self.draft.notes.left_out_line(verify, why);
                self.uncertified.push(server.block);
            }
        } else if let Some(ca) = ca {
            listener.key("client-ca", ca);
            listener.key("client-cert", text(demand));
            crl.into_iter().for_each(|crl| listener.key("client-crl", crl));
        }
    }

    /// Whose headers of the PROXY protocol are believed: nginx reads everybody's.
    fn proxy_protocol(
        &mut self,
        listener: &mut Section,
        there: &[(&Listen, &Server<'d>)],
        scope: &Scope<'d>,
    ) {
        let inner = there.first().map(|(_, server)| scope.within(server.block.block()));
        let Some(inner) = inner else { return };
        let from: Vec<String> =
            inner.all("set_real_ip_from").iter().map(|from| network(from.taken().arg(0))).collect();
        if !from.is_empty() && inner.word("real_ip_header") == Some("proxy_protocol") {
            listener.key("proxy-protocol", table([("from", texts(&from))]));
        } else if let Some((_, server)) = there.first() {
            let why =
                "write `proxy-protocol = { from = [...] }` at the listener: only listed proxies are trusted";
            self.draft.notes.left_out(&server.block.place, "listen … proxy_protocol", why);
        }
    }

    /// The hops that all servers believe, as `client-ip.trust`. What servers have in common may stand in each of them.
    pub(super) fn trust(&mut self, scope: &Scope<'d>) {
        let is_serving = |server: &&Directive| {
            let whole = server.whole();
            server.name == "server"
                && ["_pass [", "allow [", "deny ["].iter().any(|word| whole.contains(word))
        };
        let servers: Vec<Scope<'d>> =
            self.http.iter().filter(is_serving).map(|server| scope.within(server.block())).collect();
        let is_common =
            |first: &&Scope<'d>| servers.iter().all(|other| RealIp::of(other) == RealIp::of(first));
        let common = servers.first().filter(is_common).unwrap_or(scope);
        let real_ip = RealIp::of(common);
        let hops = common.all("set_real_ip_from");
        let Some(first) = hops.first() else { return };
        let same = servers.iter().chain([scope]).filter(|other| RealIp::of(other) == real_ip);
        let mut is_recursive = true;
        for other in same {
            is_recursive &= other.is_on("real_ip_recursive");
            other.last("real_ip_header").into_iter().for_each(|header| header.taken_whole());
            if real_ip.is_trust() {
                other.all("set_real_ip_from").iter().for_each(|hop| hop.taken_whole());
            }
        }
        if real_ip.is_trust() {
            self.draft.trust.clone_from(&real_ip.from);
            if !is_recursive {
                let why = "trusted addresses are skipped from the right, as with `real_ip_recursive on`";
                self.draft.notes.line_differs(*first, why);
            }
        } else if real_ip.header != "proxy_protocol" {
            let why =
                "a client's address is read only from X-Forwarded-For or Forwarded (`client-ip.header`)";
            self.draft.notes.left_out_line(*first, why);
            hops.iter().for_each(|hop| hop.taken_whole());
        }
    }

    /// Where the gateway has the addresses of a server's clients from, if that is the same for all of them.
    pub(super) fn real_ip_of(&self, server: &Server<'d>, scope: &Scope<'d>) -> Option<RealIp> {
        let own = RealIp::of(scope);
        let announced = |address: &str| {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            let binds = [text(address), text(&format!("[::]:{port}"))];
            let is_it = |bind: Option<&str>| bind.is_some_and(|bind| binds.iter().any(|known| known == bind));
            let mut listeners = self.draft.listeners.iter().filter(|it| is_it(it.value("bind")));
            listeners.find_map(|listener| listener.value("proxy-protocol"))
        };
        let mut listens = server.listens.iter();
        if own.header == "proxy_protocol" {
            let wanted = table([("from", texts(&own.from))]);
            let is_said = listens
                .filter(|listen| listen.proxy_protocol)
                .all(|listen| announced(&listen.address) == Some(wanted.as_str()));
            return (is_said && self.draft.trust.is_empty()).then_some(own);
        }
        if listens.any(|listen| announced(&listen.address).is_some()) {
            return None;
        }
        Some(match self.draft.trust.as_slice() {
            [] => RealIp::default(),
            trust => RealIp { from: trust.to_vec(), header: "x-forwarded-for".to_owned() },
        })
    }
}

/// Address and port; without a port it is 80, without an address any.
fn address(text: &str) -> Option<String> {
    if text.starts_with("unix:/") {
        return Some(text.to_owned());
    }
    if text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(format!("0.0.0.0:{text}"));
    }
    let text = text.replace("*:", "0.0.0.0:").replace("localhost", "127.0.0.1");
    if let Ok(address) = text.parse::<std::net::SocketAddr>() {
        return Some(address.to_string());
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>().ok()?;
    Some(std::net::SocketAddr::new(bare, 80).to_string())
}

/// Where a server sends every request, if that is all it does and it is https.
fn https_redirect<'d>(server: &Server<'d>, scope: &Scope<'d>) -> Option<(String, String)> {
    let inner = scope.within(server.block.block());
    let locations = inner.own("location");
    let returned = match (inner.own("return").as_slice(), locations.as_slice()) {
        ([found], []) => *found,
        // Beside it stands what certificates are asked for by; it is sent to https too, where its own rules hold.
        ([], locations) => {
            let whole = locations.iter().find(|location| location.args == ["/"])?;
            whole
                .block()
                .iter()
                .find(|inside| inside.name == "return")
                .filter(|_| whole.block().len() == 1)?
        }
        _ => return None,
    };
    // What certbot writes: a condition for each name, and 404 for others.
    let conditions = inner.own("if");
    let of_condition = |condition: &'d Directive| -> Option<&'d Directive> {
        let is_host =
            condition.args.first().is_some_and(|first| first == "($host") && condition.arg(1) == "=";
        condition.block().iter().find(|inside| inside.name == "return").filter(|_| is_host)
    };
    let returns: Vec<&Directive> = match conditions.is_empty() {
        true => vec![returned],
        false if returned.arg(0) == "404" => {
            conditions.iter().map(|condition| of_condition(condition)).collect::<Option<_>>()?
        }
        false => return None,
    };
    let mut targets = returns.iter().map(|found| (found.arg(0), found.arg(1)));
    let first = targets.next()?;
    if targets.all(|other| other == first) { to_https(first.0, first.1, &server.name) } else { None }
}

/// `if ($scheme = http) { return 301 https://…; }` of a server: what came in the clear is sent to https.
fn scheme_redirect<'d>(server: &Server<'d>) -> Option<(&'d Directive, (String, String))> {
    let conditions = Scope::new(server.block.block()).own("if");
    let is_clear = |condition: &&&Directive| {
        let words: String = condition.args.concat();
        matches!(words.as_str(), "($scheme=http)" | "($scheme!=https)" | "($https=)" | "($server_port=80)")
    };
    let condition = *conditions.iter().find(is_clear)?;
    match condition.block() {
        [found] if found.name == "return" => {
            Some((condition, to_https(found.arg(0), found.arg(1), &server.name)?))
        }
        _ => None,
    }
}

/// Where a `return` to https leads, as `redirect` of a listener has it, and its status.
fn to_https(status: &str, to: &str, name: &str) -> Option<(String, String)> {
    if !matches!(status, "301" | "302" | "307" | "308") {
        return None;
    }
    let host = to.strip_prefix("https://")?.strip_suffix("$request_uri")?;
    let to = match host {
        "$host" | "$http_host" => "https".to_owned(),
        "$server_name" if !name.is_empty() => format!("https://{name}{{path}}"),
        host if !host.contains(['$', '/']) => format!("https://{host}{{path}}"),
        _ => return None,
    };
    Some((to, status.to_owned()))
}
