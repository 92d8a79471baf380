//! Path patterns: `/v1/orders/{id}`, `/files/{*rest}`.
//!
//! A pattern is a row of segments: literal text, `{id}` (one segment that is not empty), and as the last one
//! `{*rest}` (all that follows, also nothing: `/api/{*rest}` matches `/api`, `/api/` and `/api/a/b`). Text before it makes
//! the pattern a plain prefix: `/api{*rest}` matches `/apix` too.
//! **One trailing slash decides nothing**, in a pattern as in a request: `/login` and `/login/` are the same
//! pattern and match the same requests, so that a slash gets nobody past a limit. (What is forwarded keeps
//! the slash it came with.) Paths are compared byte by byte in their normalised, still encoded form: upper
//! and lower case differ.
//!
//! There are no other parameters within a segment and no regular expressions. What other gateways write for those (`*`,
//! `:id`, `<id>`, `[0-9]+`) is an error rather than a literal that nobody meant; `{=:id}` is a segment of just that text.

use std::cmp::{Ordering, Reverse};

use crate::matching::path;
use crate::percent;

#[derive(Clone, Debug, PartialEq, Eq, derive_more::Display)]
#[display("{text}")]
pub struct Pattern {
    text: Box<str>,
    segments: Box<[PatternSegment]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PatternSegment {
    /// Exactly this, normalised.
    Literal(Box<str>),
    /// `{name}`: one segment that is not empty.
    Param(Box<str>),
    /// `text{*name}`: what is left, if it begins with the text.
    Rest {
        /// Normalised; empty for `{*name}` alone.
        begin: Box<str>,
        /// The parameter's name; it is what follows the text.
        name: Box<str>,
    },
}

/// What is wrong with a pattern. Offsets are bytes into its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("a path must start with `/`")]
    NoSlash,
    /// `//`, which never matches, because requests have their slashes merged.
    #[error("an empty segment never matches: the gateway merges slashes of a request before it routes")]
    EmptySegment { offset: usize },
    /// `.` or `..`, which never match, because requests have them resolved.
    #[error("`{segment}` never matches: the gateway resolves dot segments of a request before it routes")]
    DotSegment { offset: usize, segment: String },
    #[error("`{segment}` never matches: {}", refused(*.error))]
    Refused { offset: usize, segment: String, error: path::Error },
    #[error("`{found}` is not part of a path; write it as %{:02X} if a segment really holds it", *found as u32)]
    NotPath { offset: usize, found: char },
    #[error(
        "`{segment}`: a parameter must be a whole segment, `{{name}}`; only `{{*name}}` at the end may follow text"
    )]
    PartialParam { offset: usize, segment: String },
    /// What stands for something in the patterns of others, and here only for itself.
    #[error("`{segment}`: {}; `{{={segment}}}` matches just this text", .dialect.meaning(.segment))]
    Foreign {
        offset: usize,
        segment: String,
        /// Whose way of writing it is.
        dialect: Dialect,
    },
    #[error(
        "`{segment}`: the name of a parameter has letters, digits, `_` and `-`, a letter or `_` first; write `{{{}}}` for \
         any one segment, or `{{*rest}}` at the end for all that follows: there are no regular expressions",
        meant(.segment)
    )]
    ParamName { offset: usize, segment: String },
    #[error("the parameter `{name}` occurs twice in the path")]
    ParamTwice { offset: usize, name: String },
    #[error("`{{*{name}}}` matches everything that follows, so it must come last")]
    RestNotLast { offset: usize, name: String },
    #[error("`%` must be followed by two hex digits; write %25 for a percent sign")]
    Percent { offset: usize },
    #[error("a path pattern has at most {SEGMENTS_MAX} segments")]
    TooLong,
}

/// The name that a segment begins: `id` of `{id:[0-9]+}`.
fn meant(segment: &str) -> &str {
    let mut parts = segment.split(|char: char| !(char.is_ascii_alphanumeric() || matches!(char, '_' | '-')));
    parts.find(|part| !part.is_empty()).filter(|name| is_name(name)).unwrap_or("name")
}

