//! `map` in `proxy_pass`: which of its values holds for which requests, as routes of their own.
//!
//! Maps of hosts split a whole server, because a route for one host goes before all others, those that keep clients out
//! among them. Maps of paths, methods and fields split a location. What no route can say closes its part.

use std::cmp::Reverse;

use policy::matching::host::HostPattern;

use super::super::draft::{Route, literal_path};
use super::super::{order, regex, template};
use super::Reading;
use super::access::is_guarded;
use super::lexer::Directive;
use super::prefix::{self, Match};
use super::scope::{MapChoice, Scope};
use super::server::Server;
use super::upstreams::Target;

/// What a map looks at.
#[derive(Clone, Debug, PartialEq, Eq)]
enum MapSource {
    Host {
        has_port: bool,
    },
    Path,
    Method,
    Field(String),
    /// What routes do not look at.
    Other,
}

/// A line of a map. Its patterns are hosts, paths of routes, methods or values of a field; or [`ANY`], or [`PRESENT`].
struct MapLine<'d> {
    patterns: Vec<String>,
    /// Whether it is for all that its patterns match.
    is_exact: bool,
    line: &'d Directive,
}

/// A map, with its lines in the order in which they decide.
struct ValueMap<'d> {
    directive: &'d Directive,
    source: MapSource,
    entries: Vec<MapLine<'d>>,
    default: Option<&'d Directive>,
}

