//! Which paths a location takes, and the regular expressions that are only a prefix.

use super::super::draft::literal_path;
use super::super::regex::beginning;
use super::lexer::Directive;

/// What a location matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Exact(String),
    Prefix(String),
    /// A regular expression that is a literal beginning, which goes before every prefix.
    LiteralRegex {
        text: String,
        exact: bool,
    },
    /// `@name`, or an expression that is more than a beginning.
    Other(&'static str),
}

impl Match {
    pub(super) fn of(location: &Directive) -> Match {
        match (location.arg(0), location.arg(1)) {
            ("=", path) => Match::Exact(path.to_owned()),
            ("^~", path) => Match::Prefix(path.to_owned()),
            ("~", regex) => match literal(regex) {
                Some((text, exact)) => Match::LiteralRegex { text, exact },
                None => Match::Other("paths have no regular expressions: write a route for each case"),
            },
            ("~*", _) => Match::Other(
                "paths are case-sensitive, and the gateway has no regular expressions: write a route for each case",
            ),
            (name, _) if name.starts_with('@') => Match::Other("named locations have no counterpart"),
            (path, _) => Match::Prefix(path.to_owned()),
        }
    }

    /// The text before the parameters, as nginx compares it.
    pub(super) fn text(&self) -> &str {
        match self {
            Match::Exact(text) | Match::Prefix(text) | Match::LiteralRegex { text, .. } => text,
            Match::Other(_) => "",
        }
    }

    pub(super) fn is_exact(&self) -> bool {
        matches!(self, Match::Exact(_) | Match::LiteralRegex { exact: true, .. })
    }

    /// Whether an expression of a `rewrite` takes, of the paths that begin so, those alone that go on with a slash or end.
    pub(super) fn is_split(&self, regex: &str) -> bool {
        let whole = |(begin, tail): (String, String)| {
            let is_any = tail.is_empty() || tail.starts_with(['.', '(']) && !tail.starts_with("(/");
            begin == self.text() && is_any
        };
        matches!(self, Match::Prefix(text) if !text.ends_with('/')) && !beginning(regex).is_some_and(whole)
    }

    pub(super) fn pattern(&self) -> Option<String> {
        match self {
            Match::Other(_) => None,
            _ if self.text().starts_with('/') => literal_path(self.text(), !self.is_exact()),
            _ => None,
        }
    }
}

/// The literal beginning that a regular expression is, and whether it is the whole path.
pub(super) fn literal(regex: &str) -> Option<(String, bool)> {
    let (begin, tail) = beginning(regex)?;
    match tail.as_str() {
        "$" => Some((begin, true)),
        "" | ".*" | ".*$" | "(.*)" | "(.*)$" => Some((begin, false)),
        _ => None,
    }
}

/// The literal beginnings that an expression with one list of literals means: `^/(a|b)/` is `/a/` and `/b/`.
pub(super) fn alternatives(regex: &str) -> Option<Vec<(String, bool)>> {
    let (begin, rest) = regex.split_once('(')?;
    let (inside, rest) = rest.strip_prefix("?:").unwrap_or(rest).split_once(')')?;
    let rest = rest_of(rest);
    let whole = inside.split('|').map(|one| literal(&format!("{begin}{one}{rest}")));
    let is_list = !inside.is_empty() && !rest.contains('|') && !rest.starts_with(['?', '*', '+', '{']);
    whole.collect::<Option<Vec<_>>>().filter(|_| is_list)
}

/// What follows a list: the end of a segment or of the path is the same to a pattern as a slash.
fn rest_of(rest: &str) -> &str {
    if matches!(rest, "(/|$)" | "(?:/|$)" | "(/.*)?$") { "/" } else { rest }
}

/// Which paths an expression of a `rewrite` takes, or more than those.
pub(super) fn rewritten_from(regex: &str) -> Match {
    match (literal(regex), beginning(regex)) {
        (Some((text, true)), _) => Match::Exact(text),
        (Some((text, false)), _) => Match::Prefix(text),
        (None, Some((begin, _))) => {
            let end = begin.rfind('/').map_or(0, |slash| slash + 1);
            Match::Prefix(begin[..end].to_owned())
        }
        (None, None) => Match::Prefix("/".to_owned()),
    }
}
