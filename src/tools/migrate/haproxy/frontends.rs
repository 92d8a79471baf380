//! Frontends: listeners, and their rules as routes.

use config::printer::{array, table, text, time as show_time};

use super::super::draft::{Section as Listener, texts, unique};
use super::super::file;
use super::super::other_ports::{self, Ports};
use super::Reading;
use super::conditions;
use super::lines::{Line, Section};
use super::rules::passes;

impl<'d> Reading<'d> {
    /// The listeners and routes of a frontend, or of a `listen`.
    pub(super) fn frontend(&mut self, section: &'d Section) {
        let mode = self.line(section, "mode").map_or("tcp", |line| line.word(1));
        if mode != "http" {
            let why = "the gateway forwards only HTTP";
            self.draft.notes.left_out(
                &section.place,
                &format!("{} {} (mode {mode})", section.kind, section.name),
                why,
            );
            section.lines.iter().for_each(|line| {
                line.taken();
            });
            return;
        }
        let has = |word: &str| section.lines.iter().any(|line| line.begins(word));
        if has("stats") && !has("server") && !has("use_backend") && !has("default_backend") {
            let why = "the admin listener has /metrics and /v1/upstreams";
            self.draft.notes.left_out(&section.place, &format!("{} {}", section.kind, section.name), why);
            section.lines.iter().for_each(|line| {
                line.taken();
            });
            return;
        }
        if self.is_unknown(section) {
            let what = format!("{} {}", section.kind, section.name);
            self.draft.notes.left_out(&section.place, &what, other_ports::UNKNOWN);
            section.lines.iter().for_each(|line| {
                line.taken();
            });
            return;
        }
        let redirect = self.https_redirect(section);
        let Some(addresses) = self.addresses(section) else {
            section.lines.iter().for_each(|line| {
                line.taken();
            });
            return;
        };
        let (mut is_open, mut is_served) = (false, false);
        for bind in section.lines.iter().filter(|line| line.begins("bind")) {
            let is_tls = bind.taken().has("ssl");
            for address in bind.word(1).split(',') {
                let opens = self.bind(section, bind, address, redirect.as_ref().filter(|_| !is_tls));
                if let Some(listener) = self.draft.listeners.last_mut().filter(|_| opens) {
                    listener.keys.extend(addresses.clone());
                }
                is_open |= opens;
                is_served |= opens && (is_tls || redirect.is_none());
            }
        }
        if is_served {
            self.rules_at(section);
        } else if !is_open {
            let why = "none of its listeners is open, so its rules apply to no request";
            self.draft.notes.left_out(&section.place, &format!("{} {}", section.kind, section.name), why);
            section.lines.iter().for_each(|line| {
                line.taken();
            });
        }
    }

    /// `tcp-request connection reject` as the lists of a listener; `None` if it cannot be said, which is listed.
    fn addresses(&mut self, section: &'d Section) -> Option<Vec<(&'static str, String)>> {
        let lines = self.rule_lines(section);
        let acls: Vec<&Line> = lines.iter().copied().filter(|line| line.begins("acl")).collect();
        let (mut allow, mut deny) = (Vec::new(), Vec::new());
        let is_rule = |line: &&Line| {
            ["connection", "session"].contains(&line.word(1))
                && line.begins("tcp-request")
                && !passes(line.word(2))
        };
        for line in lines.into_iter().filter(is_rule) {
            let is_known = matches!(line.word(2), "reject" | "silent-drop");
            let read = line.taken().condition().and_then(|(words, unless)| {
                let read = conditions::read(words, &acls)?;
                let sources = read.iter().map(|which| which.only_source().cloned());
                let sources = sources.collect::<Option<Vec<_>>>()?;
                // Not `unless` of two lists, because both would have to say that.
                (is_known && (!unless || sources.len() == 1)).then_some((sources, unless))
            });
            let Some((sources, unless)) = read else {
                let why = "the connections it refuses cannot be expressed by addresses; the section is left out \
                    until you rewrite it";
                self.draft.notes.left_out_line(line, why);
                return None;
            };
            for source in sources {
                match source.is_negated ^ unless {
                    // Left out, because a second list would let in what the first keeps out.
                    true if !allow.is_empty() => {
                        let why = "two lists of allowed addresses cannot be combined; the section is left out until \
                            they are one";
                        self.draft.notes.left_out_line(line, why);
                        return None;
                    }
                    true => allow.extend(source.ranges),
                    false => deny.extend(source.ranges),
                }
            }
        }
        let lists = [("allow", allow), ("deny", deny)].into_iter().filter(|(_, list)| !list.is_empty());
        Some(lists.map(|(key, list)| (key, texts(&list))).collect())
    }

