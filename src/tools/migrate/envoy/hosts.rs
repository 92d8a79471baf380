//! Virtual hosts and their routes, the first of which that fits decides.

use super::super::draft::{Route, texts};
use super::super::order;
use super::super::yaml::Node;
use super::Reading;
use super::chains::Chain;
use super::fields;
use super::filters::{Filters, enabled};
use super::matches::{BEYOND, EnvoyMatch, is_any_case};

pub(super) struct RouteScope<'a, 'd> {
    pub(super) table: &'d Node,
    pub(super) host: &'d Node,
    pub(super) filters: &'a Filters<'d>,
    pub(super) is_tls: bool,
}

impl<'d> Reading<'d> {
    /// The routes of a connection manager.
    pub(super) fn manager_routes(&mut self, chain: &Chain<'d>, is_tls: bool, is_guarded: bool) {
        let manager = chain.manager;
        let mut filters = self.filters(manager);
        filters.is_guarded |= is_guarded;
        filters.allow.clone_from(&chain.asked.allow);
        let Some(table) = manager.get("route_config") else {
            let why = "its routes come from a control plane, which is not read: write them";
            return self.left_out(manager, "http_connection_manager", why);
        };
        table.skip(&["name"]);
        let hosts = table.list("virtual_hosts");
        let mut names: Vec<Vec<String>> = hosts.iter().map(|host| self.domains(host)).collect();
        // A host for all names gets those of its chain, because the rest has other chains.
        names.iter_mut().filter(|names| names.is_empty()).for_each(|it| it.clone_from(&chain.asked.names));
        let has_others = !chain.asked.names.is_empty() || names.iter().any(Vec::is_empty);
        let mut unnamed: Vec<(&'d Node, &'d str)> = Vec::new();
        for (host, names) in hosts.iter().zip(names) {
            let around = RouteScope { table, host, filters: &filters, is_tls };
            let keeps_out = |route: &'d Node| refuses(route) || enabled(route, &around).is_some();
            if host.list("routes").iter().any(keeps_out) || asks_for_tls(host) {
                let domains = host.list("domains").iter().filter_map(Node::text);
                unnamed.extend(domains.filter(|name| bare(name).is_none()).map(|name| (host, name)));
            }
            let Some(names) = Some(names).filter(|names| !names.contains(&NOBODY.to_owned())) else {
                continue;
            };
            host.skip(&["name"]);
            let mut rules = Vec::new();
            for route in host.list("routes") {
                self.route(route, &names, &around, &mut rules);
            }
            if asks_for_tls(host) {
                let why = "write `redirect = \"https\"` at a listener without TLS";
                self.differs(host, "require_tls", why);
            }
            // Closed at its end, because what a host has no route for is not for the routes of all hosts.
            let is_closed =
                |route: &Route| route.path == ANY && route.methods.is_empty() && route.headers.is_empty();
            if has_others && !names.is_empty() && !rules.iter().any(|(route, _)| is_closed(route)) {
                let mut rest =
                    Route { place: self.place(host), hosts: names, path: ANY.to_owned(), ..Route::default() };
                rest.respond(404);
                rules.push((rest, "the rest of a virtual host".to_owned()));
            }
            order::add_in_order(self.draft, rules);
        }
        for (host, domain) in unnamed {
            self.close_unnamed(host, domain);
        }
    }

    /// The hosts of `domains`; none for all. If there is one that no route can name, `NOBODY` is among them.
    fn domains(&mut self, host: &'d Node) -> Vec<String> {
        let mut names = Vec::new();
        for domain in host.list("domains") {
            let name = domain.text().unwrap_or_default();
            if name == "*" {
                return Vec::new();
            }
            match bare(name) {
                Some(bare) if !names.contains(&bare) => names.push(bare),
                Some(_) => {}
                None => {
                    let why = "a host must be a name, or `*.` and a name; its requests go to other hosts, and are \
                        closed (501) there if this one refuses some";
                    self.left_out(domain, &format!("domains: {name}"), why);
                }
            }
        }
        if names.is_empty() { vec![NOBODY.to_owned()] } else { names }
    }

