//! Backends as upstreams.

use config::printer::{array, table, text, time as show_time};

use super::super::draft::Section as Upstream;
use super::super::values::is_field;
use super::Reading;
use super::lines::{Line, Section};
use super::values::time;

impl<'d> Reading<'d> {
    /// The upstream of a backend; `None` if it has no server that takes requests.
    pub(super) fn upstream(&mut self, section: &'d Section) -> Option<String> {
        if let Some(name) = self.upstreams.get(&section.name) {
            return Some(name.clone());
        }
        let mut upstream = Upstream::new(&section.name);
        let mut servers = Vec::new();
        let mut first = None;
        let mut tls: Option<String> = None;
        let defaults = self.line(section, "default-server").map_or([].as_slice(), |line| &line.words[1..]);
        for server in section.lines.iter().filter(|line| line.begins("server")) {
            // Behind its own words, because those go before the words of `default-server`.
            let server = server.taken().with(defaults.iter().cloned());
            let Some(shown) = self.server(&server) else { continue };
            if speaks_tls(&server) {
                let own = self.server_tls(&server);
                if tls.as_ref().is_some_and(|tls| *tls != own) {
                    let why = "all servers of an upstream have one `tls`; it is left out, as its own differs from the first one's";
                    self.draft.notes.left_out_line(&server, why);
                    continue;
                }
                tls = Some(own);
            }
            servers.push(shown);
            if let Some(first) = first.as_ref().filter(|first| shared_words(first) != shared_words(&server)) {
                let why = format!(
                    "`health` and `http` apply to all servers of an upstream: those of `server {}` are used",
                    first.word(1)
                );
                self.draft.notes.line_differs(&server, why);
            }
            first = first.or(Some(server));
        }
        let Some(first) = first else {
            let why = "it has no server that takes requests; its routes answer 503";
            self.draft.notes.left_out(&section.place, &format!("{} {}", section.kind, section.name), why);
            return None;
        };
        upstream.key("servers", array(servers.into_iter()));
        self.balance(section, &mut upstream);
        if first.after("alpn").is_some_and(|alpn| alpn.starts_with("h2")) {
            upstream.key("http", text("h2"));
        }
        upstream.keys.extend(tls.filter(|tls| !tls.is_empty()).map(|tls| ("tls", tls)));
        self.timeouts(section, &mut upstream);
        self.health(section, &first, &mut upstream);
        self.retry(section, &mut upstream);
        let name = self.draft.add_upstream(upstream);
        self.upstreams.insert(section.name.clone(), name.clone());
        Some(name)
    }

    /// A server, as `servers` has it.
    fn server(&mut self, server: &Line) -> Option<String> {
        let weight = server.after("weight").and_then(|weight| weight.parse::<u64>().ok());
        let unusable = [
            ("backup", "the gateway has no backup servers, so it gets no requests"),
            ("disabled", "it is disabled"),
        ];
        let unusable = unusable.iter().find(|(word, _)| server.has(word)).map(|(_, why)| *why);
        let unusable = unusable.or_else(|| (weight == Some(0)).then_some("its weight is 0"));
        let unusable = unusable.or_else(|| {
            let sends = server.words.iter().any(|word| word.starts_with("send-proxy"));
            sends.then_some("the PROXY protocol is not sent to servers")
        });
        if let Some(why) = unusable {
            self.draft.notes.left_out_line(server, why);
            return None;
        }
        if !self.server_words(server) {
            return None;
        }
        let is_tls = speaks_tls(server);
        let address = server.word(2);
        let url = match address.strip_prefix("unix@").or_else(|| address.starts_with('/').then_some(address))
        {
            Some(path) => format!("unix:{path}"),
            None => {
                let address = address.trim_start_matches("ipv4@").trim_start_matches("ipv6@");
                format!("{}://{address}", if is_tls { "https" } else { "http" })
            }
        };
        if !url.starts_with("unix:") && !address.contains(':') {
            let why =
                "without a port, the scheme's is used (80 or 443), not the one that the client connected to";
            self.draft.notes.line_differs(server, why);
        }
        for word in ["cookie", "maxconn", "slowstart", "on-marked-down", "observe", "maxqueue", "track"] {
            if let Some(value) = server.after(word) {
                let why = match word {
                    "maxconn" => {
                        "write `connections = { max = … }` at the upstream: it applies to each of its servers"
                    }
                    "cookie" => "write `sticky = { cookie = …, secret = … }` at the upstream",
                    "slowstart" => "write `slow-start` at the upstream",
                    _ => "it has no counterpart",
                };
                self.draft.notes.left_out(
                    &server.place,
                    &format!("server {} {word} {value}", server.word(1)),
                    why,
                );
            }
        }
        Some(match weight {
            // It always fits, because 256 is the most there, 1,000 here.
            Some(weight) if weight != 1 => format!("{{ url = {}, weight = {weight} }}", text(&url)),
            _ => text(&url),
        })
    }