impl<'d> ValueMap<'d> {
    fn of(directive: &'d Directive) -> ValueMap<'d> {
        directive.taken_whole();
        let source = MapSource::of(directive.arg(0));
        let hostnames = directive.block().iter().any(|line| line.name == "hostnames" && line.args.is_empty());
        let (mut entries, mut default): (Vec<MapLine<'d>>, _) = (Vec::new(), None);
        for line in directive.block().iter().filter(|line| !line.args.is_empty()) {
            if line.name == "default" {
                default = Some(line);
                continue;
            }
            let (patterns, mut is_exact) = source.patterns(&line.name, hostnames);
            // Neither, because hosts that only a port tells apart are one host here.
            for twin in entries.iter_mut().filter(|known| {
                let is_plain = !line.name.starts_with('~') && !known.line.name.starts_with('~');
                is_plain && known.patterns == patterns && known.line.arg(0) != line.arg(0)
            }) {
                (twin.is_exact, is_exact) = (false, false);
            }
            if !patterns.is_empty() {
                entries.push(MapLine { patterns, is_exact, line });
            }
        }
        // Names first, then their wildcards, the longest first, then expressions in their order.
        entries.sort_by_key(|entry| match entry.line.name.as_str() {
            key if key.starts_with('~') => (3, Reverse(0)),
            key if hostnames && key.ends_with(".*") => (2, Reverse(key.len())),
            key if hostnames && key.starts_with(['*', '.']) => (1, Reverse(key.len())),
            _ => (0, Reverse(0)),
        });
        ValueMap { directive, source, entries, default }
    }

    fn is_host(&self) -> bool {
        matches!(self.source, MapSource::Host { .. })
    }

    fn covers(&self, pattern: &str, other: &str) -> bool {
        pattern == ANY
            || pattern == other
            || match &self.source {
                MapSource::Host { .. } => match pattern.strip_suffix('*') {
                    Some(begin) => other.starts_with(['*', ANY_SIGN]) || other.starts_with(begin),
                    None => order::covers_host(pattern, other),
                },
                MapSource::Path => order::covers_path(pattern, other),
                MapSource::Field(_) => pattern == PRESENT && !other.is_empty(),
                _ => false,
            }
    }

    /// What it gives for the requests of one pattern, those apart that a narrower pattern is for.
    fn choice(&self, pattern: &str) -> MapChoice {
        let is_it = |entry: &&MapLine<'_>| entry.patterns.iter().any(|known| self.covers(known, pattern));
        let (line, is_said) = match self.entries.iter().find(is_it) {
            // Said of names alone, because of others it is not known whether they begin so.
            Some(entry) if self.is_host() && entry.patterns[0].ends_with('*') => {
                (Some(entry.line), !pattern.starts_with(['*', ANY_SIGN]))
            }
            Some(entry) => (Some(entry.line), entry.is_exact),
            None => (self.default, self.source != MapSource::Other),
        };
        let shown = self.directive.shown();
        MapChoice {
            variable: self.directive.arg(1).trim_start_matches('$').to_owned(),
            value: is_said.then(|| line.map_or("", |line| line.arg(0)).to_owned()),
            place: line.unwrap_or(self.directive).place.clone(),
            what: line.map_or(shown.clone(), |line| format!("{shown} {{ {} }}", line.shown())),
        }
    }

    /// The same, if nobody can tell which of its lines decides.
    fn unsaid(&self) -> MapChoice {
        MapChoice {
            value: None,
            what: self.directive.shown(),
            place: self.directive.place.clone(),
            ..self.choice(ANY)
        }
    }

    /// The patterns that something of its own is said of.
    fn patterns(&self) -> impl Iterator<Item = &String> {
        let all = self.entries.iter().flat_map(|entry| &entry.patterns);
        all.filter(|pattern| {
            let is_begin = self.is_host() && pattern.ends_with('*');
            !is_begin && ![ANY, PRESENT, ""].contains(&pattern.as_str())
        })
    }

    /// The parts of a route that it tells apart, the most specific first, the rest last. `is_free` says whether requests
    /// for a path come to the route at all.
    fn parts(&self, route: &Route, is_free: impl Fn(&str) -> bool) -> Vec<(Route, MapChoice)> {
        let mut parts: Vec<(Route, MapChoice)> = Vec::new();
        let rest = match &self.source {
            MapSource::Path => {
                let is_part = |path: &&String| {
                    order::covers_path(&route.path, path)
                        && !order::covers_path(path, &route.path)
                        && is_free(path)
                };
                let mut paths: Vec<&String> = self.patterns().filter(is_part).collect();
                paths.sort_by_key(|path| (Reverse(path.len()), path.as_str()));
                paths.dedup();
                parts.extend(
                    paths
                        .iter()
                        .map(|path| (Route { path: (*path).clone(), ..route.clone() }, self.choice(path))),
                );
                self.choice(&route.path)
            }
            MapSource::Method => {
                let mut methods: Vec<&str> = self.patterns().map(String::as_str).collect();
                methods.extend(Some("HEAD").filter(|_| methods.contains(&"GET")));
                methods.retain(|method| !matches!(*method, "TRACE" | "CONNECT"));
                if !route.methods.is_empty() {
                    methods = route.methods.iter().map(String::as_str).collect();
                }
                for method in methods {
                    let choice = self.choice(method);
                    match parts.iter_mut().find(|(_, known)| *known == choice) {
                        Some((part, _)) if part.methods.iter().any(|known| known == method) => {}
                        Some((part, _)) => part.methods.push(method.to_owned()),
                        None => {
                            parts.push((Route { methods: vec![method.to_owned()], ..route.clone() }, choice))
                        }
                    }
                }
                if !route.methods.is_empty() {
                    return parts;
                }
                self.choice(ANY)
            }
            MapSource::Field(name) => return self.field_parts(route, name),
            MapSource::Host { .. } | MapSource::Other => self.unsaid(),
        };
        parts.push((route.clone(), rest));
        parts
    }

    /// The parts of a route by the values of a field.
    fn field_parts(&self, route: &Route, name: &str) -> Vec<(Route, MapChoice)> {
        let values: Vec<&String> = self.patterns().collect();
        let (absent, present) = (self.choice(""), self.choice(PRESENT));
        match route.headers.iter().find(|(known, _)| known == name) {
            Some((_, Some(value))) => return vec![(route.clone(), self.choice(value))],
            Some(_) if values.is_empty() => return vec![(route.clone(), present)],
            Some(_) => return vec![(route.clone(), self.unsaid())],
            None => {}
        }
        let part = |value: Option<String>, choice: MapChoice| {
            let mut part = route.clone();
            part.headers.push((name.to_owned(), value));
            (part, choice)
        };
        let of_value = |value: &&String| part(Some((*value).clone()), self.choice(value));
        let mut parts: Vec<(Route, MapChoice)> = values.iter().map(of_value).collect();
        let rest = match (absent.value == present.value, values.is_empty()) {
            (true, _) => absent,
            // Two routes, because without a value of its own there is none that ties with the field alone.
            (false, true) => {
                parts.push(part(None, present));
                absent
            }
            (false, false) => self.unsaid(),
        };
        parts.push((route.clone(), rest));
        parts
    }
}

impl MapSource {
    fn of(text: &str) -> MapSource {
        let name = text.strip_prefix('$').unwrap_or_default();
        let name = name.strip_prefix('{').and_then(|name| name.strip_suffix('}')).unwrap_or(name);
        match name {
            "host" | "http_host" => MapSource::Host { has_port: name == "http_host" },
            "uri" | "document_uri" => MapSource::Path,
            "request_method" => MapSource::Method,
            _ => match name.strip_prefix("http_") {
                Some(field) if field.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') => {
                    MapSource::Field(field.replace('_', "-").to_ascii_lowercase())
                }
                _ => MapSource::Other,
            },
        }
    }

    /// The patterns of a key, and whether it is for all of what they match. None: it is for no request.
    fn patterns(&self, key: &str, hostnames: bool) -> (Vec<String>, bool) {
        let Some(expression) = key.strip_prefix('~') else {
            return (self.literals(key.strip_prefix('\\').unwrap_or(key), hostnames), true);
        };
        let expression = expression.strip_prefix('*').unwrap_or(expression);
        let whole = expression.strip_prefix('^').and_then(|rest| rest.strip_suffix('$'));
        let any = || (vec![ANY.to_owned()], false);
        if *self == MapSource::Path {
            let said = prefix::literal(expression)
                .map(|found| vec![found])
                .or_else(|| prefix::alternatives(expression));
            return match said {
                Some(said) => {
                    (said.iter().filter_map(|(text, exact)| literal_path(text, !exact)).collect(), true)
                }
                None if expression.contains('|') => any(),
                None => {
                    prefix::rewritten_from(expression).pattern().map_or_else(any, |path| (vec![path], false))
                }
            };
        }
        match (self, whole.and_then(regex::alternatives)) {
            (_, Some(texts)) => (texts.iter().flat_map(|text| self.literals(text, false)).collect(), true),
            (MapSource::Host { .. }, None) => hosts_below(expression).unwrap_or_else(any),
            (MapSource::Field(_), None) if matches!(expression, "." | ".+" | "^." | "^.+" | "^.+$") => {
                (vec![PRESENT.to_owned()], true)
            }
            _ => any(),
        }
    }

    /// The patterns of a key that is no expression.
    fn literals(&self, key: &str, hostnames: bool) -> Vec<String> {
        let lower = key.to_ascii_lowercase();
        match self {
            MapSource::Host { has_port } => {
                let port = lower.rfind(':').filter(|at| *has_port && Some(*at) > lower.rfind(']'));
                let name = &lower[..port.unwrap_or(lower.len())];
                let all = match name.strip_prefix('.').filter(|_| hostnames) {
                    Some(bare) => vec![bare.to_owned(), format!("*.{bare}")],
                    None if hostnames && name.ends_with(".*") => return vec![name.to_owned()],
                    None if name.starts_with('*') && !hostnames => Vec::new(),
                    None => vec![name.to_owned()],
                };
                all.into_iter().filter(|name| HostPattern::parse(name).is_ok()).collect()
            }
            MapSource::Path if !key.starts_with('/') => Vec::new(),
            MapSource::Path => literal_path(key, false).into_iter().collect(),
            MapSource::Method => vec![key.to_ascii_uppercase()],
            _ => vec![key.to_owned()],
        }
    }
}

/// The map of a variable.
fn map_of<'d>(http: &'d [Directive], variable: &str) -> Option<&'d Directive> {
    let is_it = |map: &&Directive| map.name == "map" && map.arg(1).strip_prefix('$') == Some(variable);
    http.iter().rfind(is_it)
}

