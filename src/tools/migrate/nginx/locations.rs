//! Locations as routes.

use config::printer::{array, key, size as show_size, table, text};

use super::super::draft::{Route, texts};
use super::super::fields::{Fields, TO_SERVERS};
use super::super::regex::beginning;
use super::super::template;
use super::access::{EVERYBODY, is_guarded, is_redirect, refuses};
use super::lexer::Directive;
use super::maps::{self, named_location, pass_of};
use super::prefix::{self, Match};
use super::redirects::Rewritten;
use super::scope::{MapChoice, Scope};
use super::server::Server;
use super::servers::may_keep_out;
use super::upstreams::Target;
use super::values::{VarScope, size};
use super::{Closing, Reading};

impl<'d> Reading<'d> {
    /// The routes of one location, and of those within it.
    pub(super) fn location(&mut self, location: &'d Directive, scope: &Scope<'d>, server: &Server<'d>) {
        let inner = scope.within(location.taken().block());
        let (at, known) = (Match::of(location), self.closings.len());
        for nested in inner.own("location") {
            self.location(nested, &inner, server);
        }
        if let Match::Prefix(text) = &at {
            // Bounded by the location, because requests come to an expression within it by its beginning.
            let within = self.closings[known..].iter_mut().filter(|closing| closing.begin == "/");
            within.for_each(|closing| closing.begin.clone_from(text));
        }
        let all = match (location.arg(0), &at) {
            ("~", Match::Other(_)) => prefix::alternatives(location.arg(1)),
            _ => None,
        };
        match all {
            Some(all) => {
                for (text, exact) in all {
                    self.location_at(&Match::LiteralRegex { text, exact }, location, &inner, server);
                }
            }
            None => self.location_at(&at, location, &inner, server),
        }
    }

    /// The route of a location, at one of the places it names.
    fn location_at(&mut self, at: &Match, location: &'d Directive, inner: &Scope<'d>, server: &Server<'d>) {
        if is_named_by(server.block.block(), location.arg(0)) {
            // Nothing to add, because its requests are forwarded where they come from.
            location.taken_whole();
            return;
        }
        let Some(path) = at.pattern() else {
            let why = match at {
                Match::Other(_) if matches!(location.arg(0), "~" | "~*") && is_guarded(location.block()) => {
                    self.close_expression(location)
                }
                Match::Other(why) => {
                    format!("{why}; until you rewrite it, its requests go to the other locations")
                }
                _ => "no request has such a path".to_owned(),
            };
            location.taken_whole();
            self.draft.notes.left_out_line(location, why);
            return;
        };
        if let Match::LiteralRegex { text: literal, .. } = at
            && server.has_longer_prefix(literal)
        {
            let mut why = "in nginx it takes precedence over longer prefixes, here the longer path wins";
            if is_guarded(location.block()) {
                why = "in nginx it takes precedence over longer prefixes; they are closed (501) here, because it \
                    refuses clients";
                let (place, begin) = (location.place.clone(), literal.clone());
                self.closings.push(Closing { place, begin, has_route: true });
            }
            self.draft.notes.line_differs(location, why);
        }
        let mut route =
            Route { place: location.place.clone(), hosts: server.hosts.clone(), path, ..Route::default() };
        if matches!(at, Match::LiteralRegex { .. }) && is_guarded(location.block()) {
            // The prefix is closed, because in nginx the expression goes before the prefix of the same text.
            let same = self.draft.routes.iter_mut().filter(|known| known.is_beside(&route));
            same.for_each(Route::close);
        }
        let known = self.draft.notes.differing.len();
        let below = Match::Prefix(format!("{}/", at.text()));
        let (own, mut at) = (at, at);
        if let Some(found) = inner.own("rewrite").iter().find(|found| at.is_split(found.arg(0))) {
            let why = "nginx matches the prefix within a segment, too; here such paths go to other locations";
            self.draft.notes.line_differs(*found, why);
            route.path = below.pattern().unwrap_or(route.path);
            at = &below;
        }
        let mut parts = maps::by_maps(self, route, location, inner, server);
        for (route, scope) in &mut parts {
            self.answer_at(route, at, scope, server);
        }
        if parts.iter().all(|(route, _)| route.is_closed()) {
            // Taken back, because nothing of a closed location is taken over.
            self.draft.notes.differing.truncate(known);
        } else {
            self.list_slash(own, location, server);
        }
        // The whole alone, if its parts do what it does.
        let mut parts: Vec<Route> = parts.into_iter().map(|(route, _)| route).collect();
        let does_as = |whole: &Route, part: &Route| part.keys == whole.keys && part.limits == whole.limits;
        if parts.last().is_some_and(|whole| parts.iter().all(|part| does_as(whole, part))) {
            parts.drain(..parts.len() - 1);
        }
        add_parts(self, parts, location, inner);
    }