    /// The routes of a route, one for each way in which its condition can hold.
    fn route(
        &mut self,
        node: &'d Node,
        hosts: &[String],
        around: &RouteScope<'_, 'd>,
        rules: &mut Vec<(Route, String)>,
    ) {
        let what = shown(node);
        let enabled = enabled(node, around);
        let Some(which) = node.get("match").and_then(|matched| self.matched(matched)) else {
            return self.unsaid(node, &what, hosts, refuses(node) || enabled.is_some(), rules);
        };
        let mut route = Route {
            place: self.place(node),
            name: node.word("name").unwrap_or_default().to_owned(),
            hosts: hosts.to_vec(),
            ..Route::default()
        };
        let EnvoyMatch { path, prefix, methods, headers, is_any_case: any_case } = which;
        (route.path, route.methods, route.headers) = (path, methods, headers);
        if around.filters.is_guarded {
            route.close();
            node.dismiss();
        } else if any_case && (refuses(node) || enabled.is_some()) {
            let why =
                "paths are case-sensitive here, and it refuses requests: all paths below it are closed (501)";
            self.left_out(node, &what, why);
            route.path = ANY.to_owned();
            route.close();
        } else if is_for_tls_alone(around) {
            let why = "its host requires TLS, and all listeners serve all routes: it is closed (501) until the \
                listener without TLS has `redirect = \"https\"`";
            self.left_out(node, &what, why);
            route.close();
        } else if let Some(filter) = enabled {
            let why = format!(
                "it enables `{filter}`, which may refuse requests: it is closed (501) until you rewrite it"
            );
            self.left_out(node, &what, &why);
            route.close();
        } else {
            self.act(node, &prefix, around, &mut route);
            self.changes(node, around, &mut route);
            if !around.filters.allow.is_empty() && !route.is_closed() {
                route.key("allow", texts(&around.filters.allow));
            }
        }
        rules.push((route, what));
    }

    /// A route whose condition cannot be said. Its path is closed, so that no other route lets through what it refused.
    fn unsaid(
        &mut self,
        node: &'d Node,
        what: &str,
        hosts: &[String],
        refuses: bool,
        rules: &mut Vec<(Route, String)>,
    ) {
        let condition = "its condition cannot be expressed by host, path, method and headers";
        if !refuses && !answers_beyond(node) {
            return self.left_out(node, what, &format!("{condition}; its requests go to other routes"));
        }
        let does = if refuses { "refuses requests" } else { "responds itself" };
        let matched = node.get("match").filter(|matched| !is_any_case(matched));
        let path = matched.and_then(|matched| self.path(matched));
        let mut closed = Route { place: self.place(node), hosts: hosts.to_vec(), ..Route::default() };
        closed.path = path.map_or(ANY.to_owned(), |(path, _)| path);
        closed.close();
        self.left_out(node, what, &format!("{condition}, and it {does}: its whole path is closed (501)"));
        rules.push((closed, what.to_owned()));
    }

    /// Closes what goes to a host that no route can name, if it refuses requests, because other hosts may let them in.
    fn close_unnamed(&mut self, host: &'d Node, domain: &str) {
        // Closed under the wider name, because `*-x.test` is a part of `*.test`.
        let wider = domain.strip_prefix('*').and_then(|end| end.split_once('.')).map(|(_, end)| end);
        let wider = wider.filter(|end| !end.is_empty() && !end.contains('*'));
        let mut closed = Route {
            place: self.place(host),
            hosts: wider.map(|end| format!("*.{}", end.to_lowercase())).into_iter().collect(),
            path: ANY.to_owned(),
            ..Route::default()
        };
        closed.close();
        let is_of = |known: &&mut Route| {
            closed.hosts.is_empty() && known.hosts.is_empty()
                || known.hosts.iter().any(|known| closed.hosts.contains(known))
        };
        self.draft.routes.iter_mut().filter(is_of).for_each(Route::close);
        if !self.draft.routes.iter().any(|known| known.ties(&closed)) {
            self.draft.add_route(closed, "virtual host");
        }
    }