/// The first map that a text depends on and of which no line is chosen yet.
fn open_map<'d>(
    http: &'d [Directive],
    text: &str,
    scope: &Scope<'d>,
    server: &Server<'d>,
) -> Option<&'d Directive> {
    let names = server.around(scope).variables(text);
    names.iter().filter(|name| scope.choice(name).is_none()).find_map(|name| map_of(http, name))
}

/// A server as one for each group of its hosts that maps lead elsewhere, each with what they give there.
pub(super) fn by_hosts<'d>(
    reading: &mut Reading<'d>,
    server: &Server<'d>,
    all: &[Server<'d>],
    scope: &Scope<'d>,
) -> Vec<(Server<'d>, Scope<'d>)> {
    let maps = host_maps(reading.http, server);
    if maps.is_empty() {
        return vec![(server.clone(), scope.clone())];
    }
    for entry in maps.iter().flat_map(|map| &map.entries).filter(|entry| has_port(&entry.line.name)) {
        let why = "a host is compared without its port";
        reading.draft.notes.line_differs(entry.line, why);
    }
    let mut hosts = server.hosts.clone();
    for pattern in maps.iter().flat_map(ValueMap::patterns) {
        if !hosts.contains(pattern) && is_of(pattern, server, all) {
            hosts.push(pattern.clone());
        }
    }
    let is_unsaid = hosts.len() > PARTS_MAX;
    if is_unsaid {
        hosts.clone_from(&server.hosts);
    }
    let choices = |host: &str| -> Vec<MapChoice> {
        maps.iter().map(|map| if is_unsaid { map.unsaid() } else { map.choice(host) }).collect()
    };
    let mut groups: Vec<(Vec<MapChoice>, Vec<String>)> = Vec::new();
    for host in hosts {
        let choices = choices(&host);
        match groups.iter_mut().find(|(known, _)| *known == choices) {
            Some((_, hosts)) => hosts.push(host),
            None => groups.push((choices, vec![host])),
        }
    }
    groups.extend(server.hosts.is_empty().then(|| (choices(ANY), Vec::new())));
    let parts = groups.into_iter();
    parts.map(|(choices, hosts)| (Server { hosts, ..server.clone() }, scope.choosing(choices))).collect()
}

