//! Routes: one of ours for each path, and for each combination of the values of fields.

use crate::config::printer::text;

use super::super::draft::{Route, literal_path};
use super::super::yaml::Node;
use super::super::{regex, template};
use super::services::Target;
use super::{Reading, name_of};

/// Fields that a route asks for, as `headers` of a draft's route has them.
type Asked = Vec<(String, Option<String>)>;

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
            return self.left_out(node, &what, "only HTTP and gRPC are forwarded here");
        }
        if protocols == ["https"] {
            let why =
                "it takes requests in the clear, too: write `redirect = \"https\"` at the listener for them";
            self.differs(node, &format!("{what}, protocols: https"), why);
        }
        if ["snis", "sources", "destinations", "expression"].iter().any(|key| node.get(key).is_some()) {
            let why = "its condition cannot be said by host, path, method and fields; its requests go to other routes";
            return self.left_out(node, &what, why);
        }
        let Some(headers) = headers(node) else {
            let why = "only values of fields that are written out are known; its requests go to other routes";
            return self.left_out(node, &what, why);
        };
        let hosts = self.hosts(node);
        if hosts.is_empty() && !node.list("hosts").is_empty() {
            return node.dismiss();
        }
        let common = self.common(node, service.map(|(service, _)| service));
        let leads = self.leads(node, service, &common);
        for path in self.paths(node) {
            for headers in &headers {
                let mut route = Route {
                    place: self.place(node),
                    name: name.clone(),
                    hosts: hosts.clone(),
                    path: path.pattern.clone(),
                    methods: node.words("methods").into_iter().map(str::to_owned).collect(),
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
                self.draft.add_route(route, &what);
            }
        }
    }

    /// The upstream of a route. A route that answers itself leads nowhere.
    fn leads(
        &mut self,
        node: &'d Node,
        service: Option<(&'d Node, &Target<'d>)>,
        common: &super::plugins::Common,
    ) -> Option<(String, Option<String>)> {
        let keeps_host = node.is("preserve_host");
        match service {
            Some((_, target)) => self.upstream(target, keeps_host),
            None if common.answers() => None,
            None => {
                let place = self.place(node);
                let what = format!("route {}", name_of(node, "route"));
                self.draft.notes.left_out(&place, &what, "it has no service; its place answers 503");
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
                    let why = "a host is a name, or `*.` and a name; its requests go to other routes";
                    self.left_out(host, &format!("hosts: {name}"), why);
                }
            }
        }
        hosts
    }

    fn paths(&mut self, node: &'d Node) -> Vec<Path> {
        let list = node.list("paths");
        if list.is_empty() {
            return vec![Path { pattern: ANY.to_owned(), stripped: Some("{rest}".to_owned()) }];
        }
        // The tilde marks an expression since format 3.0; before that any sign of one did.
        let is_old = self
            .root
            .get("_format_version")
            .and_then(Node::text)
            .is_some_and(|it| it.starts_with(['1', '2']));
        let mut paths = Vec::new();
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
                        // What Kong takes away is all that the expression matched.
                        let rest = found.pattern.ends_with("{*rest}") && !expression.contains(".*");
                        let stripped = if rest { "{rest}" } else { "" };
                        paths.push(Path { pattern: found.pattern, stripped: Some(stripped.to_owned()) });
                    }
                    None => {
                        let why = "segments cannot say this expression; its requests go to other routes";
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
        paths
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
fn headers(node: &Node) -> Option<Vec<Asked>> {
    let mut combinations: Vec<Asked> = vec![Vec::new()];
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