    /// What holds whatever a route does: limits, fields, bounds.
    fn changes(&mut self, node: &'d Node, around: &RouteScope<'_, 'd>, route: &mut Route) {
        if route.is_closed() {
            return node.dismiss();
        }
        route.limits.extend(self.limits(node, around));
        let levels = [node, around.host, around.table];
        let is_forwarded = route.keys.iter().any(|(key, _)| *key == "to");
        let host =
            node.at(&["route", "host_rewrite_literal"]).or_else(|| node.at(&["route", "host_rewrite"]));
        let host = host.and_then(Node::text).filter(|_| is_forwarded);
        let wins =
            around.table.get("most_specific_header_mutations_wins").and_then(Node::flag).unwrap_or(false);
        let fields = fields::REQUEST;
        if let Some(shown) = self.changed_fields(&levels, wins, fields, host).filter(|_| is_forwarded) {
            route.key("headers", shown);
        }
        if let Some(shown) = self.changed_fields(&levels, wins, fields::RESPONSE, None) {
            route.key("response-headers", shown);
        }
        let own = self
            .own_buffer(node)
            .or_else(|| self.own_buffer(around.host))
            .or(around.filters.max_body.clone());
        if let Some(most) = own.filter(|_| is_forwarded) {
            route.key("max-body", most);
        }
        if let Some(compress) = around.filters.compress.clone().filter(|_| is_forwarded) {
            route.key("compress", compress);
        }
        if let Some(cors) = self.cors(node, around) {
            route.key("cors", cors);
        }
    }
}

fn refuses(node: &Node) -> bool {
    node.at(&["direct_response", "status"]).and_then(Node::number).is_some_and(|status| status >= 400)
}

/// Whether a route keeps requests from what other routes do: it answers them by more than where they are for.
fn answers_beyond(node: &Node) -> bool {
    let answers = node.get("redirect").is_some() || node.get("direct_response").is_some();
    answers && !node.get("match").is_some_and(asks_for_address)
}

/// Whether a match asks for nothing but where a request is for.
fn asks_for_address(matched: &Node) -> bool {
    let is_address =
        |header: &Node| header.get("name").and_then(Node::peek).is_some_and(|it| ADDRESS.contains(&it));
    BEYOND.iter().all(|key| matched.get(key).is_none()) && matched.list("headers").iter().all(is_address)
}

/// Whether a host sends what comes in the clear to https.
fn asks_for_tls(host: &Node) -> bool {
    matches!(host.word("require_tls"), Some("ALL" | "EXTERNAL_ONLY"))
}

/// Whether requests come in the clear to a host that does not take them so.
fn is_for_tls_alone(around: &RouteScope<'_, '_>) -> bool {
    !around.is_tls && asks_for_tls(around.host)
}

/// The host that a domain is, without a port, which decides nothing here; `None` if no route can name it.
pub(super) fn bare(domain: &str) -> Option<String> {
    if domain == "*" {
        return Some(String::new());
    }
    let port = domain.rsplit_once(':').filter(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()));
    let bare = port.map_or(domain, |(bare, _)| bare);
    let name = bare.strip_prefix("*.").unwrap_or(bare);
    (!name.is_empty() && !name.contains('*')).then(|| bare.to_lowercase())
}

/// A route as it is listed.
fn shown(node: &Node) -> String {
    let matched = node.get("match");
    let said = ["prefix", "path", "path_separated_prefix"].iter().find_map(|key| {
        let value = matched?.word(key)?;
        Some(format!("route {key}: {value}"))
    });
    let name = node.word("name").map(|name| format!("route {name}"));
    name.or(said).unwrap_or_else(|| "route".to_owned())
}

const ANY: &str = "/{*rest}";
/// Fields that say where a request is for.
const ADDRESS: &[&str] = &[":method", ":authority", ":scheme", ":path", "host", "x-forwarded-proto"];
/// In the place of the names of a host that no route can name.
const NOBODY: &str = "";