/// The maps of hosts that the places of a server may pass requests by.
fn host_maps<'d>(http: &'d [Directive], server: &Server<'d>) -> Vec<ValueMap<'d>> {
    let inside = server.block.within();
    let passes = inside.iter().filter(|it| matches!(it.name.as_str(), "proxy_pass" | "grpc_pass"));
    let mut texts: Vec<&str> = passes.map(|pass| pass.arg(0)).collect();
    let (mut known, mut maps): (Vec<String>, _) = (Vec::new(), Vec::new());
    while let Some(text) = texts.pop() {
        for name in template::names(text) {
            if known.contains(&name) {
                continue;
            }
            let is_set = |it: &&&Directive| it.name == "set" && it.arg(0).strip_prefix('$') == Some(&name);
            texts.extend(inside.iter().filter(is_set).map(|set| set.arg(1)));
            if let Some(map) = map_of(http, &name) {
                texts.extend(map.block().iter().map(|line| line.arg(0)));
                maps.extend(
                    Some(map)
                        .filter(|map| matches!(MapSource::of(map.arg(0)), MapSource::Host { .. }))
                        .map(ValueMap::of),
                );
            }
            known.push(name);
        }
    }
    maps
}

/// The parts of a location that maps lead elsewhere, each with what they give there, the whole of it last.
pub(super) fn by_maps<'d>(
    reading: &mut Reading<'d>,
    route: Route,
    location: &'d Directive,
    scope: &Scope<'d>,
    server: &Server<'d>,
) -> Vec<(Route, Scope<'d>)> {
    let mut parts = Vec::new();
    let url = match passing(scope, server).filter(|_| scope.own("return").is_empty()) {
        Some(pass) => pass.arg(0),
        None => return vec![(route, scope.clone())],
    };
    split(reading, route, location, url, (scope, server), &mut parts);
    parts
}

