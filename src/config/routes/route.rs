//! Reads `[[route]]`: which requests, which limits, and where to.
//!
//! A header that a route requires is written `match = { header = { x-beta = "1", x-debug = true } }`: a string is the exact
//! value, `true` only requires the header. Whether two routes tie, and whether a path or a template is valid, is checked
//! where routes are compiled (`policy::compile`), not here.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use http::Uri;

use policy::definition::{
    AccessDefinition, ActionDefinition, Compress, DestinationDefinition, HeaderMatchDefinition,
    RouteDefinition, WeightedUpstream,
};
use policy::matching::host::HostPattern;

use crate::keys::foreign::foreign_value;
use crate::keys::route::PATH_ESCAPES;
use crate::limits::policy_names::PolicyNames;
use crate::limits::windows;
use crate::load::context::ImpliedSection;
use crate::load::report::{DefinitionSpans, Fields, Hint, SourceSpan, quoted};
use crate::load::sections;
use crate::load::text::Text;
use crate::printer::{array, table as show_table, text as show_text};
use crate::process::listener;
use crate::reader::unknown::{holds_tables, numbers};
use crate::reader::{Table, Value};
use crate::routes::{access, compress, headers, method, mirror, redirect, retry};
use crate::settings::Config;
use crate::upstream;
use base::words;

/// Reads every route into `config`, and with them the upstreams that they write as URLs and the policies that they write as
/// shorthands. `auth_names` are the names of all authentication methods, including those with errors.
pub(crate) fn read_all(
    documents: &[Table<'_>],
    auth_names: &[String],
    config: &mut Config,
    places: &mut DefinitionSpans,
) {
    let upstreams = config.upstreams.iter().map(|upstream| upstream.name.clone()).collect();
    let policies = PolicyNames::of(config);
    let compress = sections::single(documents, "compress").and_then(|it| compress::of_route(&it, None));
    let named = HashMap::new();
    let mut reader = Reader { auth_names, compress, config, places, upstreams, policies, named };
    for value in documents.iter().filter_map(|document| document.value("route")) {
        if value.is_table() {
            let hint = match holds_tables(&value) {
                true => "write `[[route]]` for each, and `name` below it",
                false => "write `[[route]]` with two brackets",
            };
            value.wrong_key("`route` is a list of tables", hint);
            continue;
        }
        for value in value.array().unwrap_or_default() {
            let Some(table) = value.table() else { continue };
            let (mut fields, checkpoint) = (table.places(), table.checkpoint());
            let route = reader.route(&value, table);
            fields.is_flawed = checkpoint.is_flawed();
            reader.config.routes.push(route);
            reader.places.routes.push(fields);
        }
    }
}

/// Reads routes, and adds the upstreams and policies that they write in place.
struct Reader<'r> {
    /// Names of the authentication methods, including those with errors, so that no error about a missing name follows.
    auth_names: &'r [String],
    /// How answers of routes that say nothing about it are compressed.
    compress: Option<Arc<Compress>>,
    config: &'r mut Config,
    places: &'r mut DefinitionSpans,
    /// Names of the upstreams so far.
    upstreams: HashSet<String>,
    policies: PolicyNames,
    /// Names of the routes so far, their indices and where they are written.
    named: HashMap<String, (usize, SourceSpan)>,
}