    /// `retries` and `retry-on`: one more try is the most here.
    fn retry(&mut self, section: &'d Section, upstream: &mut Upstream) {
        let mut keys = Vec::new();
        if let Some(retries) = self.line(section, "retries") {
            let times = u8::from(retries.word(1) != "0");
            keys.push(("times", times.to_string()));
            if !matches!(retries.word(1), "0" | "1") {
                let why = "a request is retried at most once, at another server";
                self.draft.notes.line_differs(retries, why);
            }
        }
        if let Some(line) = self.line(section, "retry-on") {
            let mut on: Vec<&str> = Vec::new();
            for word in &line.words[1..] {
                let found = match word.as_str() {
                    "none" => None,
                    "conn-failure" => Some("connect"),
                    "empty-response" => Some("reset-before-bytes"),
                    "response-timeout" => Some("timeout"),
                    status if status.len() == 3 && status.starts_with(['4', '5']) => Some(status),
                    other => {
                        let why = format!("`{other}` has no counterpart in `retry.on`");
                        self.draft.notes.left_out_line(line, why);
                        None
                    }
                };
                on.extend(found.filter(|found| !on.contains(found)));
            }
            if line.has("none") {
                keys = vec![("times", "0".to_owned())];
            } else if !on.is_empty() {
                keys.push(("on", array(on.into_iter().map(text))));
            }
        }
        if !keys.is_empty() {
            upstream.key("retry", table(keys));
        }
    }

    fn balance(&mut self, section: &'d Section, upstream: &mut Upstream) {
        let line = self.line(section, "balance");
        if let Some(line) = line.filter(|line| line.word(1).starts_with("hdr(") && line.words.len() > 2) {
            self.draft.notes.line_differs(line, "the whole header is hashed");
        }
        let balance = match line.map_or("roundrobin", |line| line.word(1)) {
            "roundrobin" | "static-rr" => "round-robin",
            "leastconn" => "least-requests",
            "source" => "hash:ip",
            "uri" => {
                let said = line
                    .map(|line| (line, line.word(2)))
                    .filter(|(_, said)| !matches!(*said, "" | "path-only"));
                if let Some((line, said)) = said {
                    let why =
                        if said == "whole" { "the query is not hashed" } else { "the whole path is hashed" };
                    self.draft.notes.line_differs(line, why);
                }
                "hash:path"
            }
            other => {
                if let Some(field) = other.strip_prefix("hdr(").and_then(|rest| rest.strip_suffix(')'))
                    && is_field(field)
                {
                    let balance = format!("hash:header:{}", field.to_ascii_lowercase());
                    return upstream.key("balance", text(&balance));
                }
                if let Some(line) = line {
                    let why = match other.starts_with("random") {
                        true => "the less loaded of two random servers is chosen",
                        false => {
                            "`balance = \"hash:…\"` needs a dimension, which this is not: the less loaded of two \
                             random servers is chosen"
                        }
                    };
                    self.draft.notes.line_differs(line, why);
                }
                "p2c"
            }
        };
        upstream.key("balance", text(balance));
    }

