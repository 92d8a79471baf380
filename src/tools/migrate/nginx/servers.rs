//! `server`: whose requests it takes, and its locations as routes.

use super::super::draft::{Route, Section, literal_path};
use super::super::notes::SourceLine;
use super::super::order;
use super::super::other_ports::{self, Ports};
use super::access::{is_guarded, is_redirect};
use super::lexer::Directive;
use super::listeners::Redirecting;
use super::ports::guarded;
use super::prefix::{Match, rewritten_from};
use super::scope::Scope;
use super::server::{GuardedPath, Server};
use super::{Closing, Reading, maps};

impl<'d> Reading<'d> {
    /// All servers, their listeners and routes.
    pub(super) fn servers(&mut self, scope: &Scope<'d>) {
        let http = self.http;
        let blocks = http.iter().filter(|directive| directive.name == "server" && directive.block.is_some());
        let mut servers: Vec<Server<'d>> = blocks.filter_map(|block| self.server(block)).collect();
        let redirecting = self.redirecting(&servers, scope);
        self.listeners(&servers, &redirecting, scope);
        for server in servers.iter_mut() {
            if self.uncertified.iter().any(|block| std::ptr::eq(*block, server.block)) {
                server.kept.push((server.block.place.clone(), "/".to_owned()));
            }
        }
        let is_served =
            |server: &Server<'_>| !server.listens.iter().all(|it| redirecting.contains_key(&it.address));
        servers.retain(is_served);
        tell_apart(&mut servers, &redirecting);
        self.leave_out_ports(&servers);
        self.join_ports(&mut servers, &redirecting);
        servers.sort_by_key(|server| server.is_apart);
        self.choose_default(&mut servers);
        let is_alone = servers.len() < 2;
        for server in &servers {
            let parts = maps::by_hosts(self, server, &servers, scope);
            if !server.is_apart {
                for (server, scope) in &parts {
                    let known = self.draft.routes.len();
                    self.routes(server, scope, is_alone);
                    self.close_kept(server, known);
                }
                continue;
            }
            let first = std::mem::take(&mut self.draft.routes);
            parts.iter().for_each(|(server, scope)| self.routes(server, scope, is_alone));
            let addresses: Vec<&str> = server.listens.iter().map(|listen| listen.address.as_str()).collect();
            let what = format!("server on {}", addresses.join(", "));
            self.draft.close_apart(first, &server.block.place, &what);
        }
    }

    /// Leaves out the listeners of ports that keep clients out, or that may be for others than the main one: there the paths
    /// of other ports would be open.
    fn leave_out_ports(&mut self, servers: &[Server<'d>]) {
        let ports = |server: &Server<'_>| -> Ports {
            server.listens.iter().map(|listen| other_ports::port(&listen.address)).collect()
        };
        let open: Ports = servers.iter().filter(|server| !server.is_apart).flat_map(ports).collect();
        let is_unknown = |port: &String| !open.iter().any(|main| other_ports::is_known(main, port));
        for server in servers.iter().filter(|server| server.is_apart) {
            let mut closed: Ports = ports(server).difference(&open).cloned().collect();
            let mut why =
                "its port refuses clients, and all listeners serve all routes here: its listener is left out";
            if guarded(server.block).is_empty() {
                closed.retain(is_unknown);
                why = other_ports::UNKNOWN;
            }
            let bind =
                |listener: &Section| listener.value("bind").unwrap_or_default().trim_matches('"').to_owned();
            let known = self.draft.listeners.len();
            self.draft.listeners.retain(|listener| !closed.contains(&other_ports::port(&bind(listener))));
            if self.draft.listeners.len() < known {
                self.draft.notes.left_out(&server.block.place, "listen", why);
            }
        }
    }