    /// The routes of a section; they are closed if it is reached through other ports than the main one.
    fn rules_at(&mut self, section: &'d Section) {
        if self.is_at_main_port(section) {
            return self.rules(section);
        }
        // Nothing to add, because the same rules at one more port need no routes of their own.
        if self.is_twin(section) {
            section.lines.iter().for_each(|line| {
                line.taken();
            });
            return;
        }
        let first = std::mem::take(&mut self.draft.routes);
        self.rules(section);
        self.draft.close_apart(first, &section.place, &format!("{} {}", section.kind, section.name));
    }

    /// Whether a section has the rules of one of the main port.
    fn is_twin(&self, section: &Section) -> bool {
        let is_twin = |other: &Section| {
            other.kind == "frontend" && self.is_at_main_port(other) && rules_of(other) == rules_of(section)
        };
        section.kind == "frontend" && self.sections.iter().any(is_twin)
    }

    /// Whether a section is reached through the port whose routes stay open.
    pub(super) fn is_at_main_port(&self, section: &Section) -> bool {
        self.main_port().is_none_or(|main| ports(section).contains(&main))
    }

    fn main_port(&self) -> Option<String> {
        let fronts = self.sections.iter().filter(|other| self.is_front(other));
        let all: Vec<Ports> = fronts.map(ports).collect();
        other_ports::main_port(all.iter())
    }

    /// Whether nothing says if a section or that of the main port is the one for everybody.
    fn is_unknown(&self, section: &Section) -> bool {
        let Some(main) = self.main_port().filter(|_| !self.is_at_main_port(section)) else { return false };
        !self.is_twin(section) && ports(section).iter().any(|port| !other_ports::is_known(&main, port))
    }

    /// Whether requests come through a section.
    fn is_front(&self, section: &'d Section) -> bool {
        let is_http = self.lines(section, "mode").last().is_some_and(|line| line.word(1) == "http");
        let has = |word: &str| section.lines.iter().any(|line| line.begins(word));
        let is_served = has("server") || has("use_backend") || has("default_backend");
        matches!(section.kind.as_str(), "frontend" | "listen") && is_http && is_served && has("bind")
    }