    /// Says what a location opens of the guarded one around it, as a slash at the end decides nothing here: an exact one
    /// its path with a slash, another one that of its text without the slash. nginx redirects the latter if the location
    /// passes requests on.
    fn list_slash(&mut self, at: &Match, location: &Directive, server: &Server<'_>) {
        let block = location.block();
        let (text, is_passed) = (at.text(), block.iter().any(|inside| inside.name.ends_with("_pass")));
        let path = match (at.is_exact(), text.strip_suffix('/')) {
            (true, None) if !is_guarded(block) => format!("{text}/"),
            (false, Some(bare)) if !bare.is_empty() && !is_passed && !refuses(block) => bare.to_owned(),
            _ => return,
        };
        let is_exact = |other: &Directive| other.arg(0) == "=" && other.arg(1) == path;
        if server.block.block().iter().any(|inside| inside.name == "location" && is_exact(inside)) {
            return;
        }
        let others = server.block.block().iter().filter(|inside| inside.name == "location");
        let around = others.filter_map(|other| match Match::of(other) {
            Match::Prefix(prefix) if path.starts_with(&prefix) => Some((prefix, other)),
            _ => None,
        });
        let longest = around.max_by_key(|(prefix, _)| prefix.len());
        if let Some((prefix, guard)) = longest.filter(|(_, other)| is_guarded(other.block())) {
            let line = guard.place.line;
            let why = format!(
                "`{path}` matches this location, too, and is open, although `{prefix}` in line {line} refuses clients"
            );
            self.draft.notes.left_out_line(location, why);
        }
    }

    /// Has the routes closed that an expression keeps clients out of, and says so.
    fn close_expression(&mut self, location: &Directive) -> String {
        let begin = match location.arg(0) {
            "~" => beginning(location.arg(1)).map(|(begin, _)| begin),
            // No beginning, because in another case it is another path.
            _ => None,
        };
        let begin = begin
            .as_deref()
            .and_then(|begin| begin.rsplit_once('/'))
            .map_or("/".to_owned(), |(begin, _)| format!("{begin}/"));
        let why = format!(
            "error: no route can express which paths it refuses, so all forwarding routes below `{begin}` are closed \
             (501); if the servers refuse these paths themselves, remove it and migrate again"
        );
        self.closings.push(Closing { place: location.place.clone(), begin, has_route: false });
        why
    }