    fn timeouts(&mut self, section: &'d Section, upstream: &mut Upstream) {
        let (connect, server) = (self.timeout(section, "connect"), self.timeout(section, "server"));
        let mut keys = Vec::new();
        keys.extend(connect.map(|time| ("connect", show_time(time))));
        keys.extend(
            server.into_iter().flat_map(|time| [("response", show_time(time)), ("stall", show_time(time))]),
        );
        if !keys.is_empty() {
            upstream.key("timeouts", table(keys));
        }
        if let Some(wait) = self.timeout(section, "queue") {
            upstream.key("connections", table([("wait", show_time(wait))]));
        }
    }

    /// Lists what a check says besides its path.
    fn check_words(&mut self, check: &Line, send: Option<&'d Line>) {
        let version = check.words.get(4..).unwrap_or_default();
        // From the version on, because fields stand behind it, in the same word or in words of their own.
        let has_fields = version.len() > 1 || version.iter().any(|word| word.contains(':'));
        let sends = |send: &&Line| ["hdr", "body", "body-lf"].iter().any(|word| send.has(word));
        for line in Some(check).filter(|_| has_fields).into_iter().chain(send.filter(sends)) {
            let why = "a health check has no headers and no body of its own";
            self.draft.notes.left_out_line(line, why);
        }
    }

    /// `check` of the first server, with what the section says of it.
    fn health(&mut self, section: &'d Section, first: &Line, upstream: &mut Upstream) {
        if !is_checked(first) {
            return;
        }
        let mut keys = Vec::new();
        match self.line(section, "option httpchk") {
            Some(check) => {
                let uri = check.words[2..].iter().find(|word| word.starts_with('/')).cloned();
                let send = self.line(section, "http-check send");
                let uri = send.and_then(|send| send.after("uri")).map(str::to_owned).or(uri);
                keys.push(("path", text(&uri.unwrap_or_else(|| "/".to_owned()))));
                let asked = [check.word(2), send.and_then(|send| send.after("meth")).unwrap_or_default()];
                if asked.iter().any(|method| matches!(*method, "HEAD" | "OPTIONS" | "POST"))
                    || check.words.len() == 2
                {
                    self.draft.notes.line_differs(check, "the check is a GET");
                }
                self.check_words(check, send);
                match self.line(section, "http-check expect") {
                    Some(expect) if expect.word(2) == "status" => {
                        let statuses = expect.word(3).split(',').map(text);
                        keys.push(("status", array(statuses)));
                    }
                    Some(expect) if expect.word(2) == "string" => {
                        keys.push(("body", text(&expect.words[3..].join(" "))))
                    }
                    Some(expect) => {
                        self.draft.notes.left_out_line(expect, "only a status or a string can be expected");
                    }
                    None => {}
                }
            }
            None => keys.push(("tcp", "true".to_owned())),
        }
        let number = |word: &str, default: &str| first.after(word).unwrap_or(default).to_owned();
        let every = first.after("inter").and_then(time).unwrap_or(std::time::Duration::from_secs(2));
        keys.push(("every", show_time(every)));
        let timeout = self.timeout(section, "check");
        keys.extend(timeout.map(|time| ("timeout", show_time(time))));
        keys.push(("unhealthy-after", number("fall", "3")));
        keys.push(("healthy-after", number("rise", "2")));
        keys.extend(first.after("port").map(|port| ("port", port.to_owned())));
        upstream.key("health", table(keys));
    }
}

fn is_checked(server: &Line) -> bool {
    server.has("check") && !server.has("no-check")
}

/// What a server says that is of its whole upstream here.
fn shared_words(server: &Line) -> (Vec<Option<&str>>, bool, bool) {
    let words = if is_checked(server) { &["inter", "fall", "rise", "port"][..] } else { &[] };
    let speaks_h2 = server.after("alpn").is_some_and(|alpn| alpn.starts_with("h2"));
    (words.iter().map(|word| server.after(word)).collect(), is_checked(server), speaks_h2)
}

fn speaks_tls(server: &Line) -> bool {
    server.has("ssl") && !server.has("no-ssl")
}
