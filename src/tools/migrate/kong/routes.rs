//! Routes: one of ours for each path, and for each combination of the values of fields.

use config::printer::text;

use super::super::draft::{Route, literal_path};
use super::super::values::methods;
use super::super::yaml::Node;
use super::super::{order, regex, template};
use super::plugins::Common;
use super::services::Target;
use super::{Reading, name_of};

/// Fields that a route asks for, as `headers` of a draft's route has them.
type HeaderMatches = Vec<(String, Option<String>)>;

/// A path of a route: the pattern, and what is sent of it if the route's part is taken away.
struct Path {
    pattern: String,
    stripped: Option<String>,
}

impl<'d> Reading<'d> {
    /// The routes of a route; `service` is what it leads to.
    pub(super) fn route(&mut self, node: &'d Node, service: Option<(&'d Node, &Target<'d>)>) {
        let name = name_of(node, "route");
        let what = format!("route {name}");
        node.skip(&["service"]);
        let protocols = node.words("protocols");
        if protocols
            .iter()
            .any(|protocol| !matches!(*protocol, "http" | "https" | "grpc" | "grpcs" | "ws" | "wss"))
        {
            return self.left_out(node, &what, "the gateway forwards only HTTP and gRPC");
        }
        let hosts = self.hosts(node);
        let mut common = self.common(node, service.map(|(service, _)| service));
        if ["snis", "sources", "destinations", "expression"].iter().any(|key| node.get(key).is_some()) {
            let why = "its condition cannot be expressed by host, path, method and headers";
            return self.unsaid(node, &what, why, &hosts, &common);
        }
        let Some(headers) = headers(node) else {
            let why = "only literal header values can be migrated";
            return self.unsaid(node, &what, why, &hosts, &common);
        };
        let has_others = hosts.len() < node.list("hosts").len();
        if has_others && (hosts.is_empty() || common.refuses()) {
            return self.unsaid(node, &what, "one of its hosts cannot be expressed", &[], &common);
        }
        if !protocols.is_empty() && protocols.iter().all(|it| matches!(*it, "https" | "grpcs" | "wss")) {
            let why = "the listener has no TLS: the route is closed (501) until the listener has `certs` and you \
                rewrite the route";
            self.differs(node, &format!("{what}, protocols: {}", protocols.join(", ")), why);
            common.is_closed = true;
        }
        let leads = self.leads(node, service, &common);
        let headers = self.compared(node, &what, headers, &mut common);
        let (paths, unsaid) = self.paths(node);
        if unsaid && common.refuses() {
            self.close_hosts(node, &what, "its path cannot be expressed in segments", &hosts);
        }
        for path in paths {
            for headers in &headers {
                let mut route = Route {
                    place: self.place(node),
                    name: name.clone(),
                    hosts: hosts.clone(),
                    path: path.pattern.clone(),
                    methods: methods(node.words("methods")),
                    headers: headers.clone(),
                    ..Route::default()
                };
                match &leads {
                    Some((upstream, _)) => {
                        route.key("to", text(upstream));
                        route.key("upgrade", true);
                        let sent = sent(&path, node, service.map(|(_, target)| target));
                        route.keys.extend(sent.map(|sent| ("rewrite", text(&sent))));
                    }
                    None => route.respond(503),
                }
                common.apply(&mut route, leads.as_ref().and_then(|(_, host)| host.as_deref()));
                self.routes.push((route, what.clone()));
            }
        }
    }

    /// The values of fields that a route asks for. What refuses requests is closed, with any value, because Kong takes
    /// them in upper and lower case.
    fn compared(
        &mut self,
        node: &'d Node,
        what: &str,
        headers: Vec<HeaderMatches>,
        common: &mut Common,
    ) -> Vec<HeaderMatches> {
        let values = || headers.iter().flatten().filter_map(|(_, value)| value.as_ref());
        if values().next().is_none() {
            return headers;
        }
        let has_case = values().any(|value| value.bytes().any(|byte| byte.is_ascii_alphabetic()));
        if !has_case || !common.refuses() {
            let why = "header values are case-sensitive here, and a repeated header is compared as one: such \
                requests go to other routes";
            self.differs(node, &format!("{what}, headers"), why);
            return headers;
        }
        let why = "header values are case-sensitive here, and it may refuse requests: it is closed (501), whatever \
            these headers hold";
        self.left_out(node, &format!("{what}, headers"), why);
        common.is_closed = true;
        let any = |(name, _): &(String, Option<String>)| (name.clone(), None);
        headers.first().map(|asked| asked.iter().map(any).collect()).into_iter().collect()
    }

    /// A route whose condition cannot be said. It is closed, so that no other route lets through what it refused.
    fn unsaid(&mut self, node: &'d Node, what: &str, why: &str, hosts: &[String], common: &Common) {
        match common.refuses() {
            true => self.close_hosts(node, what, why, hosts),
            false => self.left_out(node, what, &format!("{why}; its requests go to other routes")),
        }
    }

    /// Closes all routes of these hosts, because one of their conditions cannot be said, and it may refuse requests.
    fn close_hosts(&mut self, node: &'d Node, what: &str, why: &str, hosts: &[String]) {
        let why = format!(
            "{why}, and it may refuse requests: all routes of its hosts are closed (501) until you rewrite it"
        );
        self.left_out(node, what, &why);
        self.closed_hosts.push(hosts.to_vec());
        let mut rest = Route {
            place: self.place(node),
            hosts: hosts.to_vec(),
            path: ANY.to_owned(),
            ..Route::default()
        };
        rest.close();
        self.routes.push((rest, what.to_owned()));
    }

