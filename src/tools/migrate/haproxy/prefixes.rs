//! `set-path` and `replace-path` that replace the beginning of a path, as `rewrite` of routes.

use config::printer::text;

use super::super::draft::{Route, literal_path};
use super::super::notes::SourceLine;
use super::super::order;
use super::super::regex::beginning;
use super::lines::Line;

/// A beginning of paths that a rule replaces.
#[derive(Clone, Debug)]
pub(super) struct StrippedPrefix {
    pub(super) place: SourceLine,
    pub(super) what: String,
    /// As a route has it, without a slash at its end.
    literal: String,
    /// Patterns of the paths that change, the narrower first, with what stands there instead; `None`: what they become
    /// cannot be said.
    changes: Vec<(String, Option<String>)>,
}

impl StrippedPrefix {
    /// Reads `set-path %[path,regsub(^/x/?,/)]` or `replace-path ^/x/?(.*) /\1`. `paths` are those that the rule is for;
    /// none: all.
    pub(super) fn of(line: &Line, paths: &[String]) -> Option<StrippedPrefix> {
        let (expression, to, takes_all) = match line.word(1) {
            "set-path" | "set-pathq" => {
                let sample = line.word(2).strip_prefix("%[path")?;
                let sample = sample.strip_prefix(line.word(1).strip_prefix("set-path")?)?;
                let (expression, to) =
                    sample.strip_prefix(",regsub(")?.strip_suffix(")]")?.split_once(',')?;
                (expression.trim_matches(QUOTES), to.trim_matches(QUOTES), false)
            }
            "replace-path" | "replace-pathq" => (line.word(2), line.word(3), true),
            _ => return None,
        };
        let anchored = expression.strip_prefix('^');
        let (begin, tail) = beginning(&format!("^{}", anchored.unwrap_or(expression)))?;
        let (tail, to) = match takes_all {
            true => {
                let tail = tail.strip_suffix('$').unwrap_or(&tail);
                let (_, before, group) = GROUPS.iter().find(|(known, _, _)| *known == tail)?;
                (*before, to.strip_suffix(group)?)
            }
            false => (tail.as_str(), to),
        };
        let is_plain = |sign: char| sign.is_ascii_alphanumeric() || "/-_.~".contains(sign);
        let literal =
            literal_path(begin.trim_end_matches('/'), false).filter(|it| it != "/" && !it.contains('{'))?;
        let (below, beyond) = (format!("{literal}/{{*rest}}"), format!("{literal}{{*rest}}"));
        let ends = to.ends_with('/');
        let changes = match (tail, begin.ends_with('/')) {
            _ if !to.chars().all(is_plain) || !to.is_empty() && !to.starts_with('/') => return None,
            ("/?" | "(/)?", false) if ends => {
                vec![(below, Some(to.to_owned())), (beyond, Some(to.to_owned()))]
            }
            ("", true) if ends => vec![(below, Some(to.to_owned()))],
            ("(/|$)", false) if ends => vec![(below, Some(to.to_owned()))],
            ("/", false) if !ends => vec![(below, Some(format!("{to}/")))],
            // Not said within a segment, because what is left of it would begin without a slash.
            ("", false) if !ends => {
                let beyond = (beyond, Some(to.to_owned()).filter(|to| !to.is_empty()));
                vec![(below, Some(format!("{to}/"))), beyond]
            }
            _ => return None,
        };
        // Elsewhere in a path, too, if the expression may begin anywhere.
        let elsewhere = anchored.is_none().then(|| ("/{*rest}".to_owned(), None));
        let all = changes.into_iter().chain(elsewhere);
        let bounded = all.flat_map(|(path, to)| {
            let is_whole = paths.is_empty() || paths.iter().any(|wider| order::covers_path(wider, &path));
            let within = paths.iter().filter(|inner| order::covers_path(&path, inner)).cloned();
            let bounded: Vec<String> = if is_whole { vec![path.clone()] } else { within.collect() };
            bounded.into_iter().map(move |path| (path, to.clone())).collect::<Vec<_>>()
        });
        let changes = bounded.collect();
        Some(StrippedPrefix { place: line.taken().place.clone(), what: line.shown(), literal, changes })
    }

    /// The parts of a route whose paths change, with what the server gets instead, and then what is left of it. A part is
    /// closed if what it becomes cannot be said.
    pub(super) fn parts(&self, route: Route) -> Vec<Route> {
        let mut parts: Vec<Route> = Vec::new();
        for (path, to) in &self.changes {
            let changed = Route { path: path.clone(), ..Route::default() };
            let Some(mut part) = order::both(&route, &changed) else { continue };
            if parts.iter().any(|known| order::covers_path(&known.path, &part.path)) {
                continue;
            }
            let begin = part.path.strip_suffix("{*rest}");
            let rest = if begin.is_some() { "{rest}" } else { "" };
            let left =
                begin.unwrap_or(&part.path).strip_prefix(&self.literal).filter(|left| !left.contains('{'));
            match to.as_ref().zip(left) {
                Some((to, left)) => {
                    let rewrite = format!("{to}{}{rest}", left.strip_prefix('/').unwrap_or(left));
                    part.key("rewrite", text(&rewrite));
                }
                None => part.close(),
            }
            parts.push(part);
        }
        if !parts.iter().any(|part| order::covers_path(&part.path, &route.path)) {
            parts.push(route);
        }
        parts
    }
}

/// How an expression takes the rest of a path: behind which text, and by which group.
const GROUPS: &[(&str, &str, &str)] = &[
    ("/?(.*)", "/?", "\\1"),
    ("(.*)", "", "\\1"),
    ("(/.*)", "/", "\\1"),
    ("(/.*)?", "/", "\\1"),
    ("(/|$)(.*)", "(/|$)", "\\2"),
];
const QUOTES: [char; 2] = ['"', '\''];