impl Reader<'_> {
    fn route(&mut self, value: &Value<'_>, table: Table<'_>) -> RouteDefinition {
        let hosts = table.value("host").map(|value| hosts(&value)).unwrap_or_default();
        let methods = table.value("methods").map(|value| method::list(&value)).unwrap_or_default();
        let path = match table.value("path") {
            Some(value) => path(&value),
            None => Some(ANY_PATH.to_owned()),
        };
        // A route whose name cannot be read gets a unique one, so that no false error about a duplicate follows.
        let unknown = format!("?{}", self.config.routes.len());
        let is_known = path.is_some();
        let mut route = RouteDefinition {
            hosts,
            methods,
            headers: table.table("match").map(matches).unwrap_or_default(),
            request_headers: table.value("headers").map(|value| headers::changes(&value)).unwrap_or_default(),
            response_headers: table
                .value("response-headers")
                .map(|value| headers::changes(&value))
                .unwrap_or_default(),
            body_bytes_max: table.value("max-body").and_then(|value| value.size()),
            ..RouteDefinition::new(String::new(), path.unwrap_or_else(|| ANY_PATH.to_owned()))
        };
        route.name = match table.value("name") {
            Some(value) => sections::name(&value).unwrap_or_else(|| unknown.clone()),
            None if is_known => self.shown_name(&table, &made_name(&route)),
            None => unknown.clone(),
        };
        if self.is_taken(value, &table, &route) {
            route.name = unknown;
        }
        table.spell("name", show_text(&route.name));
        if let Some(value) = table.value("limit") {
            let named = |number| shorthand_name(&route.name, number);
            route.limits = self.policies.read(&value, (self.config, self.places), named);
        }
        if let Some(action) = self.action(&table) {
            route.action = action;
        }
        if let Some(table) = table.table("timeouts") {
            table.duration_if("response", &mut route.timeouts.response);
            table.duration_if("try", &mut route.timeouts.per_try);
            table.duration_if("total", &mut route.timeouts.total);
            table.duration_if("stall", &mut route.timeouts.stall);
            table.duration_if("tunnel-idle", &mut route.timeouts.tunnel_idle);
            upstream::warn_beyond(
                &table,
                route.timeouts.total,
                [("response", route.timeouts.response), ("try", route.timeouts.per_try)],
            );
        }
        // Whole, because a route's `retry` replaces the upstream's, whatever that says.
        route.retry = table.table("retry").map(|table| retry::read(&table, BUDGET_UNKNOWN));
        table.boolean("upgrade", &mut route.upgrade);
        table.word("path-escapes", &PATH_ESCAPES, &mut route.path_escapes);
        route.compress = match table.value("compress") {
            Some(value) => compress::of_route(&value, self.compress.as_ref()),
            None => self.compress.clone(),
        };
        table.spell("compress", route.compress.as_deref().map(compress::show).unwrap_or_default());
        route.access = self.access(&table);
        route
    }

    /// A made name without the secrets of the path, because metrics and logs have it: numbered if that makes it another
    /// route's.
    fn shown_name(&self, table: &Table<'_>, made: &str) -> String {
        let name = table.ctx.secrets.borrow().hide(made);
        let is_free = |name: &String| name == made || !self.named.contains_key(name);
        let numbered = (2..=self.named.len() + 2).map(|number| format!("{name} {number}"));
        std::iter::once(name.clone()).chain(numbered).find(is_free).unwrap_or(name)
    }

    /// Whether an earlier route has the name, which is reported.
    fn is_taken(&mut self, value: &Value<'_>, table: &Table<'_>, route: &RouteDefinition) -> bool {
        let name = table.value("name").map(|value| value.place);
        let place = name.unwrap_or(table.place);
        let entry = match self.named.entry(route.name.clone()) {
            Entry::Occupied(entry) => entry,
            Entry::Vacant(entry) => {
                entry.insert((self.config.routes.len(), place));
                return false;
            }
        };
        let (first, beside) = *entry.get();
        // Names that were made of the same conditions would be told apart in vain: the routes themselves are alike.
        let is_same = |first: &RouteDefinition| {
            first.headers == route.headers && first.hosts == route.hosts && first.path == route.path
        };
        let is_alike = name.is_none() && self.config.routes.get(first).is_some_and(is_same);
        let (message, hint) = match is_alike {
            true if route.name == ANY_PATH => (
                "two routes match every request".to_owned(),
                "give one of them a `host` or a `path`, or delete it",
            ),
            true => (
                format!("two routes match the same requests, {}", quoted(&route.name)),
                "give one of them another host, path or method, or delete it",
            ),
            false => (format!("two routes are named {}", quoted(&route.name)), "give each its own `name`"),
        };
        value.wrong_beside(place, message, hint, beside);
        true
    }

    /// What happens to an admitted request: one of `to`, `respond` and `redirect`.
    fn action(&mut self, table: &Table<'_>) -> Option<ActionDefinition> {
        let (rewrite, sticky) = (table.value("rewrite"), table.value("sticky"));
        let copies = table.value("mirror");
        let (to, respond, redirect) = (table.value("to"), table.value("respond"), table.value("redirect"));
        let action = match (&to, &respond, &redirect) {
            (Some(to), None, None) => self.forward(to),
            (None, Some(respond), None) => headers::respond(respond).map(ActionDefinition::Respond),
            (None, None, Some(redirect)) => redirect::of_route(redirect),
            (None, None, None) => {
                table.lacks(
                    &["to", "respond", "redirect"],
                    "a route needs `to`, `respond` or `redirect`",
                    "write `to = \"http://127.0.0.1:3000\"`, or `to = \"echo\"` to try things out",
                );
                None
            }
            _ => {
                table.wrong("a route has only one of `to`, `respond` and `redirect`", "leave the others out");
                None
            }
        };
        let path = rewrite.as_ref().and_then(path);
        let mirror = copies.as_ref().and_then(|value| mirror::read(value, |text| self.upstream(text, &[])));
        let by = sticky.as_ref().and_then(|value| windows::dimension_of_choice(&value.text()?));
        let mut action = action?;
        let ActionDefinition::Forward { to, rewrite } = &mut action else {
            let (why, hint) = match action {
                ActionDefinition::Echo => (
                    "has no effect with `to = \"echo\"`, which answers by itself",
                    "name another upstream in `to`",
                ),
                _ => ("needs an upstream", "leave it out, or name an upstream in `to`"),
            };
            for key in ["rewrite", "mirror", "retry", "timeouts"] {
                let value = table.value(key);
                value.iter().for_each(|it| it.wrong_key(format!("`{key}` {why}"), hint));
            }
            sticky.iter().for_each(needs_several);
            return Some(action);
        };
        (*rewrite, to.mirror) = (path, mirror);
        match &sticky {
            Some(_) if to.parts.len() > 1 => to.sticky = by,
            sticky => sticky.iter().for_each(needs_several),
        }
        Some(action)
    }

    /// The upstream that a route names, or writes as a URL; or several with their shares.
    fn forward(&mut self, to: &Value<'_>) -> Option<ActionDefinition> {
        if to.is_array() || to.is_table() {
            let split = self.split(to)?;
            if let [only] = &*split.parts {
                to.spell(show_text(&only.upstream));
            }
            return Some(ActionDefinition::Forward { to: split, rewrite: None });
        }
        let text = to.text()?;
        if text.text == upstream::ECHO {
            to.spell(show_text(upstream::ECHO));
            return Some(ActionDefinition::Echo);
        }
        let name = self.upstream(&text, &[upstream::ECHO])?;
        to.spell(show_text(&name));
        Some(ActionDefinition::Forward { to: DestinationDefinition::one(name), rewrite: None })
    }

    /// Several upstreams with their shares. `None` if one of them cannot be read.
    fn split(&mut self, to: &Value<'_>) -> Option<DestinationDefinition> {
        let numbers = numbers(to).unwrap_or_default();
        if numbers.iter().any(|(name, _)| !matches!(*name, "upstream" | "weight")) {
            let part = |(name, weight): &(&str, &str)| {
                show_table([("upstream", show_text(name)), ("weight", (*weight).to_owned())])
            };
            let hint = format!("write `to = {}`", array(numbers.iter().map(part)));
            to.wrong("`to` takes weights in a list", hint);
            return None;
        }
        let values = if to.is_table() { vec![to.clone()] } else { to.array()? };
        if values.is_empty() {
            to.wrong("`to` is empty", "name an upstream");
            return None;
        }
        let parts: Vec<_> = values.iter().map(|value| self.part(value)).collect();
        let parts = parts.into_iter().collect::<Option<_>>()?;
        Some(DestinationDefinition { parts, ..DestinationDefinition::default() })
    }

    /// One upstream of several: its name or URL, or a table with that and a weight.
    fn part(&mut self, value: &Value<'_>) -> Option<WeightedUpstream> {
        if !value.is_table() {
            let text = value.text()?;
            return Some(WeightedUpstream { upstream: self.upstream(&text, &[])?, weight: 1 });
        }
        let table = value.table()?;
        let name = table.value("upstream");
        let mut weight = 1;
        table.number("weight", &mut weight);
        let upstream = self.upstream(&name?.text()?, &[])?;
        Some(WeightedUpstream { upstream, weight })
    }

    /// The name of an upstream, which may be written as a URL; `others` may be written, too.
    fn upstream(&mut self, text: &Text<'_>, others: &[&str]) -> Option<String> {
        if self.upstreams.contains(&text.text) {
            return Some(text.text.clone());
        }
        if text.text == upstream::ECHO {
            text.wrong("`echo` can be neither one of several upstreams nor a mirror", "name upstreams only");
            return None;
        }
        if text.ctx.is_misspelt("upstream", &text.text) {
            return None;
        }
        if !upstream::is_url(&text.text) {
            let mut names: Vec<&str> =
                self.config.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
            names.extend(others);
            let meant = || upstream::url_meant(&text.text).filter(|_| !text.has_reference);
            let hint = words::did_you_mean(&text.text, &names).or_else(meant).unwrap_or_else(|| {
                let echo = if others.is_empty() { "" } else { ", or `echo`, which is built in" };
                format!("write a URL, or the name of an `[upstream.<name>]`{echo}")
            });
            text.wrong(format!("there is no upstream {}", text.called()), hint);
            return None;
        }
        let upstream = upstream::of_url(text)?;
        let name = upstream.name.clone();
        text.spell(&name);
        if self.upstreams.insert(name.clone()) {
            let keys = vec![("servers", upstream::show_servers(&upstream.servers))];
            text.ctx.make(ImpliedSection { section: "upstream", name: name.clone(), comment: None, keys });
            self.config.upstreams.push(upstream);
            self.places.upstreams.push(Fields { whole: Some(text.place), ..Fields::default() });
        }
        Some(name)
    }

    fn access(&self, table: &Table<'_>) -> AccessDefinition {
        let auth = table.value("auth").map(|value| self.auth(&value)).unwrap_or_default();
        let require = table.value("require");
        if let Some(value) = require.as_ref().filter(|_| table.value("auth").is_none()) {
            value.wrong_key("`require` needs `auth`: it identifies clients", "name an `[auth.<name>]`");
        }
        AccessDefinition {
            auth,
            require: require.and_then(|value| access::require(&value)),
            addresses: listener::addresses(table),
            cors: table.value("cors").and_then(|value| access::cors(&value)),
        }
    }

    /// The authentication methods that a route names.
    fn auth(&self, value: &Value<'_>) -> Vec<String> {
        let texts = value.some_texts("leave it out to serve everyone without authentication");
        let names: Vec<&str> = self.auth_names.iter().map(String::as_str).collect();
        let mut auth: Vec<String> = Vec::new();
        for text in texts.into_iter().filter(|text| !text.ctx.is_misspelt("auth", &text.text)) {
            if !names.contains(&text.text.as_str()) {
                let foreign = || foreign_value("auth", &text.text, &[]).map(str::to_owned);
                let hint = words::did_you_mean(&text.text, &names)
                    .or_else(foreign)
                    .or_else(|| text.each())
                    .unwrap_or_else(|| "write the name of an `[auth.<name>]`".to_owned());
                text.wrong(format!("no `[auth.<name>]` is called {}", text.shown()), hint);
            } else if auth.contains(&text.text) {
                text.wrong(format!("{} is named twice", text.shown()), "name it once");
            } else {
                auth.push(text.text);
            }
        }
        auth
    }
}