    fn server(&mut self, block: &'d Directive) -> Option<Server<'d>> {
        let listens = self.listens(block.taken());
        if listens.is_empty() {
            block.taken_whole();
            self.draft.notes.left_out(&block.place, "server", "it has no listener that was taken over");
            return None;
        }
        let own = Scope::new(block.block());
        let mut hosts = Vec::new();
        let mut first = String::new();
        let mut has_unsaid_names = false;
        for names in own.all("server_name") {
            for name in &names.taken().args {
                if first.is_empty() && !name.starts_with(['~', '*', '.', '_']) {
                    first.clone_from(name);
                }
                match name.strip_prefix('.') {
                    Some(bare) => hosts.extend([bare.to_owned(), format!("*.{bare}")]),
                    None if name.is_empty() || name == "_" => {}
                    None if name.starts_with('~') || name.ends_with(".*") || name.contains('$') => {
                        let why = "a host must be a name, or `*.` and a name";
                        self.draft.notes.left_out(&names.place, &format!("server_name {name}"), why);
                        has_unsaid_names = true;
                    }
                    None => hosts.push(name.to_ascii_lowercase()),
                }
            }
        }
        let is_tls = |wanted: bool| listens.iter().all(|listen| listen.tls == wanted);
        let scheme = if is_tls(true) { Some("https") } else { is_tls(false).then_some("http") };
        Some(Server {
            block,
            name: first,
            hosts,
            listens,
            scheme,
            is_apart: false,
            has_unsaid_names,
            kept: Vec::new(),
        })
    }

    /// Takes the hosts from the server that gets the requests which no server names.
    fn choose_default(&mut self, servers: &mut Vec<Server<'d>>) {
        let is_default =
            |server: &Server<'_>| !server.is_apart && server.listens.iter().any(|listen| listen.is_default);
        let chosen = servers.iter().position(is_default).unwrap_or(0);
        for (index, server) in servers.iter().enumerate() {
            if index != chosen && is_default(server) {
                let why =
                    "another address has another default server; here all listeners serve the same routes";
                self.draft.notes.differs(&server.block.place, "server", why);
            }
        }
        // Closed there, because requests for a name that no host can say come to the default server.
        let unsaid = servers.iter().filter(|server| server.has_unsaid_names);
        let kept: Vec<GuardedPath> = unsaid.flat_map(|server| guarded(server.block)).collect();
        if let Some(default) = servers.get_mut(chosen) {
            for (place, begin) in &kept {
                let why = format!(
                    "no `host` can express this name: its requests go to the default server, where `{begin}` is closed (501)"
                );
                self.draft.notes.left_out(place, "server_name", why);
            }
            default.kept.extend(kept);
        }
        let Some(default) = servers.get(chosen) else { return };
        let own = default.hosts.clone();
        let is_covered = |host: &String| {
            let covers = |other: &String| other.strip_prefix('*').is_some_and(|end| host.ends_with(end));
            servers
                .iter()
                .enumerate()
                .any(|(index, server)| index != chosen && server.hosts.iter().any(covers))
        };
        if own.iter().any(is_covered) {
            let why = "a wildcard of another server covers some of its hosts, so it takes only its own hosts";
            self.draft.notes.differs(&default.block.place, "server", why);
        } else {
            // A server of the same names at another port, too, because its routes are for the same requests.
            let shares = |server: &&mut Server<'d>| server.is_apart && server.hosts == own;
            servers.iter_mut().filter(shares).for_each(|server| server.hosts.clear());
            servers[chosen].hosts.clear();
        }
        // Taken out, because without a name that can be read its routes would take everybody's requests.
        let mut index = 0;
        servers.retain(|server| {
            let is_kept = index == chosen || !server.hosts.is_empty() || server.is_apart;
            index += 1;
            if !is_kept {
                server.block.taken_whole();
                self.draft.notes.left_out(
                    &server.block.place,
                    "server",
                    "none of its names can be expressed as a `host`",
                );
            }
            is_kept
        });
    }

    fn routes(&mut self, server: &Server<'d>, scope: &Scope<'d>, is_alone: bool) {
        let inner = scope.within(server.block.block());
        self.real_ip = self.real_ip_of(server, &inner);
        let known = self.draft.routes.len();
        let here = |path: &str| Route {
            place: server.block.place.clone(),
            hosts: server.hosts.clone(),
            path: path.to_owned(),
            ..Route::default()
        };
        let whole = Match::Prefix("/".to_owned());
        // Its locations are passed over, because they never see what the server itself answers.
        if !inner.own("return").is_empty() {
            let mut route = here("/{*rest}");
            self.answer_at(&mut route, &whole, &inner, server);
            self.draft.add_route(route, "server");
            for location in inner.own("location") {
                location.taken_whole();
                self.draft
                    .notes
                    .left_out_line(location, "it is never reached: the server's `return` responds first");
            }
            return;
        }
        for rewrite in inner.own("rewrite") {
            self.server_rewrite(rewrite, &inner, server);
        }
        let mut behind = Vec::new();
        for location in inner.own("location") {
            let first = self.draft.routes.len();
            self.location(location, &inner, server);
            // The others alone, because what is asked for exactly, or says `^~`, goes before every expression.
            if !matches!(location.arg(0), "=" | "^~") {
                behind.extend(first..self.draft.routes.len());
            }
        }
        self.close_expressions(server, &behind);
        self.close_rewritten(server, &inner, known);
        if is_alone && server.hosts.is_empty() {
            return;
        }
        // Closed, because what no location of this server takes must not go to another server.
        let rest = here("/{*rest}");
        if !self.draft.routes.iter().any(|known| known.ties(&rest)) {
            let mut rest = rest;
            rest.respond(404);
            self.draft.add_route(rest, "server");
        }
    }

    /// Closes what another port keeps clients out of in the routes of a server, which begin at an index.
    fn close_kept(&mut self, server: &Server<'d>, known: usize) {
        for (place, begin) in &server.kept {
            if let Some(path) = literal_path(begin, true) {
                self.close_below(server, known, place, path);
            }
        }
    }

    /// Closes a path, and the routes of a server that are for a part of it. They begin at an index.
    fn close_below(&mut self, server: &Server<'d>, known: usize, place: &SourceLine, path: String) {
        let below = self.draft.routes[known..].iter_mut();
        below.filter(|route| order::covers_path(&path, &route.path)).for_each(Route::close);
        let mut route = Route { place: place.clone(), hosts: server.hosts.clone(), path, ..Route::default() };
        route.close();
        if !self.draft.routes.iter().any(|known| known.ties(&route)) {
            self.draft.add_route(route, "server");
        }
    }

    /// Closes the paths that a server's rewrites lead to a place that keeps clients out: they are not rewritten here.
    fn close_rewritten(&mut self, server: &Server<'d>, scope: &Scope<'d>, known: usize) {
        let rewrites: Vec<&Directive> =
            scope.own("rewrite").into_iter().filter(|rewrite| !is_redirect(rewrite)).collect();
        for (index, found) in rewrites.iter().enumerate() {
            // The path is rewritten again, unless the rewrite is the last one.
            let is_last = matches!(found.arg(2), "last" | "break");
            let next = if is_last { index + 1 } else { rewrites.len() };
            if !rewrites[index..next].iter().any(|it| may_keep_out(server.block.block(), it.arg(1))) {
                continue;
            }
            let at = rewritten_from(found.arg(0));
            let Some(path) = at.pattern() else { continue };
            let why = format!("it leads to a location that refuses clients: `{path}` is closed (501)");
            self.draft.notes.left_out_line(*found, why);
            self.close_below(server, known, &found.place, path);
        }
    }

    /// Closes the places that expressions keep clients out of: these routes of a server, and what wider ones take of them.
    fn close_expressions(&mut self, server: &Server<'d>, routes: &[usize]) {
        for Closing { place, begin, has_route } in std::mem::take(&mut self.closings) {
            let Some(path) = literal_path(&begin, true) else { continue };
            for index in routes {
                let forwards = |route: &&mut Route| route.keys.iter().any(|(key, _)| *key == "to");
                let is_below = |route: &&mut Route| {
                    order::covers_path(&path, &route.path) && !(has_route && route.path == path)
                };
                let found = self.draft.routes.get_mut(*index).filter(forwards).filter(is_below);
                found.into_iter().for_each(Route::close);
            }
            let mut route = Route { place, hosts: server.hosts.clone(), path, ..Route::default() };
            route.close();
            if begin != "/" && !self.draft.routes.iter().any(|known| known.ties(&route)) {
                self.draft.add_route(route, "location");
            }
        }
    }

    /// A rewrite outside of any location: only one that sends the client elsewhere has a counterpart.
    fn server_rewrite(&mut self, found: &'d Directive, scope: &Scope<'d>, server: &Server<'d>) {
        use super::super::regex::beginning;
        use super::redirects::Rewritten;
        let around = server.around(scope);
        let mut at = Match::Prefix(beginning(found.arg(0)).map_or("/".to_owned(), |(begin, _)| begin));
        if at.is_split(found.arg(0)) {
            at = Match::Prefix(format!("{}/", at.text()));
        }
        let path = at.pattern().filter(|_| is_redirect(found));
        match path.map(|path| (path, self.rewritten(found, &at, &around))) {
            Some((path, Some(Rewritten::Answer(key, value)))) => {
                let place: SourceLine = found.place.clone();
                let mut route = Route { place, hosts: server.hosts.clone(), path, ..Route::default() };
                route.key(key, value);
                self.draft.add_route(route, &found.shown());
            }
            Some(_) => {}
            None => {
                let why = "a route rewrites its own paths: write `rewrite` there";
                self.draft.notes.left_out_line(found.taken(), why);
            }
        }
    }
}

/// Marks the servers that other ports alone reach, and puts them behind all others. One that says what another says stays:
/// it is that server at one more port, and gets no routes of its own.
fn tell_apart(servers: &mut Vec<Server<'_>>, redirecting: &Redirecting) {
    let ports = |server: &Server<'_>| -> Ports {
        let served = server.listens.iter().filter(|listen| !redirecting.contains_key(&listen.address));
        served.map(|listen| other_ports::port(&listen.address)).collect()
    };
    let all: Vec<Ports> = servers.iter().map(ports).collect();
    // Servers that forward, because a port of figures or of fixed answers alone is not the main one.
    let forwards = |server: &Server<'_>| server.block.whole().contains("_pass ");
    let forwarding = servers.iter().zip(&all).filter(|(server, _)| forwards(server)).map(|(_, ports)| ports);
    let Some(main) = other_ports::main_port(forwarding).or_else(|| other_ports::main_port(all.iter())) else {
        return;
    };
    let said: Vec<String> = servers
        .iter()
        .zip(&all)
        .filter(|(_, ports)| ports.contains(&main))
        .map(|(server, _)| rules_of(server.block))
        .collect();
    let is_twin = |server: &Server<'_>| said.contains(&rules_of(server.block));
    let mut index = 0;
    servers.retain_mut(|server| {
        let is_main = all[index].contains(&main);
        index += 1;
        let is_twin = !is_main && is_twin(server);
        if is_twin {
            server.block.taken_whole();
        }
        server.is_apart = !is_main;
        !is_twin
    });
    servers.sort_by_key(|server| server.is_apart);
}

/// Whether a rewritten path may come to a location that keeps clients out.
pub(super) fn may_keep_out(block: &[Directive], to: &str) -> bool {
    let end = to.find(['$', '?']).unwrap_or(to.len());
    let (text, goes_on) = (&to[..end], to[end..].starts_with('$'));
    block.iter().filter(|inside| inside.name == "location").any(|location| {
        let at = Match::of(location);
        let is_for = match &at {
            Match::Other(_) => !location.arg(0).starts_with('@'),
            at if at.is_exact() => at.text() == text || goes_on && at.text().starts_with(text),
            at => text.starts_with(at.text()) || goes_on && at.text().starts_with(text),
        };
        is_for && is_guarded(location.block()) || may_keep_out(location.block(), to)
    })
}

/// What a server says, but for where it listens and by which certificates.
pub(super) fn rules_of(block: &Directive) -> String {
    let rules = block.block().iter().filter(|inside| {
        inside.name != "listen" && inside.name != "http2" && !inside.name.starts_with("ssl_certificate")
    });
    rules.map(Directive::whole).collect()
}