fn split<'d>(
    reading: &mut Reading<'d>,
    route: Route,
    location: &'d Directive,
    url: &str,
    (scope, server): (&Scope<'d>, &Server<'d>),
    parts: &mut Vec<(Route, Scope<'d>)>,
) {
    let Some(map) = open_map(reading.http, url, scope, server).filter(|_| parts.len() < PARTS_MAX) else {
        let is_known = |(known, _): &(Route, Scope<'d>)| {
            known.path == route.path && known.methods == route.methods && known.headers == route.headers
        };
        if !parts.iter().any(is_known) {
            parts.push((route, scope.clone()));
        }
        return;
    };
    let mut map = ValueMap::of(map);
    let others: Vec<&Directive> =
        server.block.within().into_iter().filter(|it| it.name == "location").collect();
    let others: Vec<&Directive> = others.into_iter().filter(|it| !std::ptr::eq(*it, location)).collect();
    let is_unsaid = match map.source {
        // Expressions go before the locations that routes of their own would go before, and a rewritten path is not
        // the one that routes see.
        MapSource::Path => {
            others.iter().any(|other| other.arg(0).starts_with('~'))
                || server.block.within().iter().any(|inside| inside.name == "rewrite")
        }
        MapSource::Method => !scope.own("limit_except").is_empty(),
        _ => false,
    };
    if is_unsaid {
        let scope = scope.choosing(vec![map.unsaid()]);
        return split(reading, route, location, url, (&scope, server), parts);
    }
    compare_spellings(reading, &mut map, &route, url, (scope, server));
    let taken: Vec<String> = others.iter().filter_map(|other| Match::of(other).pattern()).collect();
    let is_free = |path: &str| {
        let mut before = taken.iter().filter(|other| order::covers_path(&route.path, other));
        !before.any(|other| order::covers_path(other, path))
    };
    for (part, choice) in map.parts(&route, is_free) {
        split(reading, part, location, url, (&scope.choosing(vec![choice]), server), parts);
    }
}

/// Lists keys of which other spellings go elsewhere here. Those that refuse requests are for any request then.
fn compare_spellings<'d>(
    reading: &mut Reading<'d>,
    map: &mut ValueMap<'d>,
    route: &Route,
    url: &str,
    (scope, server): (&Scope<'d>, &Server<'d>),
) {
    if !matches!(map.source, MapSource::Path | MapSource::Field(_)) {
        return;
    }
    let base = map.unsaid();
    for entry in &mut map.entries {
        let key = &entry.line.name;
        let is_any_case = !key.starts_with('~') || key.starts_with("~*");
        let has_case = is_any_case && key.contains(|sign: char| sign.is_ascii_alphabetic());
        let is_here = |path: &String| order::covers_path(&route.path, path);
        if !has_case
            || !entry.is_exact
            || map.source == MapSource::Path && !entry.patterns.iter().any(is_here)
        {
            continue;
        }
        let value = Some(entry.line.arg(0).to_owned());
        let scope = scope.choosing(vec![MapChoice { value, ..base.clone() }]);
        let is_open = Target::of(url, &server.around(&scope)).is_some();
        if is_open || open_map(reading.http, url, &scope, server).is_some() {
            let why = "values are case-sensitive here: other spellings go where all others go";
            reading.draft.notes.line_differs(entry.line, why);
        } else {
            (entry.patterns, entry.is_exact) = (vec![ANY.to_owned()], false);
        }
    }
    map.entries.sort_by_key(|entry| {
        let is_expression = entry.line.name.starts_with('~');
        (is_expression, !is_expression && entry.patterns[0] == ANY)
    });
}