fn needs_several(sticky: &Value<'_>) {
    let hint = "write `to = [{ upstream = \"a\", weight = 95 }, { upstream = \"b\", weight = 5 }]`";
    sticky.wrong_key("`sticky` needs several upstreams", hint);
}

/// The policy of a shorthand is named after its route: `route:orders`, then `route:orders#2`.
fn shorthand_name(route: &str, number: usize) -> String {
    let suffix = if number > 1 { format!("#{number}") } else { String::new() };
    // Cut to the length of a name. Slicing is safe, because a route's name is ASCII.
    let room = words::NAME_BYTES_MAX - "route:".len() - suffix.len();
    format!("route:{}{suffix}", &route[..route.len().min(room)])
}

/// A name that says which requests a route takes: `GET,POST api.example.com/v1/orders/{id} [x-beta]`.
fn made_name(route: &RouteDefinition) -> String {
    let mut name = String::new();
    if !route.methods.is_empty() {
        let methods: Vec<&str> = route.methods.iter().map(http::Method::as_str).collect();
        name.push_str(&methods.join(","));
        name.push(' ');
    }
    name.push_str(&route.hosts.join(","));
    name.push_str(&route.path);
    // Only names of headers, because a value may be a secret, and a route's name appears in logs and metrics.
    for header in &route.headers {
        name.push_str(&format!(" [{}]", header.name));
    }
    let is_kept = |character: &char| (' '..='~').contains(character) && !"\"\\".contains(*character);
    name.chars().map(|it| if is_kept(&it) { it } else { '_' }).take(words::NAME_BYTES_MAX).collect()
}

