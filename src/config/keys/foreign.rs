//! Keys and values that people bring along from other programs, and keys of ours in the wrong section: what to write.
//!
//! The rows of `foreign.txt`: sections, or `any section`; words, in which case, `-` and `_` do not count; the key that is
//! meant; the hint.

use std::borrow::Cow;

use super::policy::POLICY;
use super::process::{LIMITS, ROOT};
use super::route::ROUTE;
use super::{Key, Kind, Section};
use base::words::listed;

/// The key that is meant by another in the section with this heading, and what to write.
pub(crate) fn foreign_key(heading: &str, key: &str) -> Option<(&'static str, &'static str)> {
    rows(heading, key).next()
}

/// What to write for a value of another program under this key, which takes these.
pub(crate) fn foreign_value(key: &str, value: &str, known: &[&str]) -> Option<&'static str> {
    let heading = format!("a value of `{key}`");
    rows(&heading, value).find(|(meant, _)| *meant == "-" || known.contains(meant)).map(|(_, hint)| hint)
}

fn rows<'h>(heading: &'h str, word: &str) -> impl Iterator<Item = (&'static str, &'static str)> + use<'h> {
    let word = squeezed(word);
    include_str!("foreign.txt").lines().filter_map(move |line| {
        let (headings, rest) = line.split_once(" | ")?;
        let (words, rest) = rest.split_once(" | ")?;
        let is_meant =
            headings.split(", ").any(|it| it == heading) && words.split(' ').any(|it| squeezed(it) == word);
        is_meant.then(|| rest.split_once(" | ")).flatten()
    })
}

fn squeezed(word: &str) -> String {
    word.replace(['-', '_'], "").to_ascii_lowercase()
}

/// The same for an unknown key of a section, which may also be a key of a route, of a policy, or a section.
pub(crate) fn meant(
    section: &Section,
    key: &str,
    is_table: bool,
) -> Option<(&'static str, Cow<'static, str>)> {
    let key = key.to_ascii_lowercase().replace('_', "-");
    let is_of_route = section.heading == ROOT.heading && ROUTE.key(&key).is_some();
    let is_of_policy =
        [ROUTE.heading, LIMITS.heading].contains(&section.heading) && POLICY.key(&key).is_some();
    let fixed = |(meant, hint): (&'static str, &'static str)| (meant, Cow::Borrowed(hint));
    // A table, because the other programs nest what stands apart here.
    let apart = ROOT
        .key(&key)
        .filter(|row| is_table && !row.kind.sections().iter().any(|one| one.heading == section.heading));
    let apart = apart
        .filter(|row| matches!(row.kind, Kind::Map(_) | Kind::List(_)))
        .and_then(|row| Some((row.name, heading(row)?)));
    match foreign_key(section.heading, &key).map(fixed) {
        _ if apart.is_some() => apart
            .map(|(name, heading)| (name, format!("it is a section of its own: write `{heading}`").into())),
        None if is_of_route && is_table => Some((
            "route",
            format!("it is a key of a route: write `[route.{key}]` below its `[[route]]`").into(),
        )),
        None if is_of_route => Some(("route", "it is a key of a route: write `[[route]]` above it".into())),
        None if is_of_policy => Some((
            "limit",
            "it is a key of a policy: write it in `[policy.NAME]`, and `limit = \"NAME\"` at the route"
                .into(),
        )),
        // A host, because Caddy begins a site with it.
        None if section.heading == ROOT.heading && is_table && key.contains(['.', ':']) => {
            Some(("route", "write `[[route]]` with `host = \"api.example.com\"` and `to`".into()))
        }
        own => own,
    }
}

/// The same for an unknown key in whatever section.
pub(crate) fn anywhere(key: &str) -> Option<(&'static str, Cow<'static, str>)> {
    foreign_key("any section", key).map(|(meant, hint)| (meant, Cow::Borrowed(hint)))
}

/// Where a key, with this value, is one that a section does not have: in tables of the section itself, or in sections of the
/// file.
pub(crate) fn home(section: &Section, key: &str, value: &str) -> Option<String> {
    let within =
        |row: &&Key| row.kind.sections().iter().any(|one| one.key(key).is_some_and(Key::is_of_files));
    let inner: Vec<&Key> =
        section.keys().filter(|_| section.heading != ROOT.heading).filter(within).collect();
    if let [row] = &*inner {
        let is_list = row.kind.each().iter().any(|kind| matches!(kind, Kind::List(_)));
        let value =
            if is_list { format!("[{{ {key} = {value} }}]") } else { format!("{{ {key} = {value} }}") };
        return Some(format!("it is a key of `{0}`: write `{0} = {value}`", row.name));
    }
    let own = ROOT.key(key).filter(|row| row.is_of_files());
    let is_other = |row: &&Key| !row.kind.sections().iter().any(|one| one.heading == section.heading);
    let homes: Vec<String> = match &*inner {
        [] => ROOT.keys().filter(within).filter(is_other).filter_map(heading).collect(),
        several => several.iter().map(|row| row.name.to_owned()).collect(),
    };
    let listed = listed(&homes.iter().map(String::as_str).collect::<Vec<_>>());
    match own.map(heading) {
        Some(Some(own)) if homes.is_empty() => Some(format!("it is a section of its own: write `{own}`")),
        Some(Some(own)) => {
            Some(format!("it is a section of its own, `{own}`, and a key of {listed}: write it there"))
        }
        Some(None) => Some("it belongs at the top of the file, before the first `[…]`".to_owned()),
        None => {
            (1..=HOMES_MAX).contains(&homes.len()).then(|| format!("it is a key of {listed}: write it there"))
        }
    }
}

/// The sections of the file that most of these keys are of.
pub(crate) fn fitting(keys: &[&str]) -> Option<String> {
    let fit = |row: &Key| row.kind.sections().iter().map(|one| one.count_of(keys)).max().unwrap_or_default();
    let best = ROOT.keys().map(fit).max().filter(|best| *best > 0)?;
    let best: Vec<String> = ROOT.keys().filter(|row| fit(row) == best).filter_map(heading).collect();
    let listed = listed(&best.iter().map(String::as_str).collect::<Vec<_>>());
    (1..=HOMES_MAX).contains(&best.len()).then(|| format!("its keys are those of {listed}: write that"))
}

/// How a section of the file begins. `None`: the key is no section.
fn heading(row: &Key) -> Option<String> {
    let name = row.name;
    match row.kind.each().first()? {
        Kind::Table(_) => Some(format!("[{name}]")),
        Kind::Map(_) => Some(format!("[{name}.NAME]")),
        Kind::List(_) => Some(format!("[[{name}]]")),
        _ => None,
    }
}

/// Not of more sections, because a key of so many says too little of what is meant.
const HOMES_MAX: usize = 3;