    /// A listener; `false` if there is none, which is listed.
    fn bind(
        &mut self,
        section: &'d Section,
        bind: &'d Line,
        address: &str,
        redirect: Option<&String>,
    ) -> bool {
        let Some(address) = socket(address) else {
            self.draft.notes.left_out_line(bind, "its address is not an IP address with a port");
            return false;
        };
        let taken: Vec<&str> = self.draft.listeners.iter().map(|listener| listener.name.as_str()).collect();
        let mut listener = Listener::new(unique(&section.name, "listener", &taken));
        listener.key("bind", text(&address));
        if address.starts_with("unix:") {
            for (key, word) in [("mode", "mode"), ("owner", "user"), ("group", "group")] {
                listener.keys.extend(bind.after(word).map(|value| (key, text(value))));
            }
        }
        let is_tls = bind.has("ssl");
        if bind.has("accept-proxy") {
            let why = "only listed proxies are trusted: the listener is left out until it has `proxy-protocol = { \
                from = [...] }`";
            self.draft.notes.left_out_line(bind, why);
            return false;
        }
        let alpn = bind.after("alpn").unwrap_or(if is_tls { "h2,http/1.1" } else { "http/1.1" });
        let versions: Vec<&str> = ["h2", "http/1.1"].into_iter().filter(|it| alpn.contains(it)).collect();
        listener.key("http", array(versions.iter().map(|version| text(version))));
        if is_tls {
            let mut pairs = Vec::new();
            for pair in bind.words.windows(2).filter(|pair| pair[0] == "crt") {
                let path = text(&file::absolute(self.directory, &pair[1]));
                pairs.push(table([("cert", path.clone()), ("key", path)]));
                if pair[1].ends_with('/') {
                    self.draft.notes.left_out_line(bind, "name each file of the folder in `certs`");
                }
            }
            listener.key("certs", array(pairs.into_iter()));
        }
        let most = self.line(section, "maxconn").map(|line| line.word(1));
        if !self.bind_words(bind, most, &mut listener) {
            return false;
        }
        listener.keys.extend(redirect.map(|redirect| ("redirect", redirect.clone())));
        let (header, client) = (self.timeout(section, "http-request"), self.timeout(section, "client"));
        let idle = self.timeout(section, "http-keep-alive").or(client);
        let timeouts = [("header", header), ("idle", idle), ("body-stall", client)];
        let timeouts = timeouts.into_iter().filter_map(|(key, time)| Some((key, show_time(time?))));
        let timeouts: Vec<_> = timeouts.collect();
        if !timeouts.is_empty() {
            listener.key("timeouts", table(timeouts));
        }
        self.draft.listeners.push(listener);
        true
    }

    /// `redirect scheme https`, which sends what came in the clear to https.
    fn https_redirect(&mut self, section: &'d Section) -> Option<String> {
        let line = section.lines.iter().find(|line| redirects_to_https(line))?;
        self.answer_words(line, if line.word(0) == "redirect" { 1 } else { 2 });
        let code = line.taken().after("code").unwrap_or("302");
        Some(table([("to", text("https")), ("status", code.to_owned())]))
    }
}

/// Address and port as `bind` has them.
fn socket(address: &str) -> Option<String> {
    let path = address.strip_prefix("unix@").unwrap_or(address);
    if path.starts_with('/') {
        return Some(format!("unix:{path}"));
    }
    let address = address.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
    let (host, port) = address.rsplit_once(':')?;
    let port: u16 = port.parse().ok()?;
    Some(match host {
        "" | "*" => format!("0.0.0.0:{port}"),
        "::" | "[::]" => format!("[::]:{port}"),
        host => {
            let host: std::net::IpAddr = host.trim_start_matches('[').trim_end_matches(']').parse().ok()?;
            std::net::SocketAddr::new(host, port).to_string()
        }
    })
}

/// Whether a line is `redirect scheme https` for all that came in the clear.
fn redirects_to_https(line: &Line) -> bool {
    (line.begins("http-request redirect scheme https") || line.begins("redirect scheme https"))
        && line.condition().is_none_or(|(words, unless)| {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            match unless {
                true => words == ["{", "ssl_fc", "}"],
                false => words == ["!{", "ssl_fc", "}"] || words == ["{", "!ssl_fc", "}"],
            }
        })
}

/// The ports of a section, but for those that only send clients to https.
fn ports(section: &Section) -> Ports {
    let redirects = section.lines.iter().any(redirects_to_https);
    let is_served = |line: &&Line| line.begins("bind") && (line.has("ssl") || !redirects);
    let binds = section.lines.iter().filter(is_served);
    let addresses = binds.flat_map(|bind| bind.word(1).split(',').filter_map(socket));
    addresses.map(|address| other_ports::port(&address)).collect()
}

/// What a section says, but for where it listens.
fn rules_of(section: &Section) -> Vec<&[String]> {
    let rules = section.lines.iter().filter(|line| !["bind", "maxconn", "log"].contains(&line.word(0)));
    rules.map(|line| line.words.as_slice()).collect()
}