/// Why a text never matches, and what does.
fn refused(error: path::Error) -> String {
    match error {
        path::Error::Slash | path::Error::Twice | path::Error::Parameter => format!(
            "{error}, which only a parameter matches; write {{name}} in its place, and path-escapes = \"keep\""
        ),
        _ => format!("the gateway refuses a request if {error}"),
    }
}

/// How others write what a path may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// `*` and `**`.
    Star,
    /// `:id`.
    Colon,
    /// `<id>`.
    Angle,
    /// `[0-9]+`, `a|b`, `^a`, `a$`, `.+`.
    Regex,
}

impl Dialect {
    /// Whose way of writing a segment is in; `None`: it says only itself. Custom methods (`items:batch`), names that
    /// begin with `$` and parentheses stand in paths of APIs, and are left alone.
    fn of(segment: &str) -> Option<Dialect> {
        let is_name =
            |text: &str| text.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if segment.contains(['[', ']', '|', '^']) || segment.contains(".+") || segment.contains(".*") {
            return Some(Dialect::Regex);
        }
        if segment.len() > 1 && segment.ends_with('$') {
            return Some(Dialect::Regex);
        }
        if segment.strip_prefix(':').is_some_and(is_name) {
            return Some(Dialect::Colon);
        }
        if segment.starts_with('<') && segment.ends_with('>') {
            return Some(Dialect::Angle);
        }
        segment.contains('*').then_some(Dialect::Star)
    }

    /// What to write for what was probably meant.
    fn meaning(self, segment: &str) -> String {
        let name = segment.trim_matches(|char: char| !(char.is_ascii_alphanumeric() || char == '_'));
        let name = if is_name(name) { name } else { "name" };
        match self {
            Dialect::Star => {
                let rest = if is_name(name) && name != "name" { name } else { "rest" };
                format!("a star alone is no wildcard, write `{{*{rest}}}` at the end for all that follows, or \
                    `{{name}}` for one segment")
            }
            Dialect::Colon | Dialect::Angle => format!("a parameter is written `{{{name}}}`"),
            Dialect::Regex => {
                "the gateway has no regular expressions, write `{name}` for one segment or `{*rest}` at the end for all that \
                 follows"
                    .to_owned()
            }
        }
    }
}

impl Error {
    /// Where in the pattern's text, bytes from its start.
    pub fn offset(&self) -> usize {
        match self {
            Error::NoSlash | Error::TooLong => 0,
            Error::EmptySegment { offset }
            | Error::DotSegment { offset, .. }
            | Error::Refused { offset, .. }
            | Error::NotPath { offset, .. }
            | Error::PartialParam { offset, .. }
            | Error::Foreign { offset, .. }
            | Error::ParamName { offset, .. }
            | Error::ParamTwice { offset, .. }
            | Error::RestNotLast { offset, .. }
            | Error::Percent { offset } => *offset,
        }
    }
}

/// Segments a pattern may have, so that a match never looks at more of a request's path.
pub const SEGMENTS_MAX: usize = 64;

impl Pattern {
    /// Reads a pattern; literal segments are brought into the form requests have.
    ///
    /// # Errors
    /// The first thing that is wrong, with its offset.
    pub fn parse(text: &str) -> Result<Pattern, Error> {
        let Some(inner) = text.strip_prefix('/') else { return Err(Error::NoSlash) };
        if let Some((offset, found)) = text.char_indices().find(|(_, char)| matches!(char, '?' | '#')) {
            return Err(Error::NotPath { offset, found });
        }
        let inner = inner.strip_suffix('/').unwrap_or(inner);
        let mut segments: Vec<PatternSegment> = Vec::new();
        let mut offset = 1;
        for written in inner.split('/').filter(|_| text != "/") {
            if let Some(PatternSegment::Rest { name, .. }) = segments.last() {
                return Err(Error::RestNotLast { offset, name: name.to_string() });
            }
            let segment = parse_segment(written, offset)?;
            if let Some(name) = segment.param()
                && segments.iter().any(|earlier| earlier.param() == Some(name))
            {
                return Err(Error::ParamTwice { offset, name: name.to_owned() });
            }
            segments.push(segment);
            offset += written.len() + 1;
        }
        if segments.len() > SEGMENTS_MAX {
            return Err(Error::TooLong);
        }
        Ok(Pattern { text: text.into(), segments: segments.into() })
    }

