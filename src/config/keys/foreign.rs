//! Keys and values that people bring along from other programs, and keys of ours in the wrong section: what to write.
//!
//! The rows of `foreign.txt`: sections, or `any section`; words, in which case, `-` and `_` do not count; the key that is
//! meant; the hint. In a section, a key is also looked for in the sections that are `next to` it.

use std::borrow::Cow;

use super::policy::POLICY;
use super::process::{LIMITS, ROOT};
use super::route::ROUTE;
use super::{Key, Kind, Section};
use base::words::listed;

/// The key that is meant by another in the section with this heading, and what to write.
pub(crate) fn foreign_key(heading: &str, key: &str) -> Option<(&'static str, &'static str)> {
    rows(|it| it == heading, key).next()
}

/// The same in a section that has the key that is meant: several sections have the same heading.
pub(crate) fn foreign_key_of(
    section: &Section,
    heading: &str,
    key: &str,
) -> Option<(&'static str, &'static str)> {
    let is_of = |section: &Section, meant| section.key(meant).is_some_and(Key::is_of_files);
    rows(|it| it == heading, key)
        .find(|(meant, _)| *meant == "-" || is_of(section, meant) || is_of(&ROOT, meant))
}

/// Whether a key is a word of other programs, or of other sections, and no typing error.
pub(crate) fn is_word(key: &str) -> bool {
    rows(|heading| !heading.starts_with("a value of "), key).next().is_some()
}

/// What to write for a value of another program under this key, which takes these.
pub(crate) fn foreign_value(key: &str, value: &str, known: &[&str]) -> Option<&'static str> {
    let heading = format!("a value of `{key}`");
    rows(|it| it == heading, value)
        .find(|(meant, _)| *meant == "-" || known.contains(meant))
        .map(|(_, hint)| hint)
}

fn rows<H: Fn(&str) -> bool>(
    is_of: H,
    word: &str,
) -> impl Iterator<Item = (&'static str, &'static str)> + use<H> {
    let word = squeezed(word);
    include_str!("foreign.txt").lines().filter_map(move |line| {
        let (headings, rest) = line.split_once(" | ")?;
        let (words, rest) = rest.split_once(" | ")?;
        let is_meant = headings.split(", ").any(&is_of) && words.split(' ').any(|it| squeezed(it) == word);
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
    match foreign_key_of(section, section.heading, &key).map(fixed) {
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

/// Where a key, with this value, is one that a section does not have: in tables of the section itself, in the section that
/// it is in, or in one that is next to it. Not in others, where a key of the same name is something else.
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
    if let Some(own) = ROOT.key(key).filter(|row| row.is_of_files()) {
        return Some(heading(own).map_or_else(
            || "it belongs at the top of the file, before the first `[…]`".to_owned(),
            |own| format!("it is a section of its own: write `{own}`"),
        ));
    }
    let is_in =
        |of: &Section| of.keys().any(|row| row.kind.sections().iter().any(|one| std::ptr::eq(*one, section)));
    let is_near = |row: &&Key| {
        let is_next = foreign_key(&format!("next to {}", section.heading), row.name).is_some();
        let holds = |row: &&Key| row.kind.sections().into_iter().any(is_in);
        // Of one alone, because a table of several sections does not say in which it stands.
        let is_parent = || holds(row) && ROOT.keys().filter(holds).count() == 1;
        section.heading == ROOT.heading || is_next || is_parent()
    };
    let is_other = |row: &&Key| !row.kind.sections().iter().any(|one| one.heading == section.heading);
    let homes: Vec<String> = match &*inner {
        [] => ROOT.keys().filter(within).filter(is_other).filter(is_near).filter_map(heading).collect(),
        several => several.iter().map(|row| row.name.to_owned()).collect(),
    };
    let listed = listed(&homes.iter().map(String::as_str).collect::<Vec<_>>());
    (1..=HOMES_MAX).contains(&homes.len()).then(|| format!("it is a key of {listed}: write it there"))
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