/// Whether nginx asks this server for a host, and no other one.
fn is_of(host: &str, server: &Server<'_>, all: &[Server<'_>]) -> bool {
    let best = |server: &Server<'_>| {
        let named = server.hosts.iter().filter(|known| order::covers_host(known, host));
        named.map(|known| (!known.starts_with('*'), known.len())).max()
    };
    let own = best(server);
    (server.hosts.is_empty() || own.is_some())
        && !all.iter().any(|other| !other.is_apart && best(other) > own)
}

/// Whether a host of a map has a port.
fn has_port(key: &str) -> bool {
    !key.starts_with('~') && key.rfind(':') > key.rfind(']')
}

/// The hosts that an expression is for, or more than those: all below a name. `None`: it is not known below which.
fn hosts_below(expression: &str) -> Option<(Vec<String>, bool)> {
    let lower = expression.to_ascii_lowercase();
    let whole = lower.strip_suffix('$').filter(|whole| !whole.contains('|'))?;
    let mut dots = whole.match_indices("\\.").map(|(at, _)| whole.split_at(at));
    let (before, name) = dots
        .find_map(|(before, end)| Some((before, regex::literal(end)?)).filter(|_| !before.ends_with('\\')))?;
    let before = match before.strip_prefix("^(?").and_then(|group| group.split_once('>')) {
        Some((_, inside)) => format!("({inside}"),
        None => before.trim_start_matches('^').to_owned(),
    };
    let is_exact = ["", ".+", ".*", "(.+)", "(.*)"].contains(&before.as_str());
    let host = format!("*{name}");
    HostPattern::parse(&host)
        .is_ok()
        .then(|| (vec![host], is_exact && !(before.is_empty() && whole.starts_with('^'))))
}

/// The pattern of all requests, which is no host, path, method or value.
const ANY: &str = "\u{0}any";
const ANY_SIGN: char = '\u{0}';
/// Among the values of a field: that it is there.
const PRESENT: &str = "\u{0}present";
/// Parts of one location, or of one server.
const PARTS_MAX: usize = 250;

/// The directive that a place passes its requests on by.
pub(super) fn pass_of<'d>(scope: &Scope<'d>) -> Option<&'d Directive> {
    scope.own("proxy_pass").pop().or_else(|| scope.own("grpc_pass").pop())
}

/// The same, or that of the location which its `try_files` falls back to.
fn passing<'d>(scope: &Scope<'d>, server: &Server<'d>) -> Option<&'d Directive> {
    let named = named_location(scope, server).map(|(_, named)| scope.within(named.block()));
    pass_of(named.as_ref().unwrap_or(scope))
}

/// The location `@name` that a place's `try_files` falls back to, if the place does nothing else with its requests and all that
/// keeps clients out stands around it.
pub(super) fn named_location<'d>(
    scope: &Scope<'d>,
    server: &Server<'d>,
) -> Option<(&'d Directive, &'d Directive)> {
    let files = scope.own("try_files").pop()?;
    let name = files.args.last().filter(|name| name.starts_with('@'))?;
    let others = ["return", "rewrite", "if", "proxy_pass", "grpc_pass", "limit_except"];
    let mut all = server.block.block().iter();
    let named = all.find(|other| other.name == "location" && other.arg(0) == name)?;
    let own = ["try_files", "allow", "limit_req", "limit_conn", "client_max_body_size"];
    let is_plain = !is_guarded(named.block())
        && !named.block().iter().any(|inside| own.contains(&inside.name.as_str()))
        && others.iter().all(|word| scope.own(word).is_empty());
    is_plain.then_some((files, named))
}
