//! Makes what was read a configuration that `check` takes: a part that it does not take is closed or taken out, and listed.
//!
//! Other gateways take values that have no meaning here (a host with an underscore, a weight of a million). The reader
//! of gateway.toml is asked, because it is the one that knows, and each of its errors is traced to the part that it
//! stands in.

use config::printer;

use super::draft::{Draft, DraftItem, Verdict};
use super::notes::SourceLine;
use super::print::PrintedConfig;

/// The text of the draft, with no part in it that is wrong; errors that belong to no part stay.
pub(super) fn settle(
    draft: &mut Draft,
    print: impl Fn(&Draft) -> PrintedConfig,
) -> (String, Option<config::Errors>) {
    let mut printed = print(draft);
    for _ in 0..ROUNDS_MAX {
        let Err(errors) = config::from_text(FILE, &printed.text) else { return (printed.text, None) };
        let wrong = errors.lines();
        let wrong = wrong.filter_map(|(place, message)| Some((printed.part(place?.1)?, message.to_owned())));
        let mut wrong: Vec<(DraftItem, String)> = wrong.collect();
        wrong.sort();
        wrong.dedup_by(|next, first| next.0 == first.0);
        if wrong.is_empty() {
            return (printed.text, Some(errors));
        }
        // From the last one of each kind on, so that those before it keep their place.
        wrong.into_iter().rev().for_each(|(part, message)| remedy(draft, part, &message));
        printed = print(draft);
    }
    let errors = config::from_text(FILE, &printed.text).err();
    (printed.text, errors)
}

/// Closes or takes out what is wrong, and whatever names it.
fn remedy(draft: &mut Draft, part: DraftItem, message: &str) {
    let why = |what: &str| format!("{what}: {message}");
    match part {
        DraftItem::Listener(index) => {
            let what = format!("listener {}", printer::key(&draft.listeners.remove(index).name));
            draft.notes.left_out(&SourceLine::default(), &what, why("it is left out"));
        }
        DraftItem::Policy(index) => {
            let name = draft.policies.remove(index).name;
            for route in &mut draft.routes {
                route.limits.retain(|limit| *limit != name);
            }
            for domain in &mut draft.domains {
                let names = |verdict: &Verdict| matches!(verdict, Verdict::Limited(it) if *it == name);
                domain.rules.retain(|rule| !names(&rule.verdict));
            }
            let what = format!("limit {}", printer::key(&name));
            draft.notes.left_out(&SourceLine::default(), &what, why("it is left out"));
        }
        DraftItem::Auth(index) => {
            let name = draft.auth.remove(index).name;
            close_those(draft, "auth", &name, &why("routes that ask for it are closed (501)"));
        }
        DraftItem::Upstream(index) => {
            let name = draft.upstreams.remove(index).name;
            close_those(draft, "to", &name, &why("routes to it are closed (501)"));
        }
        DraftItem::Rule { domain, rule } => {
            let rule = draft.domains[domain].rules.remove(rule);
            draft.notes.left_out(&rule.place, &rule.what, why("its requests are not limited"));
        }
        DraftItem::Route(index) => {
            let route = &mut draft.routes[index];
            let (place, what) = (route.place.clone(), format!("route {}", route.name));
            if route.is_closed() {
                // Taken out, because which requests it is for cannot be said.
                draft.routes.remove(index);
                draft.notes.left_out(&place, &what, why("its requests go to other routes"));
            } else {
                route.close();
                draft.notes.left_out(&place, &what, why("it is closed (501)"));
            }
        }
    }
}

/// Closes the routes that name a section under this key.
fn close_those(draft: &mut Draft, key: &str, name: &str, why: &str) {
    let quoted = printer::text(name);
    let names = |(known, value): &(&'static str, String)| *known == key && value.contains(&quoted);
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
