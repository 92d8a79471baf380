//! `return` and `rewrite`.

use config::printer::{table, text};

use super::super::regex::beginning;
use super::super::template;
use super::Reading;
use super::lexer::Directive;
use super::prefix::Match;
use super::values::VarScope;

/// Statuses that come with a place to go to.
const REDIRECTS: [&str; 5] = ["301", "302", "303", "307", "308"];

pub(super) enum Rewritten {
    /// The path that an upstream gets.
    Path(String),
    /// A key and a value of the route.
    Answer(&'static str, String),
}

impl Reading<'_> {
    /// The key and value of a route that answers as a `return` does.
    pub(super) fn answer(
        &mut self,
        found: &Directive,
        around: &VarScope<'_, '_>,
    ) -> Option<(&'static str, String)> {
        let (first, second) = (found.taken().arg(0), found.args.get(1));
        let is_place =
            first.starts_with("http://") || first.starts_with("https://") || first.starts_with('$');
        let answer = match second {
            None if is_place => redirect(first, "302", around),
            Some(place) if REDIRECTS.contains(&first) => redirect(place, first, around),
            _ => respond(first, second.map(String::as_str), around),
        };
        if answer.is_none() {
            let why = match first {
                "444" => "a connection cannot be closed without a response; it is answered 501 instead",
                _ => "its status or one of its variables has no counterpart; the location answers 501",
            };
            self.draft.notes.left_out_line(found, why);
        }
        answer
    }

    /// What a `rewrite` of a location does, if it replaces a literal beginning of the path.
    pub(super) fn rewritten(
        &mut self,
        found: &Directive,
        at: &Match,
        around: &VarScope<'_, '_>,
    ) -> Option<Rewritten> {
        let (regex, to, flag) = (found.taken().arg(0), found.arg(1), found.arg(2));
        let rewritten = match flag {
            "redirect" => moved(regex, to, at, "302", around),
            "permanent" => moved(regex, to, at, "301", around),
            _ if to.starts_with("http://") || to.starts_with("https://") => {
                moved(regex, to, at, "302", around)
            }
            "break" | "" => replaced(regex, to, at).map(Rewritten::Path),
            _ => None,
        };
        if rewritten.is_none() {
            let why = match flag {
                "last" => "a rewritten path is not routed again; the location answers 501",
                _ => "only a literal beginning of the path can be replaced; the location answers 501",
            };
            self.draft.notes.left_out_line(found, why);
        }
        rewritten
    }
}

/// `^/old/(.*)$` to `/new/$1`, where the location is `/old/`: the path that the upstream gets.
fn replaced(regex: &str, to: &str, at: &Match) -> Option<String> {
    let (begin, tail) = beginning(regex)?;
    let (slash, has_rest) = match tail.as_str() {
        "(.*)" | "(.*)$" | "(.+)" | "(.+)$" => ("", true),
        "/(.*)" | "/(.*)$" | "/?(.*)" | "/?(.*)$" | "(/.*)" | "(/.*)$" => ("/", true),
        "" | "$" | ".*" | ".*$" => ("", false),
        _ => return None,
    };
    if begin.trim_end_matches('/') != at.text().trim_end_matches('/') || at.is_exact() && has_rest {
        return None;
    }
    match (to.strip_suffix("$1"), has_rest) {
        (Some(new), true) if !new.contains(['$', '?']) && new.starts_with('/') => {
            let new = template::literal(new);
            if begin == at.text() && !begin.ends_with('/') && !at.is_split(regex) {
                return Some(format!("{new}{{rest}}"));
            }
            // A slash between them, because `(/.*)` keeps the one that the pattern of a route leaves out of `rest`.
            let between =
                if tail.starts_with("(/") || slash.is_empty() && !begin.ends_with('/') { "/" } else { "" };
            Some(format!(
                "{}{between}{{rest}}",
                if between.is_empty() { &new } else { new.trim_end_matches('/') }
            ))
        }
        (None, _) if !to.contains(['$', '?']) && to.starts_with('/') => Some(template::literal(to)),
        _ => None,
    }
}

/// A rewrite that sends the client elsewhere. Its query follows, unless the new place ends in `?`.
fn moved(regex: &str, to: &str, at: &Match, status: &str, around: &VarScope<'_, '_>) -> Option<Rewritten> {
    let (to, keeps_query) = match to.strip_suffix('?') {
        Some(to) => (to, false),
        None => (to, true),
    };
    let place = match to.split_once("$request_uri") {
        // The path as it is, because `$request_uri` holds the query already.
        Some((before, "")) => format!("{}{{path}}", around.template(before)?),
        Some(_) => return None,
        None if matches!(regex, "^" | "^(.*)$" | "^(.*)" | "^/(.*)$" | "^/(.*)" | "^.*" | "^.*$") => {
            let before = to.strip_suffix("$1").map(|before| before.strip_suffix('/').unwrap_or(before));
            match before {
                Some(before) => format!("{}{{path}}", around.template(before)?),
                None => query_kept(around.template(to)?, keeps_query),
            }
        }
        None => query_kept(replaced_anywhere(regex, to, at, around)?, keeps_query),
    };
    Some(Rewritten::Answer("redirect", shown(&place, status)))
}

/// As [`replaced`], with a host in front.
fn replaced_anywhere(regex: &str, to: &str, at: &Match, around: &VarScope<'_, '_>) -> Option<String> {
    let start = to.find("://").map_or(0, |scheme| scheme + 3);
    let slash = start + to[start..].find('/')?;
    let path = replaced(regex, &to[slash..], at)?;
    Some(format!("{}{path}", around.template(&to[..slash])?))
}

fn query_kept(place: String, is_kept: bool) -> String {
    if is_kept || place.contains('?') { place } else { format!("{place}?") }
}

/// Where a `return` sends the client, with the query only if nginx sends it.
fn redirect(place: &str, status: &str, around: &VarScope<'_, '_>) -> Option<(&'static str, String)> {
    let template = match place.strip_suffix("$request_uri") {
        Some("https://$host" | "https://$http_host") => "https".to_owned(),
        Some(before) => format!("{}{{path}}", around.template(before)?),
        None => match place.strip_suffix("$is_args$args") {
            Some(before) => around.template(before)?,
            None => query_kept(around.template(place)?, false),
        },
    };
    let is_known = template == "https" || template.starts_with('/') || template.contains("://");
    is_known.then(|| ("redirect", shown(&template, status)))
}

fn shown(place: &str, status: &str) -> String {
    table([("to", text(place)), ("status", status.to_owned())])
}

fn respond(status: &str, body: Option<&str>, around: &VarScope<'_, '_>) -> Option<(&'static str, String)> {
    let number: u16 = status.parse().ok().filter(|status| (200..=599).contains(status) && *status != 444)?;
    let mut keys = vec![("status", number.to_string())];
    if let Some(body) = body.filter(|body| !body.is_empty()) {
        if body.contains(['{', '}']) && body.contains('$') {
            return None;
        }
        // As it is without a variable, because in a body a brace means something only in front of a name.
        let body = if body.contains('$') { around.template(body)? } else { body.to_owned() };
        keys.push(("body", text(&body)));
        let kind = around.scope.word("default_type").unwrap_or("text/plain");
        keys.push(("headers", table([("content-type", text(kind))])));
    }
    Some(("respond", table(keys)))
}