    /// What a location does with its requests.
    pub(super) fn answer_at(
        &mut self,
        route: &mut Route,
        at: &Match,
        scope: &Scope<'d>,
        server: &Server<'d>,
    ) {
        if let Some((files, named)) = named_location(scope, server) {
            let why =
                format!("files are not served: requests for existing files go to `{}`, too", named.arg(0));
            self.draft.notes.left_out_line(files.taken(), why);
            return self.answer_at(route, at, &scope.within(named.taken().block()), server);
        }
        let pass = pass_of(scope);
        let url = pass.map(|pass| pass.taken().arg(0)).unwrap_or_default();
        let around = server.around(scope);
        let target = Target::of(url, &around);
        let proxy_host = target.as_ref().map(|target| target.host.clone()).unwrap_or_default();
        let around = VarScope { proxy_host: &proxy_host, ..around };
        self.shared(route, scope, &around);
        // Answered first, because nginx is done with `return` and `rewrite` before it looks at limits and at who may
        // come in, but not before conditions.
        if let Some(found) = scope.own("return").first() {
            return match self.answer(found, &around) {
                Some((key, value)) if !self.has_refusing_condition(scope) => answered(route, key, value),
                _ => route.close(),
            };
        }
        let mut rewrite = None;
        for found in scope.own("rewrite") {
            let is_routed_again = found.arg(2).is_empty() && !is_redirect(found);
            if is_routed_again && may_keep_out(server.block.block(), found.arg(1)) {
                let why = "it leads to a location that refuses clients, because without `break` a rewritten path is \
                    routed again; the location answers 501";
                self.draft.notes.left_out_line(found.taken(), why);
                return route.close();
            }
            match self.rewritten(found, at, &around) {
                Some(Rewritten::Answer(..)) if self.has_refusing_condition(scope) => return route.close(),
                Some(Rewritten::Answer(key, value)) => return answered(route, key, value),
                Some(Rewritten::Path(path)) => rewrite = Some(path),
                None => return route.close(),
            }
        }
        let Some(limits) = self.limits(scope, &around) else { return route.close() };
        route.limits = limits;
        let Some(access) = self.access(scope) else { return route.close() };
        route.keys.extend(access);
        match (pass, target) {
            (Some(pass), Some(target)) => self.forward(route, pass, &target, rewrite, at, scope, &around),
            (Some(pass), None) => {
                match around.unknown_choice(url) {
                    Some(MapChoice { place, what, .. }) => {
                        let why = "no route can say where its requests go: they are closed (501)";
                        self.draft.notes.left_out(place, what, why);
                    }
                    None => {
                        let why = "its destination depends on the request; the location answers 501";
                        self.draft.notes.left_out_line(pass, why);
                    }
                }
                route.close();
            }
            (None, _) => self.unserved(route, scope),
        }
    }

    /// A place of files, scripts or of nothing.
    fn unserved(&mut self, route: &mut Route, scope: &Scope<'_>) {
        const SERVES: [&str; 9] = [
            "root",
            "alias",
            "try_files",
            "fastcgi_pass",
            "uwsgi_pass",
            "scgi_pass",
            "memcached_pass",
            "autoindex",
            "index",
        ];
        // Refused, as in nginx, which does not come to files then.
        if route.keys.iter().any(|(key, list)| *key == "deny" && *list == texts(EVERYBODY)) {
            route.keys.retain(|(key, _)| *key != "deny");
            return answered(route, "respond", "{ status = 403 }".to_owned());
        }
        let found = SERVES.iter().find_map(|word| scope.last(word));
        let (place, what) = match found {
            Some(found) => (found.taken().place.clone(), found.shown()),
            None => (route.place.clone(), "location".to_owned()),
        };
        let why = "files and scripts are not served: name a server that does; the location answers 501";
        self.draft.notes.left_out(&place, &what, why);
        route.close();
    }

    /// Keys that every kind of route may have.
    fn shared(&mut self, route: &mut Route, scope: &Scope<'_>, around: &VarScope<'_, '_>) {
        let mut add: Vec<(String, String)> = Vec::new();
        let mut always = false;
        for field in scope.all("add_header") {
            let Some(value) = around.template(field.taken().arg(1)) else {
                self.draft.notes.left_out_line(field, "a variable in its value has no counterpart");
                continue;
            };
            if field.arg(2) == "always" {
                always = true;
            } else {
                let why = "the header is added to responses of any status (nginx: only some)";
                self.draft.notes.line_differs(field, why);
            }
            add.push((key(&field.arg(0).to_ascii_lowercase()), text(&value)));
        }
        let remove: Vec<String> =
            scope.all("proxy_hide_header").iter().map(|hide| text(hide.taken().arg(0))).collect();
        let mut changes = Vec::new();
        if !remove.is_empty() {
            changes.push(("remove", format!("[{}]", remove.join(", "))));
        }
        if !add.is_empty() {
            changes.push(("add", table(merged(add))));
        }
        if always {
            changes.push(("always", always.to_string()));
        }
        if !changes.is_empty() {
            route.key("response-headers", table(changes));
        }
        let written = scope.last("client_max_body_size").map(Directive::taken);
        let max_body = written.and_then(|found| size(found.arg(0)));
        if let (Some(found), None) = (written, max_body) {
            self.draft.notes.line_differs(found, "this is not a size: nginx's default, 1 MiB, is assumed");
        }
        let max_body = max_body.unwrap_or(BODY_MAX);
        // One PiB for 0, because nginx writes that for no bound.
        route.key("max-body", show_size(if max_body == 0 { 1 << 50 } else { max_body }));
    }