    /// Adds the routes that were read, without those that must stay closed.
    pub(super) fn add_routes(&mut self) {
        let mut routes = std::mem::take(&mut self.routes);
        for (route, _) in &mut routes {
            let shares = |hosts: &Vec<String>| {
                hosts.is_empty() || route.hosts.is_empty() || route.hosts.iter().any(|it| hosts.contains(it))
            };
            if self.closed_hosts.iter().any(shares) {
                route.close();
            }
        }
        order::add_by_fields(self.draft, routes);
    }

    /// The upstream of a route. A route that answers itself leads nowhere.
    fn leads(
        &mut self,
        node: &'d Node,
        service: Option<(&'d Node, &Target<'d>)>,
        common: &Common,
    ) -> Option<(String, Option<String>)> {
        let keeps_host = node.is("preserve_host");
        match service {
            Some((_, target)) => self.upstream(target, keeps_host),
            None if common.answers() => None,
            None => {
                let place = self.place(node);
                let what = format!("route {}", name_of(node, "route"));
                self.draft.notes.left_out(&place, &what, "it has no service; the route answers 503");
                None
            }
        }
    }

    fn hosts(&mut self, node: &'d Node) -> Vec<String> {
        let mut hosts = Vec::new();
        for host in node.list("hosts") {
            let name = host.text().unwrap_or_default();
            let bare = name.rsplit_once(':').map_or(name, |(bare, _)| bare);
            match bare.trim_start_matches("*.").contains('*') || bare.is_empty() {
                false => hosts.push(bare.to_lowercase()),
                true => {
                    let why = "a host must be a name, or `*.` and a name; its requests go to other routes";
                    self.left_out(host, &format!("hosts: {name}"), why);
                }
            }
        }
        hosts
    }

    /// The paths of a route, and whether one of them cannot be said, which is listed.
    fn paths(&mut self, node: &'d Node) -> (Vec<Path>, bool) {
        let list = node.list("paths");
        if list.is_empty() {
            let rest = Some("{rest}".to_owned());
            let any = Path { pattern: ANY.to_owned(), stripped: rest };
            return (vec![any], false);
        }
        // By the format, because the tilde marks an expression since 3.0: before that any sign of one did.
        let is_old = self
            .root
            .get("_format_version")
            .and_then(Node::text)
            .is_some_and(|it| it.starts_with(['1', '2']));
        let (mut paths, mut unsaid) = (Vec::new(), false);
        for path in list {
            let written = path.text().unwrap_or_default();
            let expression = written.strip_prefix('~').or_else(|| {
                let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "-._~/%".contains(sign);
                (is_old && !written.chars().all(is_plain)).then_some(written)
            });
            match expression {
                Some(expression) => match regex::pattern(expression, true) {
                    Some(found) => {
                        if !found.is_exact {
                            let why = format!("`{}` takes more paths than the expression", found.pattern);
                            self.differs(path, &format!("paths: {written}"), &why);
                        }
                        // Only what follows is sent, because Kong takes away all that the expression matched.
                        let rest = found.pattern.ends_with("{*rest}") && !expression.contains(".*");
                        let stripped = if rest { "{rest}" } else { "" };
                        paths.push(Path { pattern: found.pattern, stripped: Some(stripped.to_owned()) });
                    }
                    None => {
                        unsaid = true;
                        let why = "this expression cannot be expressed in segments; its requests go to other routes";
                        self.left_out(path, &format!("paths: {written}"), why);
                    }
                },
                None => match literal_path(written, true) {
                    Some(pattern) => paths.push(Path { pattern, stripped: Some("{rest}".to_owned()) }),
                    None => {
                        self.left_out(path, &format!("paths: {written}"), "no request can have this path")
                    }
                },
            }
        }
        (paths, unsaid)
    }
}

/// The path that is sent, if it is not the one that came.
fn sent(path: &Path, node: &Node, target: Option<&Target<'_>>) -> Option<String> {
    let before = target.map(|target| template::literal(&target.path)).unwrap_or_default();
    let strips = node.get("strip_path").and_then(Node::flag).unwrap_or(true);
    match (&path.stripped, strips) {
        (Some(rest), true) if path.pattern == ANY && before.is_empty() && rest == "{rest}" => None,
        (Some(rest), true) if rest.is_empty() && !before.is_empty() => Some(before),
        (Some(rest), true) => Some(format!("{before}/{rest}")),
        _ if before.is_empty() => None,
        _ => Some(format!("{before}{{path}}")),
    }
}

/// Every combination of the values of fields; `None` if one of them is an expression.
fn headers(node: &Node) -> Option<Vec<HeaderMatches>> {
    let mut combinations: Vec<HeaderMatches> = vec![Vec::new()];
    for (name, values) in node.get("headers").map(Node::entries).unwrap_or_default() {
        let values = values.texts();
        let is_many = combinations.len() * values.len() > COMBINATIONS_MAX;
        if values.is_empty() || is_many || values.iter().any(|value| value.starts_with("~*")) {
            return None;
        }
        let with = |value: &&str| (name.to_ascii_lowercase(), Some((*value).to_owned()));
        let longer = combinations.iter().flat_map(|before| {
            values.iter().map(move |value| before.iter().cloned().chain([with(value)]).collect::<Vec<_>>())
        });
        combinations = longer.collect();
    }
    Some(combinations)
}

const ANY: &str = "/{*rest}";
/// Fields with several values each would make as many routes as there are combinations.
const COMBINATIONS_MAX: usize = 100;
