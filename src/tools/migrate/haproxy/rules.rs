//! `http-request`, `use_backend` and `default_backend` as routes.

use config::printer::{table, text};

use super::super::draft::{Route, texts};
use super::super::fields::{Fields, TO_CLIENTS, TO_SERVERS};
use super::super::notes::SourceLine;
use super::super::order;
use super::super::values::is_named;
use super::Reading;
use super::conditions::{self, Criteria};
use super::lines::{Line, Section};
use super::prefixes::StrippedPrefix;
use super::values::format;

/// What holds for all routes of a frontend, or of a backend.
#[derive(Clone, Default)]
struct Common {
    limits: Vec<String>,
    allow: Vec<String>,
    deny: Vec<String>,
    /// Changes of fields, as `headers` and `response-headers` have them.
    request: Fields,
    response: Fields,
    /// The field that says the address of the client, behind all rules.
    forwarded_for: Option<String>,
    /// A rule that keeps clients out, or changes paths, could not be taken over.
    is_closed: bool,
    /// What paths begin with, as it is replaced on the way to servers.
    prefix: Option<StrippedPrefix>,
    /// Rules that refuse some addresses for some requests, each with how many routes there were before it.
    by_address: Vec<(usize, Criteria)>,
}

/// The rules of a section as they are read: what they hold for, and what has come of them.
struct Rules<'d> {
    section: &'d Section,
    acls: Vec<&'d Line>,
    common: Common,
    /// Routes in the order of their rules.
    routes: Vec<AclRoute>,
    /// Fields that the rules so far change, in lower case; `*` for those of many names.
    changed: Vec<String>,
}

#[derive(Clone)]
struct AclRoute {
    route: Route,
    what: String,
    /// What the backend that it leads to says of its requests and answers.
    backend: Common,
    /// The addresses that rules for these requests let in.
    bounds: Common,
}

impl AclRoute {
    /// One that leads to no backend.
    fn answering(route: Route, line: &Line) -> AclRoute {
        AclRoute::forwarding(route, line.shown(), Common::default())
    }

    /// One that leads to a backend that says this.
    fn forwarding(route: Route, what: String, backend: Common) -> AclRoute {
        AclRoute { route, what, backend, bounds: Common::default() }
    }

    /// The requests of it that a rule refuses some addresses for, with the others let in: a part for each path of the rule
    /// that is one of the route's.
    fn bounded(&self, which: &Criteria) -> Vec<AclRoute> {
        let Some(source) = &which.source else { return Vec::new() };
        let mut bounds = Common::default();
        let list = if source.is_negated { &mut bounds.allow } else { &mut bounds.deny };
        list.clone_from(&source.ranges);
        let shared = routes(which, &self.route.place);
        let shared = shared.iter().filter_map(|other| order::both(&self.route, other));
        shared
            .map(|route| AclRoute { route, bounds: self.bounds.clone().then(bounds.clone()), ..self.clone() })
            .collect()
    }

    /// It, behind its parts that rules refuse some addresses for.
    fn parts(self, index: usize, common: &Common) -> Vec<AclRoute> {
        let of_section = common.by_address.iter().filter(|(routes, _)| *routes <= index);
        let bounds: Vec<Criteria> =
            of_section.chain(&self.backend.by_address).map(|(_, which)| which.clone()).collect();
        let mut parts = vec![self];
        for which in &bounds {
            let mut next: Vec<AclRoute> = Vec::new();
            for part in parts {
                for part in part.bounded(which).into_iter().chain([part]) {
                    if !next.iter().any(|known| order::covers(&known.route, &part.route)) {
                        next.push(part);
                    }
                }
            }
            parts = next;
        }
        parts
    }
}

impl<'d> Rules<'d> {
    /// Those of a section, with the lines that hold in it.
    fn of(section: &'d Section, lines: Vec<&'d Line>) -> Rules<'d> {
        let acls = lines.into_iter().filter(|line| line.begins("acl")).collect();
        Rules { section, acls, common: Common::default(), routes: Vec::new(), changed: Vec::new() }
    }

    /// Whether a rule before it changes this field.
    fn changes(&self, name: &str) -> bool {
        self.changed.iter().any(|changed| changed == name || changed == "*")
    }

    /// Whether a condition asks for a field that a rule before it changes.
    fn asks_for_changed(&self, which: &Criteria) -> bool {
        let changes_path = self.changed.iter().any(|changed| changed == PATH);
        which.headers.iter().any(|(name, _)| self.changes(name))
            || !which.paths.is_empty() && changes_path
            || !which.hosts.is_empty() && self.changes("host")
    }
}