    #[expect(clippy::too_many_arguments, reason = "each is a different part of one location")]
    fn forward(
        &mut self,
        route: &mut Route,
        pass: &Directive,
        target: &Target,
        rewrite: Option<String>,
        at: &Match,
        scope: &Scope<'_>,
        around: &VarScope<'_, '_>,
    ) {
        let Some(upstream) = self.upstream(target, scope) else { return route.close() };
        route.key("to", text(&upstream));
        match (rewrite, &target.path) {
            // First, because what the URL says of the path does not count where that was rewritten.
            (Some(path), None) if target.tail != Some("$request_uri") => route.key("rewrite", text(&path)),
            (Some(path), Some(_)) if !target.is_variable => route.key("rewrite", text(&path)),
            (_, Some(path)) => match replaced(path, at, target.is_variable) {
                Some(path) => path.iter().for_each(|path| route.key("rewrite", text(path))),
                None => {
                    self.draft.notes.left_out_line(
                        pass,
                        "its path has characters that a path cannot have; the location answers 501",
                    );
                    return route.close();
                }
            },
            (_, None) => {}
        }
        if target.is_variable && target.path.is_some() || target.tail == Some("$uri") {
            let why = "the query is sent, too";
            self.draft.notes.line_differs(pass, why);
        }
        self.request_fields(route, scope, around);
    }

    /// `proxy_set_header`: by default nginx sends the host that `proxy_pass` names.
    fn request_fields(&mut self, route: &mut Route, scope: &Scope<'_>, around: &VarScope<'_, '_>) {
        let mut set = Vec::new();
        let (mut remove, mut unknown) = (Vec::new(), Fields::default());
        let mut host = Some(template::literal(around.proxy_host));
        if around.proxy_host.starts_with("unix:") {
            host = Some("localhost".to_owned());
        }
        for field in [scope.all("proxy_set_header"), scope.all("grpc_set_header")].concat() {
            let (name, value) = (field.taken().arg(0).to_ascii_lowercase(), field.arg(1));
            match (name.as_str(), value) {
                ("host", "$http_host") => host = None,
                ("host", value) => match around.template(value) {
                    Some(value) => host = Some(value),
                    None => {
                        let why = "a variable in its value has no counterpart";
                        self.draft.notes.left_out_line(field, why);
                    }
                },
                ("upgrade", "$http_upgrade") => route.key("upgrade", true),
                ("connection" | "upgrade", _) => self.draft.notes.needless(&field.place, &field.shown()),
                // Left out, because the gateway writes these itself, and to the same effect.
                ("x-forwarded-for", "$proxy_add_x_forwarded_for" | "$remote_addr")
                | ("x-forwarded-proto", "$scheme")
                | ("x-forwarded-host", "$host" | "$http_host") => {
                    self.draft.notes.needless(&field.place, &field.shown());
                }
                (_, "") => remove.push(name),
                // Left out, because the client's own passes unchanged.
                (name, value) if is_clients_own(name, value) => {
                    self.draft.notes.needless(&field.place, &field.shown());
                }
                (_, value) => match around.template(value) {
                    Some(value) => set.push((key(&name), text(&value))),
                    None => self.draft.notes.left_out_line(field, unknown.take_unknown(name)),
                },
            }
        }
        set.extend(host.filter(|host| !host.is_empty()).map(|host| ("host".to_owned(), text(&host))));
        remove.extend(unknown.remove);
        let mut changes = Vec::new();
        if !remove.is_empty() {
            changes.push(("remove", array(remove.iter().map(|name| text(name)))));
        }
        if !set.is_empty() {
            changes.push(("set", table(merged(set))));
        }
        if !changes.is_empty() {
            route.key("headers", table(changes));
        }
    }

