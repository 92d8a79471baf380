//! Makes what was read a configuration that `check` takes: a part that it does not take is closed or taken out, and listed.
//!
//! Other gateways take values that have no meaning here (a host with an underscore, a weight of a million). The reader of
//! gateway.toml is the one that knows, so it is asked, and each of its errors is traced to the part that it stands in.

use config::{self, printer};

use super::draft::{Draft, Section, Verdict};
use super::notes::Place;

/// A part of a printed configuration.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Listener(String),
    Auth(String),
    Upstream(String),
    Policy(String),
    Route(usize),
    /// A rule of a domain, by its place in it.
    Rule(String, usize),
}

/// The text of the draft, with no part in it that is wrong; errors that belong to no part stay.
pub(super) fn settle(
    draft: &mut Draft,
    print: impl Fn(&Draft) -> String,
) -> (String, Option<config::Errors>) {
    let mut text = print(draft);
    for _ in 0..ROUNDS_MAX {
        let Err(errors) = config::from_text(FILE, &text) else { return (text, None) };
        let mut wrong: Vec<(Part, String)> = Vec::new();
        for (line, message) in errors.lines() {
            let part = part(&text, line);
            wrong.extend(part.map(|part| (part, message.to_owned())));
        }
        wrong.sort();
        wrong.dedup_by(|next, first| next.0 == first.0);
        if wrong.is_empty() {
            return (text, Some(errors));
        }
        // From the last route on, so that those before it keep their place.
        wrong.into_iter().rev().for_each(|(part, message)| remedy(draft, part, &message));
        text = print(draft);
    }
    let errors = config::from_text(FILE, &text).err();
    (text, errors)
}

/// The part that a line, from 1, stands in.
fn part(text: &str, line: usize) -> Option<Part> {
    let lines: Vec<&str> = text.lines().take(line).collect();
    let heading = lines.iter().rposition(|line| line.starts_with('['))?;
    if lines[heading] == "[[route]]" {
        return Some(Part::Route(lines[..heading].iter().filter(|line| **line == "[[route]]").count()));
    }
    let (kind, name) = lines[heading].trim_matches(['[', ']']).split_once('.')?;
    let name = name.to_owned();
    match kind {
        "listener" => Some(Part::Listener(name)),
        "auth" => Some(Part::Auth(name)),
        "upstream" => Some(Part::Upstream(name)),
        "policy" => Some(Part::Policy(name)),
        // Below the heading stands `descriptors = [`, then a line for each rule.
        "rls" => Some(Part::Rule(name, line.checked_sub(heading + 3)?)),
        _ => None,
    }
}

/// Closes or takes out what is wrong, and whatever names it.
fn remedy(draft: &mut Draft, part: Part, message: &str) {
    let why = |what: &str| format!("{what}: {message}");
    match part {
        Part::Listener(name) => {
            if take_out(&mut draft.listeners, &name) {
                let what = format!("listener {name}");
                draft.notes.left_out(&Place::default(), &what, why("it is left out"));
            }
        }
        Part::Policy(name) => {
            take_out(&mut draft.policies, &name);
            for route in &mut draft.routes {
                route.limits.retain(|limit| printer::key(limit) != name);
            }
            for domain in &mut draft.domains {
                let names =
                    |verdict: &Verdict| matches!(verdict, Verdict::Limited(it) if printer::key(it) == name);
                domain.rules.retain(|rule| !names(&rule.verdict));
            }
            draft.notes.left_out(&Place::default(), &format!("limit {name}"), why("it is left out"));
        }
        Part::Auth(name) => {
            take_out(&mut draft.auth, &name);
            close_those(draft, &["auth"], &name, &why("routes that ask for it are closed (501)"));
        }
        Part::Upstream(name) => {
            take_out(&mut draft.upstreams, &name);
            close_those(draft, &["to"], &name, &why("routes to it are closed (501)"));
        }
        Part::Rule(domain, index) => {
            let Some(domain) = draft.domains.iter_mut().find(|it| printer::key(&it.name) == domain) else {
                return;
            };
            if index < domain.rules.len() {
                let rule = domain.rules.remove(index);
                draft.notes.left_out(&rule.place, &rule.what, why("its requests are not limited"));
            }
        }
        Part::Route(index) => {
            let Some(route) = draft.routes.get_mut(index) else { return };
            let (place, what) = (route.place.clone(), format!("route {}", route.name));
            if route.is_closed() {
                // Which requests it is for cannot be said.
                draft.routes.remove(index);
                draft.notes.left_out(&place, &what, why("its requests go to other routes"));
            } else {
                route.close();
                draft.notes.left_out(&place, &what, why("it is closed (501)"));
            }
        }
    }
}

/// Takes out the section whose heading says this name.
fn take_out(sections: &mut Vec<Section>, name: &str) -> bool {
    let before = sections.len();
    sections.retain(|section| printer::key(&section.name) != name);
    sections.len() < before
}

/// Closes the routes that name a section, as its heading says it, under one of these keys.
fn close_those(draft: &mut Draft, keys: &[&str], name: &str, why: &str) {
    let quoted = if name.starts_with('"') { name.to_owned() } else { printer::text(name) };
    let names = |(key, value): &(&'static str, String)| keys.contains(key) && value.contains(&quoted);
    let mut closed = Vec::new();
    for route in draft.routes.iter_mut().filter(|route| route.keys.iter().any(names)) {
        route.close();
        closed.push((route.place.clone(), format!("route {}", route.name)));
    }
    for (place, what) in closed {
        draft.notes.left_out(&place, &what, why);
    }
}

const FILE: &str = "gateway.toml";
/// What is wrong is closed first, then taken out, and what named it comes after that.
const ROUNDS_MAX: usize = 5;