    pub fn segments(&self) -> &[PatternSegment] {
        &self.segments
    }

    /// Whether a path matches. Looks at no more of it than the pattern has segments.
    pub fn matches(&self, path: &str) -> bool {
        let end = || self.segments.iter().try_fold(FIRST, |at, segment| segment.behind(path, at));
        path.starts_with('/') && end().is_some_and(|end| is_end(path, end))
    }

    /// How many of its segments match a path from the left: for operators, who may have meant it.
    pub fn common_segments(&self, path: &str) -> usize {
        let mut at = Some(FIRST);
        let matching = self.segments.iter().take_while(|segment| {
            at = at.and_then(|at| segment.behind(path, at));
            at.is_some()
        });
        matching.count()
    }

    pub fn param(&self, name: &str) -> Option<usize> {
        self.segments.iter().position(|segment| segment.param() == Some(name))
    }

    /// Names of the parameters, from the left.
    pub fn params(&self) -> impl Iterator<Item = &str> {
        self.segments.iter().filter_map(PatternSegment::param)
    }

    /// The raw text that segment `index` takes of a path the pattern matches; empty past the end.
    pub fn value<'r>(&self, index: usize, path: &'r str) -> &'r str {
        let mut at = FIRST;
        for _ in 0..index {
            if is_end(path, at) {
                return "";
            }
            at = split(path, at).1;
        }
        match self.segments.get(index) {
            Some(PatternSegment::Rest { begin, .. }) => path.get(at + begin.len()..).unwrap_or(""),
            Some(_) if !is_end(path, at) => split(path, at).0,
            _ => "",
        }
    }

    /// Orders patterns that match one path, the more specific first: segment by segment from the left,
    /// literal before `text{*rest}` (the longer text first) before `{id}` before `{*rest}`, and an end before `{*rest}`.
    /// Equal only where both match the same paths.
    pub fn cmp_specific(&self, other: &Pattern) -> Ordering {
        self.segments.iter().map(PatternSegment::shape).cmp(other.segments.iter().map(PatternSegment::shape))
    }
}

impl PatternSegment {
    fn param(&self) -> Option<&str> {
        match self {
            PatternSegment::Literal(_) => None,
            PatternSegment::Param(name) | PatternSegment::Rest { name, .. } => Some(name),
        }
    }

    /// The place behind what it takes of a path there; `None` if it does not match.
    fn behind(&self, path: &str, at: usize) -> Option<usize> {
        if let PatternSegment::Rest { begin, .. } = self {
            return path.get(at..).unwrap_or("").starts_with(&**begin).then_some(path.len());
        }
        if is_end(path, at) {
            return None;
        }
        let (found, behind) = split(path, at);
        let matches = match self {
            PatternSegment::Literal(text) => found == &**text,
            PatternSegment::Param(_) | PatternSegment::Rest { .. } => !found.is_empty(),
        };
        matches.then_some(behind)
    }

    fn shape(&self) -> Shape<'_> {
        match self {
            PatternSegment::Literal(text) => Shape::Literal(text),
            PatternSegment::Param(_) => Shape::Param,
            PatternSegment::Rest { begin, .. } if begin.is_empty() => Shape::Rest,
            PatternSegment::Rest { begin, .. } => Shape::Begin(Reverse(begin.len()), begin),
        }
    }
}