    /// Adds a route, with `limit_except` as a route for the methods that may and one for all others.
    fn add_allowed_methods(&mut self, mut route: Route, location: &Directive, scope: &Scope<'d>) {
        if let Some(except) = scope.own("limit_except").first() {
            let inside = Scope::new(except.taken().block());
            let denies = inside.rules();
            let is_plain =
                denies.len() == 1 && denies[0].taken().arg(0) == "all" && except.block().len() == 1;
            if !is_plain {
                except.taken_whole();
                let why =
                    "only `deny all` can be migrated; the location is closed (501) until you rewrite it";
                self.draft.notes.left_out_line(*except, why);
                route.close();
            } else {
                let mut others = Route { keys: Vec::new(), limits: Vec::new(), ..route.clone() };
                others.respond(403);
                route.methods = except.args.clone();
                if route.methods.iter().any(|method| method == "GET")
                    && !except.args.iter().any(|it| it == "HEAD")
                {
                    route.methods.push("HEAD".to_owned());
                }
                self.draft.add_route(others, &location.shown());
            }
        }
        self.draft.add_route(route, &location.shown());
    }
}

/// Adds the routes of a location, the whole of it last, unless an earlier place takes all of its requests.
fn add_parts<'d>(reading: &mut Reading<'d>, parts: Vec<Route>, location: &Directive, scope: &Scope<'d>) {
    match parts.last() {
        // None of them, because a part would go before that place.
        Some(whole) if reading.draft.routes.iter().any(|known| known.ties(whole)) => {
            reading.draft.add_route(whole.clone(), &location.shown());
        }
        _ => parts.into_iter().for_each(|part| reading.add_allowed_methods(part, location, scope)),
    }
}

/// Whether a value is that of the client's own field of this name.
fn is_clients_own(name: &str, value: &str) -> bool {
    let variable = name.replace('-', "_");
    value.strip_prefix("$http_") == Some(&variable) && !TO_SERVERS.contains(&name)
        || matches!(variable.as_str(), "content_length" | "content_type")
            && value.strip_prefix('$') == Some(&variable)
}

/// Whether a `try_files` of a block falls back to this location.
fn is_named_by(block: &[Directive], name: &str) -> bool {
    let is_it = |inside: &Directive| {
        inside.name == "try_files" && inside.args.last().is_some_and(|last| last == name)
            || inside.name == "location" && is_named_by(inside.block(), name)
    };
    name.starts_with('@') && block.iter().any(is_it)
}

/// Answers by itself, without what is meant for an upstream, because that does not belong to it.
fn answered(route: &mut Route, key: &'static str, value: String) {
    route.keys.retain(|(key, _)| *key != "max-body");
    route.key(key, value);
}

/// Fields of one name as an array.
fn merged(fields: Vec<(String, String)>) -> Vec<(String, String)> {
    let mut merged: Vec<(String, Vec<String>)> = Vec::new();
    for (name, value) in fields {
        match merged.iter_mut().find(|(known, _)| *known == name) {
            Some((_, values)) => values.push(value),
            None => merged.push((name, vec![value])),
        }
    }
    let shown = |values: Vec<String>| match values.as_slice() {
        [only] => only.clone(),
        _ => format!("[{}]", values.join(", ")),
    };
    merged.into_iter().map(|(name, values)| (name, shown(values))).collect()
}

/// The path sent upstream where `proxy_pass` has one: it takes the place of what the location matched. An inner `None`:
/// the path stays.
fn replaced(path: &str, at: &Match, is_whole: bool) -> Option<Option<String>> {
    if path.contains(['$', '?', '#']) {
        return None;
    }
    let new = template::literal(path);
    if at.is_exact() || is_whole {
        return Some(Some(new));
    }
    Some((at.text() != path).then(|| format!("{new}{{rest}}")))
}

/// nginx's default of `client_max_body_size`.
const BODY_MAX: u64 = 1 << 20;
