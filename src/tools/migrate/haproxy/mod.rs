//! haproxy.cfg: frontends, backends, stick tables.

mod backends;
mod conditions;
mod frontends;
mod lines;
mod prefixes;
mod rates;
mod rules;
#[cfg(test)]
mod tests;
mod tls;
mod values;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::draft::Draft;
use super::file::Error;
use lines::{Line, Section};

/// What differs in every configuration.
pub(super) const EVERYWHERE: &[&str] = &[
    "The most specific route decides, not the first rule; a rule that this would change is listed above.",
    "A slash at the end of a path makes no difference.",
    "All listeners serve all routes. Without a matching rule the response is 404, not 503.",
    "A failed request is retried at most once. WebSocket passes only where `upgrade = true` is set.",
    "Timeouts have defaults here (1 s to connect, 15 s to respond).",
    "X-Forwarded-* of clients is removed; the gateway writes X-Forwarded-For, -Proto and -Host.",
    "A value added to a header that the gateway sets itself (X-Forwarded-*, X-Request-Id, Via) replaces the gateway's.",
    "Changes to responses apply to the gateway's own refusals (401, 403, 413, 429) only with `always = true`.",
    "Limits answer 429 with Retry-After. IPv6 clients are counted by /64 (`ipv6-prefix` of [client-ip]).",
];

/// Everything that the parts of the reader share.
struct Reading<'d> {
    draft: &'d mut Draft,
    directory: &'d Path,
    sections: &'d [Section],
    /// Upstreams that were made, by the name of their backend.
    upstreams: BTreeMap<String, String>,
}

/// Reads a text into the draft.
pub(super) fn read(path: &Path, text: &str, draft: &mut Draft) -> Result<(), Error> {
    let sections = lines::read(path, text)?;
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut reading =
        Reading { draft, directory: &directory, sections: &sections, upstreams: BTreeMap::new() };
    let mut fronts: Vec<&Section> =
        sections.iter().filter(|section| matches!(section.kind.as_str(), "frontend" | "listen")).collect();
    // The main port's first, because routes of other ports are closed beside those.
    fronts.sort_by_key(|section| !reading.is_at_main_port(section));
    for section in fronts {
        reading.frontend(section);
    }
    unread(&sections, reading.draft);
    draft.list_paths(path, false, false);
    Ok(())
}

impl<'d> Reading<'d> {
    /// Lines of a section, and of its defaults where it has none that begin so.
    fn lines(&self, section: &'d Section, begin: &str) -> Vec<&'d Line> {
        let of =
            |section: &'d Section| section.lines.iter().filter(|line| line.begins(begin)).collect::<Vec<_>>();
        let own = of(section);
        match section.defaults.and_then(|index| self.sections.get(index)) {
            Some(defaults) if own.is_empty() => of(defaults),
            _ => own,
        }
    }

    /// A timeout of a section. One that is no time here is listed.
    fn timeout(&mut self, section: &'d Section, word: &str) -> Option<Duration> {
        let line = self.line(section, &format!("timeout {word}"))?;
        let found = values::time(line.word(2));
        if found.is_none() {
            let why = "a timeout must be at least 1 ms and cannot be unlimited";
            self.draft.notes.left_out_line(line, why);
        }
        found
    }

    /// The last of them, marked as read.
    fn line(&self, section: &'d Section, begin: &str) -> Option<&'d Line> {
        self.lines(section, begin).last().map(|line| line.taken())
    }
}

/// Lists every line that nobody has read.
fn unread(sections: &[Section], draft: &mut Draft) {
    for section in sections {
        let is_whole = matches!(
            section.kind.as_str(),
            "global" | "resolvers" | "mailers" | "ring" | "log-forward" | "traces"
        );
        if is_whole {
            draft.notes.needless(&section.place, &section.kind);
            let is_tls = |line: &&Line| {
                !line.is_taken() && GLOBAL_TLS.iter().any(|begin| line.word(0).starts_with(begin))
            };
            for line in section.lines.iter().filter(is_tls) {
                draft.notes.left_out_line(line, "no listener and no server inherits this");
            }
            continue;
        }
        if !matches!(section.kind.as_str(), "defaults" | "frontend" | "backend" | "listen") {
            let what = format!("{} {}", section.kind, section.name);
            draft.notes.left_out(&section.place, &what, "it has no counterpart");
            continue;
        }
        for line in section.lines.iter().filter(|line| !line.is_taken()) {
            let first = line.word(0);
            let needless = NEEDLESS.split(", ").any(|words| line.begins(words));
            match needless {
                true => draft.notes.needless(&line.place, &line.words[..line.words.len().min(2)].join(" ")),
                false => {
                    let why = WHY.iter().find(|(word, _)| *word == first || line.begins(word));
                    let why =
                        why.map_or("it has no counterpart, or `migrate` does not know it", |(_, why)| why);
                    draft.notes.left_out_line(line, why);
                }
            }
        }
    }
}

/// Lines of `global` that say how certificates are read and asked for.
const GLOBAL_TLS: &[&str] = &["ssl-", "ca-base", "crt-base"];

const NEEDLESS: &str = "\
    log, option httplog, option tcplog, option dontlognull, option dontlog-normal, option log-health-checks, \
    option forwardfor, option http-server-close, option http-keep-alive, option httpclose, option redispatch, \
    option splice-auto, option splice-request, option splice-response, option tcp-smart-accept, \
    option tcp-smart-connect, option prefer-last-server, option contstats, option abortonclose, http-reuse, \
    log-format, log-tag, unique-id-format, description, backlog, timeout tunnel, timeout client-fin, \
    timeout server-fin, fullconn, option http-use-htx, capture, http-request capture, http-request set-log-level, \
    http-request track-sc0, http-request track-sc1, http-request track-sc2, stick-table, mode";

const WHY: &[(&str, &str)] = &[
    ("cookie", "write `sticky = { cookie = …, secret = … }` at the upstream"),
    ("stick", "`balance = \"hash:ip\"` or `sticky` of the upstream keeps a client at its server"),
    ("appsession", "write `sticky = { cookie = …, secret = … }` at the upstream"),
    ("compression", "write `compress` at its routes, or [compress] for all"),
    ("errorfile", "refusals have a format of their own"),
    ("errorfiles", "refusals have a format of their own"),
    ("errorloc", "refusals have a format of their own"),
    ("tcp-request", "write `max-connections` and `max-connections-per-ip` at the listener"),
    ("filter", "the gateway has no filters"),
    ("stats", "the admin listener has /metrics and /v1/upstreams"),
    ("use-server", "a rule cannot choose a server of an upstream"),
    ("monitor-uri", "write a route with `respond`, or use /readyz of the admin listener"),
    ("acl", "no rule that was taken over uses it, or routes cannot express it"),
    (
        "http-response",
        "use `response-headers`, which has no conditions; with `always = true` it changes refusals, too",
    ),
    (
        "http-after-response",
        "use `response-headers`, which has no conditions; with `always = true` it changes refusals, too",
    ),
    ("http-request", "this rule has no counterpart"),
    (
        "unique-id-header",
        "write `headers = { set = { x-request-id = \"{request_id}\" } }`, with its name, at the routes",
    ),
    ("maxconn", "write `max-connections` at the listener"),
    ("server", UNUSED),
    ("balance", UNUSED),
    ("default-server", UNUSED),
    ("timeout", UNUSED),
    ("retries", UNUSED),
    ("retry-on", UNUSED),
    ("http-check", UNUSED),
    ("option httpchk", UNUSED),
];

const UNUSED: &str = "no route that was taken over leads to its servers";