fn hosts(value: &Value<'_>) -> Vec<String> {
    let texts = value.some_texts("leave it out for any host");
    texts.iter().filter_map(host).collect()
}

fn host(text: &Text<'_>) -> Option<String> {
    let host = text.text.to_ascii_lowercase();
    let url = host.parse::<Uri>().ok().filter(|url| url.scheme().is_some() && !text.has_reference);
    if let Some(name) = url.as_ref().and_then(Uri::host) {
        text.wrong(format!("{} is not a host", text.shown()), format!("write {}", quoted(name)));
        return None;
    }
    let hint = match &host {
        host if host.contains("://") => "leave the scheme out: `api.example.com`",
        host if host.contains('/') => "leave the path out; it has its own key, `path`",
        // `_` gets the same hint, because it is nginx's idiom for any other host.
        host if host.is_empty() || host == "*" || host == "_" => "leave `host` out for any host",
        host if host.contains(':') && !host.starts_with('[') => "leave the port out: the listener decides it",
        host => match HostPattern::parse(host) {
            Ok(_) => {
                text.spell(host);
                return Some(host.clone());
            }
            Err(error) => {
                let hint = text.each().unwrap_or_else(|| error.to_string());
                text.wrong(format!("{} is not a host", text.shown()), hint);
                return None;
            }
        },
    };
    text.wrong(format!("{} is not a host", text.shown()), hint);
    None
}