/// A segment without its name; derived order is specificity.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Shape<'p> {
    Literal(&'p str),
    Begin(Reverse<usize>, &'p str),
    Param,
    Rest,
}

fn parse_segment(written: &str, offset: usize) -> Result<PatternSegment, Error> {
    if written.is_empty() {
        return Err(Error::EmptySegment { offset });
    }
    let named = |name: &str| match is_name(name) {
        true => Ok(Box::from(name)),
        false => Err(Error::ParamName { offset, segment: written.to_owned() }),
    };
    let inner = written.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
    if let Some(inner) = inner.filter(|inner| !inner.starts_with('=') && !inner.contains(['{', '}'])) {
        return match inner.strip_prefix('*') {
            Some(name) => named(name).map(|name| PatternSegment::Rest { begin: "".into(), name }),
            None => named(inner).map(PatternSegment::Param),
        };
    }
    if let Some((begin, name)) = written.strip_suffix('}').and_then(|rest| rest.rsplit_once("{*")) {
        return Ok(PatternSegment::Rest { begin: text(begin, offset)?, name: named(name)? });
    }
    let text = text(written, offset)?;
    if matches!(&*text, "." | "..") {
        return Err(Error::DotSegment { offset, segment: written.to_owned() });
    }
    Ok(PatternSegment::Literal(text))
}

/// The text that a segment, or the begin of one, stands for, in the form that requests have: itself, or `{=text}`.
fn text(written: &str, offset: usize) -> Result<Box<str>, Error> {
    let exact = written.strip_prefix("{=").and_then(|rest| rest.strip_suffix('}'));
    if exact.is_some_and(str::is_empty) {
        return Err(Error::EmptySegment { offset });
    }
    if exact.unwrap_or(written).contains(['{', '}']) {
        return Err(Error::PartialParam { offset, segment: written.to_owned() });
    }
    if let Some(dialect) = Dialect::of(written).filter(|_| exact.is_none()) {
        return Err(Error::Foreign { offset, segment: written.to_owned(), dialect });
    }
    let text = percent::normalise(exact.unwrap_or(written));
    let text = text.map_err(|inside| Error::Percent { offset: offset + inside })?;
    match path::canonical(&text).map(|canonical| canonical.doubt) {
        Ok(None) => Ok(text.into()),
        Ok(Some(error)) | Err(error) => Err(Error::Refused { offset, segment: written.to_owned(), error }),
    }
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

// A place in a path is the offset behind a slash. It is at the end where nothing but a trailing slash is
// left: `len` behind that slash, `len + 1` behind a last segment without one.

/// The place of a path's first segment.
pub(crate) const FIRST: usize = 1;

/// Whether nothing is left at this place.
pub(crate) fn is_end(path: &str, at: usize) -> bool {
    at >= path.len()
}

/// The segment at a place that is not the end, and the place behind it.
pub(crate) fn split(path: &str, at: usize) -> (&str, usize) {
    let rest = &path[at..];
    let segment = rest.split_once('/').map_or(rest, |(segment, _)| segment);
    (segment, at + segment.len() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pattern(text: &str) -> Pattern {
        Pattern::parse(text).expect("a valid pattern")
    }

    #[test]
    fn the_rest_may_be_empty() {
        let api = pattern("/api/{*rest}");
        for (path, rest) in
            [("/api", ""), ("/api/", ""), ("/api/a/b", "a/b"), ("/api/a/", "a/"), ("/api//x", "/x")]
        {
            assert!(api.matches(path), "{path}");
            assert_eq!(api.value(1, path), rest, "{path}");
        }
        assert!(!api.matches("/apis") && !api.matches("/") && !api.matches("/ap"));
        assert!(pattern("/{*rest}").matches("/"));
    }

    #[test]
    fn text_before_the_rest_is_a_plain_prefix() {
        let service = pattern("/service/1{*rest}");
        for (path, rest) in [
            ("/service/1", ""),
            ("/service/10", "0"),
            ("/service/1/", "/"),
            ("/service/1/a", "/a"),
            ("/service/1..", ".."),
            ("/service/12/a/", "2/a/"),
        ] {
            assert!(service.matches(path), "{path}");
            assert_eq!((service.value(1, path), service.common_segments(path)), (rest, 2), "{path}");
        }
        for path in ["/service", "/service/", "/service/2", "/service/21", "/service/a/1", "/"] {
            assert!(!service.matches(path), "{path}");
        }
        assert!(pattern("/%7Ea{*rest}/").matches("/~ab") && pattern("/{=*}{*rest}").matches("/*x"));
        assert!(pattern("/.{*rest}").matches("/.git") && pattern("/..{*rest}").matches("/..."));
    }

    #[test]
    fn a_trailing_slash_decides_nothing() {
        for text in ["/v1/orders/{id}", "/v1/orders/{id}/"] {
            let orders = pattern(text);
            assert!(orders.matches("/v1/orders/7") && orders.matches("/v1/orders/7/"));
            assert_eq!(orders.value(2, "/v1/orders/7/"), "7");
            assert!(!orders.matches("/v1/orders") && !orders.matches("/v1/orders/"));
            assert!(!orders.matches("/v1/orders/7//") && !orders.matches("/v1/orders/7/x"));
        }
        assert_eq!(pattern("/login").cmp_specific(&pattern("/login/")), Ordering::Equal);
        assert!(pattern("/").matches("/") && !pattern("/").matches("/a"));
        assert!(!pattern("/").matches("") && !pattern("/{*rest}").matches("*"));
    }

    #[test]
    fn literals_take_the_form_of_requests() {
        assert!(pattern("/%7Euser/caf\u{e9}").matches("/~user/caf%C3%A9"));
        assert!(!pattern("/Users").matches("/users"));
    }

    #[test]
    fn specific_before_general() {
        let ordered = [
            "/a/b",
            "/a/b/{*r}",
            "/a/b{*r}",
            "/a/{x}",
            "/a/{x}/c",
            "/a/{*r}",
            "/ab{*r}",
            "/a{*r}",
            "/b{*r}",
            "/{x}/b",
            "/{*r}",
        ];
        for (index, left) in ordered.iter().enumerate() {
            for right in &ordered[index + 1..] {
                assert_eq!(pattern(left).cmp_specific(&pattern(right)), Ordering::Less, "{left} {right}");
            }
        }
    }

    #[test]
    fn each_mistake_has_its_error_and_place() {
        let error = |text: &str| Pattern::parse(text).expect_err("a mistake");
        assert_eq!(error("api"), Error::NoSlash);
        assert_eq!(error("/a//b"), Error::EmptySegment { offset: 3 });
        assert_eq!(error("//"), Error::EmptySegment { offset: 1 });
        assert!(matches!(error("/a/%2e%2E/b"), Error::DotSegment { offset: 3, .. }));
        assert!(matches!(error("/a/b%2fc"), Error::Refused { offset: 3, error: path::Error::Slash, .. }));
        assert_eq!(error("/a?x=1"), Error::NotPath { offset: 2, found: '?' });
        assert!(matches!(error("/a/{id}.json"), Error::PartialParam { offset: 3, .. }));
        for text in ["/a/{{id}}", "/a/{id}{*rest}", "/a/x{*b}c", "/a/{=}{*rest}x", "/a/{x{*rest}"] {
            assert!(matches!(error(text), Error::PartialParam { .. }), "{text}");
        }
        assert!(matches!(error("/a/*{*rest}"), Error::Foreign { offset: 3, .. }));
        assert!(matches!(error("/a/x{*9}"), Error::ParamName { .. }));
        assert!(matches!(error("/a{*b}/c"), Error::RestNotLast { offset: 7, .. }));
        assert!(matches!(error("/{9}"), Error::ParamName { .. }));
        assert!(matches!(error("/{}"), Error::ParamName { .. }));
        assert!(matches!(error("/{a}/{a}"), Error::ParamTwice { offset: 5, .. }));
        assert!(matches!(error("/{*a}/b"), Error::RestNotLast { offset: 6, .. }));
        assert_eq!(error("/50%"), Error::Percent { offset: 3 });
        assert_eq!(error(&"/a".repeat(SEGMENTS_MAX + 1)), Error::TooLong);
        assert_eq!(
            error("/a#").to_string(),
            "`#` is not part of a path; write it as %23 if a segment really holds it"
        );
    }
}