impl<'d> Reading<'d> {
    /// The rules of the defaults that hold in a section, and its own.
    pub(super) fn rule_lines(&self, section: &'d Section) -> Vec<&'d Line> {
        self.inherited(section).iter().chain(&section.lines).collect()
    }

    /// The lines of the defaults that hold in a section. Rules of them come before its own.
    fn inherited(&self, section: &'d Section) -> &'d [Line] {
        section.defaults.and_then(|index| self.sections.get(index)).map_or(&[], |defaults| &defaults.lines)
    }

    pub(super) fn rules(&mut self, section: &'d Section) {
        let mut rules = Rules::of(section, self.rule_lines(section));
        self.guards(section, &mut rules);
        for line in self.inherited(section).iter().filter(|line| line.begins("http-request")) {
            self.request_rule(line, &mut rules);
        }
        for line in section.lines.iter().filter(|line| line.begins("http-request") && !line.is_taken()) {
            self.request_rule(line, &mut rules);
        }
        self.forwarded_for(section, &mut rules.common);
        self.response_rules(section, &mut rules.common);
        for line in section.lines.iter().filter(|line| line.begins("redirect") && !line.is_taken()) {
            self.answer(line, 1, &mut rules);
        }
        for line in section.lines.iter().filter(|line| line.begins("use_backend")) {
            self.choose(line, &mut rules);
        }
        match self.line(section, "default_backend") {
            Some(line) => self.forward(line, line.word(1), vec![Criteria::default()], &mut rules),
            None if section.kind == "listen" => {
                let mut route =
                    Route { place: section.place.clone(), path: ANY.to_owned(), ..Route::default() };
                let what = format!("listen {}", section.name);
                let backend = self.to(&mut route, &what, section, &mut rules);
                rules.routes.push(AclRoute::forwarding(route, what, backend));
            }
            None => {}
        }
        let common = rules.common;
        let parts =
            rules.routes.into_iter().enumerate().flat_map(|(index, ruled)| ruled.parts(index, &common));
        let mut routes: Vec<(Route, String)> = Vec::new();
        for AclRoute { mut route, what, backend, bounds } in parts {
            let is_part = !bounds.allow.is_empty() || !bounds.deny.is_empty();
            if is_part && routes.iter().any(|(first, _)| order::covers(first, &route)) {
                continue;
            }
            let first = common.clone().then(bounds);
            if first.is_closed && !common.is_closed || first.allows_otherwise(&backend) {
                let why = "its section, its backend and its rules allow different addresses; the route is closed (501) \
                           until you rewrite it with one `allow`";
                self.draft.notes.left_out(&route.place, &what, why);
            }
            let common = first.then(backend);
            let forwards = route.keys.iter().any(|(key, _)| *key == "to") && !common.is_closed;
            let Some(prefix) = common.prefix.as_ref().filter(|_| forwards) else {
                common.apply(&mut route);
                routes.push((route, what));
                continue;
            };
            let mut parts = prefix.parts(route);
            let whole = parts.pop();
            parts.retain(|part| !routes.iter().any(|(first, _)| order::covers(first, part)));
            for mut part in parts.into_iter().chain(whole) {
                if part.is_closed() {
                    let why =
                        "some paths that it changes cannot be written as a `rewrite`: they are closed (501)";
                    self.draft.notes.left_out(&prefix.place, &prefix.what, why);
                } else {
                    common.apply(&mut part);
                }
                routes.push((part, what.clone()));
            }
        }
        order::add_in_order(self.draft, routes);
    }

    /// The routes of a `use_backend`. What it may refuse and cannot say is closed.
    fn choose(&mut self, line: &'d Line, rules: &mut Rules<'d>) {
        let refuses = self.may_refuse_by_backend(line);
        let (known, parts) = sides(line, rules);
        let is_said = !(refuses && is_dynamic(line));
        let which = self.which(line, rules, refuses).filter(|_| is_said);
        if refuses {
            let unsaid = if which.is_none() { [known, parts].concat() } else { parts };
            self.close_parts(line, unsaid, rules);
        }
        self.forward(line, line.word(1), which.unwrap_or_default(), rules);
    }

    /// The alternatives of a line's condition; `None` if routes cannot say it. What they cannot say is listed, unless it is
    /// going to be closed.
    fn which(&mut self, line: &'d Line, rules: &Rules<'d>, is_closed: bool) -> Option<Vec<Criteria>> {
        let (which, parts) = sides(line, rules);
        if !parts.is_empty() && !is_closed {
            let why = match which.is_empty() {
                true => {
                    "its condition cannot be expressed by host, path, method and headers; its requests go to other \
                     rules"
                }
                false => {
                    "an alternative of its condition cannot be expressed by host, path, method and headers; its \
                     requests go to other rules"
                }
            };
            self.draft.notes.left_out_line(line, why);
        }
        if which.iter().any(|which| rules.asks_for_changed(which)) {
            let why = "an earlier rule changes what it tests, and routes see what the client sent; its \
                requests go to other rules";
            if !is_closed {
                self.draft.notes.left_out_line(line, why);
            }
            return None;
        }
        (!which.is_empty()).then_some(which)
    }

    fn request_rule(&mut self, line: &'d Line, rules: &mut Rules<'d>) {
        match line.word(1) {
            "deny" | "reject" | "tarpit" | "silent-drop" => self.refuse(line, rules),
            "redirect" | "return" => self.answer(line, 2, rules),
            "set-header" | "add-header" | "del-header" | "replace-header" | "replace-value" => {
                self.request_field(line, rules);
            }
            "auth" | "use-service" | "set-path" | "set-pathq" | "set-uri" | "replace-path"
            | "replace-pathq" | "replace-uri" | "set-method" | "wait-for-body" => match prefix(line, rules) {
                Some(prefix) => rules.common.prefix = Some(prefix),
                None => {
                    let why = "it has no counterpart; all routes of this section are closed (501) until you rewrite it";
                    self.draft.notes.left_out_line(line.taken(), why);
                    rules.common.is_closed = true;
                }
            },
            action if !passes(action) => self.may_refuse(line, &mut rules.common),
            // Nothing here, because it is listed as unread, or needless.
            _ => {}
        }
        rules.changed.extend(changed_field(line));
    }

    /// What refuses requests in other words than `http-request`: contents of a connection, filters, old names of `deny`.
    fn guards(&mut self, section: &'d Section, rules: &mut Rules<'d>) {
        for line in self.rule_lines(section) {
            match (line.word(0), line.word(1)) {
                ("tcp-request", "content") if matches!(line.word(2), "reject" | "silent-drop") => {
                    self.refuse(line, rules);
                }
                ("tcp-request" | "tcp-response", "content") if !passes(line.word(2)) => {
                    self.may_refuse(line, &mut rules.common);
                }
                ("filter", filter) if !FILTERS.contains(&filter) => self.may_refuse(line, &mut rules.common),
                (
                    "block" | "reqdeny" | "reqideny" | "reqtarpit" | "reqitarpit" | "rspdeny" | "rspideny",
                    _,
                ) => {
                    self.closed(line.taken(), &mut rules.common);
                }
                _ => {}
            }
        }
    }

    /// Closes a section for what has no counterpart and may refuse requests: a script, an agent, what is not known.
    fn may_refuse(&mut self, line: &'d Line, common: &mut Common) {
        let why = "it may refuse requests and has no counterpart; all routes of this section are closed (501) until \
            you rewrite it";
        self.draft.notes.left_out_line(line.taken(), why);
        common.is_closed = true;
    }

    /// A rule that refuses: a limit, a list of addresses, or a route that answers with the status.
    fn refuse(&mut self, line: &'d Line, rules: &mut Rules<'d>) {
        let (read, parts) = match line.taken().condition() {
            // Read as a list of its own, because `unless` of addresses is what only they may.
            Some((words, true)) => {
                let read = conditions::read(words, &rules.acls).and_then(|mut read| {
                    let is_address = read.len() == 1 && read[0].only_source().is_some();
                    let source = read.first_mut().and_then(|which| which.source.as_mut())?;
                    source.is_negated = !source.is_negated;
                    is_address.then_some(read)
                });
                read.map_or_else(|| sides(line, rules), |read| (read, Vec::new()))
            }
            _ => sides(line, rules),
        };
        for which in &read {
            if rules.asks_for_changed(which) {
                self.refused_by_changed(line, which, rules);
            } else if let Some(rate) = which.only_rate().cloned() {
                match self.rate(line, &rate, rules.section, |field| rules.changes(field)) {
                    Some(limit) => rules.common.limits.push(limit),
                    None => rules.common.is_closed = true,
                }
            } else if let Some(source) = which.only_source() {
                if self.sets_source(rules) {
                    self.closed(line, &mut rules.common);
                    continue;
                }
                self.other_refusal(line, 403);
                let is_second = source.is_negated && !rules.common.allow.is_empty();
                let list = if source.is_negated { &mut rules.common.allow } else { &mut rules.common.deny };
                list.extend(source.ranges.iter().cloned());
                if is_second {
                    // Closed, because who is in both lists alone gets through there, who is in either here.
                    self.closed(line, &mut rules.common);
                }
            } else if which.rate.is_some() && which.source.is_none() && which.tls.is_none() {
                self.closed_place(
                    line,
                    "a limit applies to whole routes, not to some of their requests",
                    which,
                    rules,
                );
            } else if which.is_route() && matches!(line.word(1), "deny" | "reject" | "content") {
                let status = deny_status(line).unwrap_or(403);
                self.other_refusal(line, status);
                self.refused(line, which, rules, ("respond", format!("{{ status = {status} }}")));
            } else if which.is_route_by_address()
                && rules.common.by_address.len() < BOUNDS_MAX
                && !self.sets_source(rules)
            {
                self.other_refusal(line, 403);
                rules.common.by_address.push((rules.routes.len(), which.clone()));
            } else {
                self.closed(line, &mut rules.common);
            }
        }
        self.close_parts(line, parts, rules);
    }

    /// Closes what alternatives of a rule may refuse that cannot be said: what is known of them.
    fn close_parts(&mut self, line: &'d Line, parts: Vec<Criteria>, rules: &mut Rules<'d>) {
        for part in parts {
            let part = Criteria { source: None, rate: None, tls: None, ..part };
            if part.is_any_request() {
                self.closed(line, &mut rules.common);
            } else if rules.asks_for_changed(&part) {
                self.refused_by_changed(line, &part, rules);
            } else {
                self.closed_place(line, "a part of its condition cannot be expressed", &part, rules);
            }
        }
    }

    /// Whether a rule takes the addresses of clients from elsewhere, so that they are not those of connections.
    fn sets_source(&self, rules: &Rules<'d>) -> bool {
        rules.changed.iter().any(|changed| changed == SOURCE)
            || self.rule_lines(rules.section).iter().any(|line| line.begins("http-request set-src"))
    }

    /// Closes all that a rule may refuse by a field that a rule before it changes.
    fn refused_by_changed(&mut self, line: &'d Line, which: &Criteria, rules: &mut Rules<'d>) {
        if !which.is_route() {
            return self.closed(line, &mut rules.common);
        }
        let mut which = which.clone();
        which.headers.retain(|(name, _)| !rules.changes(name));
        if rules.changes("host") {
            which.hosts.clear();
        }
        if rules.changes(PATH) {
            which.paths.clear();
        }
        let why = "an earlier rule changes what it tests, and routes see what the client sent";
        self.closed_place(line, why, &which, rules);
    }

    /// Lists what a refusal with this status has not of its rule: a status, a body, an end without an answer.
    fn other_refusal(&mut self, line: &'d Line, status: u16) {
        let is_answer = line.word(1) == "deny";
        let rest = line.unconditional().iter().skip(2);
        let has_more = rest.filter(|word| !matches!(word.as_str(), "status" | "deny_status")).count() > 1;
        if !is_answer || has_more || deny_status(line).unwrap_or(403) != status {
            let why = format!("refusals are answered {status}, with the gateway's own body");
            self.draft.notes.line_differs(line, why);
        }
    }

    /// The routes of a rule that refuses requests. None of them may get through because upper and lower case, or where
    /// a segment ends, count here.
    fn refused(
        &mut self,
        line: &'d Line,
        which: &Criteria,
        rules: &mut Rules<'d>,
        (key, value): (&'static str, String),
    ) {
        if self.closed_for_values(line, which, rules) {
            return;
        }
        self.inexact(line, which);
        for mut route in routes(which, &line.place) {
            route.key(key, &value);
            rules.routes.push(AclRoute::answering(route, line));
        }
    }

    /// Closes what a rule refuses if other spellings of its values would get through. Returns whether it did.
    fn closed_for_values(&mut self, line: &'d Line, which: &Criteria, rules: &mut Rules<'d>) -> bool {
        let has_value = which.headers.iter().any(|(_, value)| value.is_some());
        if which.is_any_case {
            self.closed(line, &mut rules.common);
        } else if which.is_any_case_of_value {
            self.closed_place(line, "values are case-sensitive here", which, rules);
        } else if has_value {
            // Closed, because HAProxy looks at each value between commas, of each field of that name.
            let why = "a header is compared as a whole here, but a request may repeat it or join several values by \
                commas";
            self.closed_place(line, why, which, rules);
        }
        which.is_any_case || which.is_any_case_of_value || has_value
    }

    /// Closes all that a rule may refuse, whatever the values of fields.
    fn closed_place(&mut self, line: &'d Line, why: &str, which: &Criteria, rules: &mut Rules<'d>) {
        if which.is_any_case {
            return self.closed(line, &mut rules.common);
        }
        let values = if which.headers.is_empty() { "" } else { ", whatever the header's value," };
        let why = format!("{why}: requests it may refuse are closed (501){values} until you rewrite it");
        self.draft.notes.left_out_line(line, why);
        for mut route in routes(which, &line.place) {
            route.headers.iter_mut().for_each(|(_, value)| *value = None);
            route.close();
            rules.routes.push(AclRoute::answering(route, line));
        }
    }

    /// Lists what routes take otherwise than a condition.
    fn inexact(&mut self, line: &'d Line, which: &Criteria) {
        if which.is_any_case || which.is_any_case_of_value {
            let why = "values are case-sensitive here: other spellings go to other rules";
            self.draft.notes.line_differs(line, why);
        }
        if which.headers.iter().any(|(_, value)| value.is_some()) {
            let why = "a header is compared as a whole: requests that repeat it or join several values by commas go \
                to other rules";
            self.draft.notes.line_differs(line, why);
        }
    }

    fn closed(&mut self, line: &Line, common: &mut Common) {
        let why = "the requests it refuses cannot be expressed; all routes of this section are closed (501) until \
            you rewrite it";
        self.draft.notes.left_out_line(line, why);
        common.is_closed = true;
    }

    /// `redirect` and `return`, from the word at `at`.
    fn answer(&mut self, line: &'d Line, at: usize, rules: &mut Rules<'d>) {
        let answer = match line.word(1) {
            "return" => respond(line),
            _ => redirect(line, at),
        };
        self.answer_words(line, at);
        let status = line.after("status").and_then(|status| status.parse::<u16>().ok());
        let refuses = line.word(1) == "return" && status.is_some_and(|status| status >= 400);
        let keeps_out = refuses || sends_elsewhere(line, at, &rules.acls);
        let which = self.which(line, rules, keeps_out);
        if keeps_out {
            let (known, parts) = sides(line, rules);
            self.close_parts(line, if which.is_none() { [known, parts].concat() } else { parts }, rules);
        }
        for which in which.iter().flatten() {
            // Not where a rule before it changes the path, because `{path}` is that of the client.
            let is_same = |(_, value): &(&str, String)| !(rules.changes(PATH) && value.contains("{path}"));
            match answer.clone().filter(|_| which.is_route()).filter(is_same) {
                Some(answer) if keeps_out => self.refused(line, which, rules, answer),
                Some((key, value)) => {
                    self.inexact(line, which);
                    for mut route in routes(which, &line.place) {
                        route.key(key, &value);
                        rules.routes.push(AclRoute::answering(route, line));
                    }
                }
                None if keeps_out && !which.is_route() => self.closed(line, &mut rules.common),
                None if refuses => self.closed(line, &mut rules.common),
                None if which.is_route() && !which.is_any_case => {
                    self.closed_place(line, "this response has no counterpart", which, rules);
                }
                None => {
                    let why = "this response has no counterpart";
                    self.draft.notes.left_out_line(line, why);
                }
            }
        }
    }

    /// Lists the words of an answer that it does not have here.
    pub(super) fn answer_words(&mut self, line: &'d Line, at: usize) {
        let mut lost: Vec<&str> = Vec::new();
        for word in line.unconditional() {
            let is_lost = match word.as_str() {
                "default-errorfiles" => line.word(1) == "return",
                "set-cookie" | "clear-cookie" | "append-slash" | "ignore-empty" => line.word(1) != "return",
                "drop-query" => line.word(at) == "scheme",
                _ => false,
            };
            lost.extend(is_lost.then_some(word.as_str()));
        }
        for word in lost {
            let why = format!("`{word}` has no counterpart and is not part of the response");
            self.draft.notes.left_out_line(line, why);
        }
    }

    /// The routes of a rule that names a backend.
    fn forward(&mut self, line: &'d Line, name: &str, which: Vec<Criteria>, rules: &mut Rules<'d>) {
        let sections = self.sections;
        let is_it = |section: &&Section| {
            section.name == name && matches!(section.kind.as_str(), "backend" | "listen")
        };
        let Some(backend) = sections.iter().find(is_it) else {
            let why = match is_dynamic(line) {
                true => "its backend depends on the request; its requests go to other rules",
                false => "there is no such backend in this file",
            };
            if !which.is_empty() {
                self.draft.notes.left_out_line(line, why);
            }
            return;
        };
        for which in &which {
            if !which.is_route() {
                let why = "routes are not chosen by address, rate or TLS; its requests go to other rules";
                self.draft.notes.left_out_line(line, why);
                if self.may_refuse_by_backend(line) {
                    self.closed(line, &mut rules.common);
                }
                continue;
            }
            let refuses = backend.kind == "backend" && refuses_all(backend);
            if refuses && self.closed_for_values(line, which, rules) {
                continue;
            }
            if refuses || which.is_any_case || which.is_any_case_of_value || !which.headers.is_empty() {
                self.inexact(line, which);
            }
            for mut route in routes(which, &line.place) {
                let backend = self.to(&mut route, &line.shown(), backend, rules);
                rules.routes.push(AclRoute::forwarding(route, line.shown(), backend));
            }
        }
    }

    /// Whether a rule leads to a backend that refuses every request: the one that it names, or any that it may choose.
    fn may_refuse_by_backend(&self, line: &Line) -> bool {
        let is_table = |section: &Section| section.lines.iter().any(|line| line.begins("stick-table"));
        let mut backends = self.sections.iter().filter(|section| section.kind == "backend");
        backends.any(|section| {
            let is_it = section.name == line.word(1) || is_dynamic(line) && !is_table(section);
            is_it && refuses_all(section)
        })
    }

    /// Leads a route to a backend. Returns what the backend itself says of requests and answers.
    /// What the backend answers itself is closed beside it. `outer` are the rules of which `rule` leads to it.
    fn to(&mut self, route: &mut Route, rule: &str, backend: &'d Section, outer: &mut Rules<'d>) -> Common {
        match self.upstream(backend) {
            Some(upstream) => route.key("to", text(&upstream)),
            None => {
                route.respond(503);
                return Common::default();
            }
        }
        if backend.kind != "backend" {
            return Common::default();
        }
        let mut rules = Rules::of(backend, self.rule_lines(backend));
        rules.changed.clone_from(&outer.changed);
        for line in self.rule_lines(backend).into_iter().filter(|line| line.begins("http-request")) {
            self.request_rule(line, &mut rules);
        }
        self.guards(backend, &mut rules);
        for line in backend.lines.iter().filter(|line| line.begins("redirect")) {
            self.answer(line, 1, &mut rules);
        }
        for AclRoute { route: answer, what, .. } in rules.routes {
            // Nothing to close then, because paths of rules have no parameters: those that are no part of each other
            // share no request.
            let Some(mut part) = order::shared(&answer, route) else { continue };
            let why =
                "a rule of a backend responds itself; its requests are closed (501) until you rewrite it";
            self.draft.notes.left_out(&backend.place, &what, why);
            part.close();
            part.place.clone_from(&route.place);
            outer.routes.push(AclRoute::forwarding(part, rule.to_owned(), Common::default()));
        }
        self.forwarded_for(backend, &mut rules.common);
        self.response_rules(backend, &mut rules.common);
        rules.common
    }

    /// `option forwardfor header NAME` sends the client's address in a field of that name; without one it is
    /// X-Forwarded-For, which the gateway sends in any case.
    fn forwarded_for(&mut self, section: &'d Section, common: &mut Common) {
        for line in self.rule_lines(section).into_iter().filter(|line| line.begins("option forwardfor")) {
            let name = line.taken().after("header").unwrap_or(X_FORWARDED_FOR);
            common.forwarded_for = Some(name.to_ascii_lowercase());
            if line.has("except") {
                let why = "the header is sent for all clients, also for these addresses";
                self.draft.notes.line_differs(line, why);
            }
            if line.has("if-none") {
                let why = "a client's own header is replaced; X-Forwarded-For of hops in `client-ip.trust` is kept \
                    and extended";
                self.draft.notes.line_differs(line, why);
            }
        }
    }

    fn response_rules(&mut self, section: &'d Section, common: &mut Common) {
        let is_field = |line: &&Line| {
            line.begins("http-response") && line.word(1).ends_with("-header") && line.condition().is_none()
        };
        for line in section.lines.iter().filter(is_field) {
            if line.word(1) == "del-header" && line.word(2).eq_ignore_ascii_case("date") {
                self.draft.notes.left_out_line(line, "the gateway always sends its own `Date`");
            }
            if !field(line, &mut common.response) {
                let why = match names_many(line) {
                    true => "a header needs its whole name: write each one into `remove`",
                    false => "its value has no counterpart",
                };
                self.draft.notes.left_out_line(line.taken(), why);
            }
        }
        for line in self.rule_lines(section).into_iter().filter(|line| line.begins("http-response")) {
            match line.word(1) {
                "deny" | "reject" | "return" => self.closed(line.taken(), common),
                "wait-for-body" => {}
                action if !passes(action) => self.may_refuse(line, common),
                _ => {}
            }
        }
    }

    /// A rule that changes a field of requests. Where it cannot be said what servers get, they do not get what the client
    /// sent either.
    fn request_field(&mut self, line: &'d Line, rules: &mut Rules<'d>) {
        let is_of_new_path = rules.changes(PATH) && line.has_in("%[path");
        if line.condition().is_none() && !is_of_new_path && field(line, &mut rules.common.request) {
            return;
        }
        let why = if names_many(line) {
            rules.common.is_closed = true;
            "a header needs its whole name: all routes of this section are closed (501) until you write each one into \
             `remove`"
        } else if line.word(1) == "add-header" {
            "this rule has no counterpart"
        } else {
            rules.common.request.take_unknown(line.word(2).to_ascii_lowercase())
        };
        self.draft.notes.left_out_line(line.taken(), why);
    }
}

/// Does what a rule does to a field; `false` if that cannot be said.
fn field(line: &Line, fields: &mut Fields) -> bool {
    let name = line.word(2).to_ascii_lowercase();
    match (line.word(1), format(line.word(3))) {
        ("del-header", _) if !names_many(line) => fields.take_away(name),
        ("set-header", Some(value)) => fields.replace(name, value),
        ("add-header", Some(value)) => fields.append(name, value),
        _ => return false,
    }
    line.taken();
    true
}

/// Whether a rule removes fields by a part of their names.
fn names_many(line: &Line) -> bool {
    line.word(1) == "del-header" && line.after("-m").is_some_and(|kind| kind != "str")
}

impl Common {
    /// Whether both let in certain addresses alone, because what is in both lists cannot be said.
    fn allows_otherwise(&self, backend: &Common) -> bool {
        !self.allow.is_empty() && !backend.allow.is_empty() && self.allow != backend.allow
    }

    /// What holds for a route that leads on to this backend. Its rules of requests come last, those of answers first.
    fn then(mut self, backend: Common) -> Common {
        self.is_closed |= backend.is_closed || self.allows_otherwise(&backend);
        // Closed, because the second one replaces what the first one leaves.
        self.is_closed |= self.prefix.is_some() && backend.prefix.is_some();
        self.prefix = self.prefix.or(backend.prefix);
        self.forwarded_for = backend.forwarded_for.or(self.forwarded_for);
        self.limits.extend(backend.limits);
        self.deny.extend(backend.deny);
        if self.allow.is_empty() {
            self.allow = backend.allow;
        }
        self.request = self.request.then(backend.request);
        self.response = backend.response.then(self.response);
        self
    }

    /// Adds what holds for all routes.
    fn apply(&self, route: &mut Route) {
        if self.is_closed {
            return route.close();
        }
        for limit in &self.limits {
            if !route.limits.contains(limit) {
                route.limits.push(limit.clone());
            }
        }
        for (key, list) in [("allow", &self.allow), ("deny", &self.deny)] {
            if !list.is_empty() && !route.keys.iter().any(|(known, _)| *known == key) {
                route.key(key, texts(list));
            }
        }
        let is_forwarded = route.keys.iter().any(|(key, _)| *key == "to");
        let mut request = self.request.clone();
        match self.forwarded_for.as_deref() {
            // Not removed, because rules remove what the client sent, and this is written behind them.
            Some(X_FORWARDED_FOR) => request.remove.retain(|name| name != X_FORWARDED_FOR),
            Some(name) => request.replace(name.to_owned(), "{ip}".to_owned()),
            None => {}
        }
        let changes = [("headers", &request, TO_SERVERS), ("response-headers", &self.response, TO_CLIENTS)];
        for (key, fields, own) in changes {
            let is_there = route.keys.iter().any(|(known, _)| *known == key);
            if let Some(shown) = fields.shown(own).filter(|_| !is_there && (is_forwarded || key != "headers"))
            {
                route.key(key, shown);
            }
        }
    }
}

/// Whether an action lets every request and answer pass, whatever else it does.
pub(super) fn passes(action: &str) -> bool {
    let name = action.split('(').next().unwrap_or_default();
    PASSING.split(' ').any(|known| is_named(name, known))
}

/// Whether a redirect leads to another place by a condition that asks for more than where a request is for.
fn sends_elsewhere(line: &Line, at: usize, acls: &[&Line]) -> bool {
    let asks_for_more = line.condition().is_some_and(|(words, _)| !conditions::asks_for_address(words, acls));
    line.word(at) == "location" && asks_for_more
}

/// The field that a rule changes, in lower case; `*` if it names many.
fn changed_field(line: &Line) -> Option<String> {
    match line.word(1) {
        "set-src" => return Some(SOURCE.to_owned()),
        "set-path" | "set-pathq" | "set-uri" | "replace-path" | "replace-pathq" | "replace-uri" => {
            return Some(PATH.to_owned());
        }
        _ => {}
    }
    let changes = ["set-header", "add-header", "del-header", "replace-header", "replace-value"];
    let is_one = line.after("-m").is_none_or(|kind| kind == "str");
    let name = if is_one { line.word(2).to_ascii_lowercase() } else { "*".to_owned() };
    changes.contains(&line.word(1)).then_some(name)
}

/// What a rule replaces at the beginning of paths; `None` if that is not all it does.
fn prefix(line: &Line, rules: &Rules<'_>) -> Option<StrippedPrefix> {
    let (which, parts) = sides(line, rules);
    let is_by_path = |which: &Criteria| {
        let rest = Criteria { paths: Vec::new(), ..which.clone() };
        rest.is_any_request() && which.is_route() && !which.is_any_case && !rules.asks_for_changed(which)
    };
    // None of a section that looks at paths elsewhere, because those are the new ones behind the rule.
    let asks = |other: &&Line| {
        !std::ptr::eq(*other, line) && ["path", "url", "base"].iter().any(|it| other.has_in(it))
    };
    let is_last = rules.section.kind == "backend" || !rules.section.lines.iter().any(|other| asks(&other));
    let is_known =
        parts.is_empty() && which.iter().all(is_by_path) && is_last && rules.common.prefix.is_none();
    let is_any = which.iter().any(|which| which.paths.is_empty());
    let paths: Vec<String> = which.into_iter().flat_map(|which| which.paths).filter(|_| !is_any).collect();
    is_known.then(|| StrippedPrefix::of(line, &paths)).flatten()
}

/// Whether the backend of a rule depends on the request.
fn is_dynamic(line: &Line) -> bool {
    line.word(1).contains("%[")
}

/// Whether a backend refuses every request.
fn refuses_all(backend: &Section) -> bool {
    let has_server = backend.lines.iter().any(|line| line.word(0).starts_with("server"));
    let refuses = |line: &Line| {
        line.begins("http-request")
            && matches!(line.word(1), "deny" | "reject" | "tarpit" | "silent-drop" | "return")
            && line.condition().is_none()
    };
    !has_server || backend.lines.iter().any(refuses)
}

/// A route for each path of a condition.
fn routes(which: &Criteria, place: &SourceLine) -> Vec<Route> {
    let any = [ANY.to_owned()];
    let paths = if which.paths.is_empty() { any.as_slice() } else { which.paths.as_slice() };
    let route = |path: &String| Route {
        place: place.clone(),
        hosts: which.hosts.clone(),
        path: path.clone(),
        methods: which.methods.clone(),
        headers: which.headers.clone(),
        ..Route::default()
    };
    paths.iter().map(route).collect()
}

/// `redirect location URL`, `redirect prefix URL`, `redirect scheme https`, with its code.
fn redirect(line: &Line, at: usize) -> Option<(&'static str, String)> {
    let code = line.after("code").unwrap_or("302").to_owned();
    let to = format(line.word(at + 1))?;
    let has = |word: &str| line.unconditional().iter().any(|known| known == word);
    let to = match line.word(at) {
        "scheme" if to == "https" => to,
        // Ended with `?` otherwise, because in HAProxy a place of its own gets no query of the request.
        "location" if to.contains('?') || has("keep-query") => to,
        "location" => format!("{to}?"),
        "prefix" => {
            let query = if has("drop-query") { "?" } else { "" };
            format!("{}{{path}}{query}", to.trim_end_matches('/'))
        }
        _ => return None,
    };
    let is_known = matches!(code.as_str(), "301" | "302" | "303" | "307" | "308");
    is_known.then(|| ("redirect", table([("to", text(&to)), ("status", code)])))
}

/// The status that a `deny` names.
pub(super) fn deny_status(line: &Line) -> Option<u16> {
    let words = line.unconditional();
    let at = words.iter().position(|word| word == "deny_status" || word == "status")?;
    words.get(at + 1)?.parse().ok()
}

/// `return status 200 content-type text/plain string "ok"`.
fn respond(line: &Line) -> Option<(&'static str, String)> {
    let mut keys = vec![("status", line.after("status").unwrap_or("200").to_owned())];
    if ["file", "lf-file", "errorfile", "errorfiles", "hdr", "lf-string"].iter().any(|word| line.has(word)) {
        return None;
    }
    keys.extend(line.after("string").map(|body| ("body", text(body))));
    keys.extend(line.after("content-type").map(|kind| ("headers", table([("content-type", text(kind))]))));
    Some(("respond", table(keys)))
}

/// The alternatives of a rule's condition that can be said, and what is known of the others.
fn sides(line: &Line, rules: &Rules<'_>) -> (Vec<Criteria>, Vec<Criteria>) {
    match line.taken().condition() {
        None => (vec![Criteria::default()], Vec::new()),
        Some((_, true)) => (Vec::new(), vec![Criteria::default()]),
        Some((words, false)) => conditions::sides(words, &rules.acls),
    }
}

const ANY: &str = "/{*rest}";
const X_FORWARDED_FOR: &str = "x-forwarded-for";
/// Among the fields that rules change: the address of the client, and the path.
const SOURCE: &str = "(src)";
const PATH: &str = "(path)";
/// Rules by address for some requests alone: so few, because with each of them there may be twice as many routes.
const BOUNDS_MAX: usize = 6;

/// Actions that let everything pass; a star stands for any end. All others may refuse.
const PASSING: &str = "\
    accept add-acl add-header allow cache-store cache-use capture del-acl del-header* del-map disable-l7-retry \
    do-log do-resolve early-hint normalize-uri pause replace-header replace-value sc-* set-* strict-mode track-sc* \
    unset-var* wait-for-handshake";

/// Filters that let everything pass.
const FILTERS: &[&str] =
    &["bwlim-in", "bwlim-out", "cache", "comp-req", "comp-res", "compression", "opentracing", "trace"];