fn path(value: &Value<'_>) -> Option<String> {
    let text = value.text()?;
    if text.text.is_empty() {
        text.wrong(format!("`{}` is empty", value.key), "write `/` for the root");
        return None;
    }
    if !text.text.starts_with('/') {
        let url = text.text.parse::<Uri>().ok().filter(|url| url.scheme().is_some());
        let host = url.as_ref().and_then(Uri::host);
        // A hint of its own, because `~ ^/x`, `^~ /x` and `= /x` are nginx's syntax, and Traefik has rules in backticks.
        let hint = match text.text.starts_with(['~', '^', '=', '@']) || text.text.contains(['`', '(']) {
            true => "write the path alone, with `{name}` for one segment and `{*rest}` at the end for all that follows; \
                     the gateway has no regular expressions"
                .into(),
            false if text.has_reference => "write it like `/v1/orders/{id}`".into(),
            false if host.is_some() && value.key == "rewrite" => {
                "write the path alone: the server goes into `to`".into()
            }
            false if host.is_some() => Hint::from(format!(
                "write the host and the path apart: `host = {}` and `path = {}`",
                show_text(host.unwrap_or_default()),
                show_text(url.as_ref().map_or("/", Uri::path))
            )),
            false => {
                let rest = if text.text.ends_with("/*") || text.text == "*" { "{*rest}" } else { "" };
                let begin = if rest.is_empty() { &*text.text } else { text.text.trim_end_matches('*') };
                format!("write {}", quoted(&format!("/{begin}{rest}"))).into()
            }
        };
        text.wrong(format!("{} does not start with `/`", text.shown()), hint);
        return None;
    }
    if let Some(at) = text.text.find(['?', '#']) {
        let hint = match value.key.as_str() {
            "rewrite" => "end the path before it: `rewrite` sets the path, and the client's query stays",
            _ => "end the path before it: a route does not match a query or a fragment",
        };
        text.wrong_within(at..text.text.len(), format!("{} has more than a path", text.shown()), hint);
        return None;
    }
    if value.key == "rewrite" {
        headers::warn_of_variables(&text);
    }
    Some(text.text)
}

fn matches(table: Table<'_>) -> Vec<HeaderMatchDefinition> {
    let headers = table.table("header").map(|headers| headers.entries()).unwrap_or_default();
    headers.iter().filter_map(header_match).collect()
}

fn header_match(value: &Value<'_>) -> Option<HeaderMatchDefinition> {
    let name = headers::header_name(&value.key, |message, hint| value.wrong_key(message, hint))?;
    match value.as_boolean() {
        Some(true) => Some(HeaderMatchDefinition { name, value: None }),
        Some(false) => {
            value.wrong("a route cannot match the absence of a header", "write `true` or the exact value");
            None
        }
        None => {
            let text = value.text()?;
            let is_pattern = text.text.starts_with(['^', '~']) || text.text.ends_with('$');
            if is_pattern || text.text == "*" || text.text.contains(".*") {
                let message = "a header is compared with this text as it stands, not as a pattern";
                text.warn(message, "write the whole value, or `true` for any");
            }
            Some(HeaderMatchDefinition { name, value: Some(text.text) })
        }
    }
}

/// Of the upstream's budget a route knows only that there is one.
const BUDGET_UNKNOWN: u32 = 100;
/// The path of a route that names none.
const ANY_PATH: &str = "/{*rest}";
