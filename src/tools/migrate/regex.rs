//! Regular expressions over paths, as patterns of routes, as far as segments can say what they say.

use super::draft::literal_path;

/// A pattern that takes every path that an expression matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PathPattern {
    pub(super) pattern: String,
    /// Whether it takes no others.
    pub(super) is_exact: bool,
}

/// The pattern of an expression; `None` if segments cannot say it. With `is_prefix` the path may go on behind what an
/// expression without `$` matches.
pub(super) fn pattern(expression: &str, is_prefix: bool) -> Option<PathPattern> {
    let expression = expression.strip_prefix('^').unwrap_or(expression);
    let (expression, is_whole) = match expression.strip_suffix('$').filter(|rest| !rest.ends_with('\\')) {
        Some(rest) => (rest, true),
        None => (expression, !is_prefix),
    };
    let (expression, tail) = without_tail(expression);
    let mut found = PathPattern { pattern: String::new(), is_exact: true };
    if !expression.is_empty() && !expression.starts_with('/') {
        return None;
    }
    for (index, segment) in segments(expression)?.into_iter().enumerate() {
        match segment_of(&segment, index, &found.pattern)? {
            Segment::Literal(text) => found.pattern.push_str(&literal_path(&text, false)?),
            Segment::Any { name, is_exact } => {
                found.pattern.push_str(&format!("/{{{name}}}"));
                found.is_exact &= is_exact;
            }
        }
    }
    // What follows a parameter begins with a slash, because a parameter is a whole segment.
    let is_begin = !found.pattern.is_empty() && !found.pattern.ends_with('}');
    match tail {
        Some(Tail::Below { is_exact }) => {
            found.pattern.push_str("/{*rest}");
            found.is_exact &= is_exact;
        }
        None if is_whole && found.pattern.is_empty() => found.pattern.push('/'),
        None if is_whole => {}
        _ if is_begin && !expression.ends_with('/') => found.pattern.push_str("{*rest}"),
        _ => {
            found.is_exact &= tail.is_none() || found.pattern.is_empty();
            found.pattern.push_str("/{*rest}");
        }
    }
    Some(found)
}

enum Segment {
    Literal(String),
    Any { name: String, is_exact: bool },
}

/// An end that takes all that follows.
enum Tail {
    /// What is below a segment, and whether `/{*rest}` says just that.
    Below { is_exact: bool },
    /// Whatever begins with what stands before it.
    Any,
}

/// The expression without its tail.
fn without_tail(expression: &str) -> (&str, Option<Tail>) {
    let exact = ["(/.*)?", "(?:/.*)?", "(/|$)(.*)", "(?:/|$)(.*)", "/(.*)", "/.*"];
    if let Some(rest) = exact.iter().find_map(|tail| expression.strip_suffix(tail)) {
        return (rest, Some(Tail::Below { is_exact: true }));
    }
    if let Some(rest) = ["/(.+)", "/.+"].iter().find_map(|tail| expression.strip_suffix(tail)) {
        return (rest, Some(Tail::Below { is_exact: false }));
    }
    let any = ["/?(.*)", "/?.*", "(.*)", ".*"];
    match any.iter().find_map(|tail| expression.strip_suffix(tail)) {
        // Not behind a backslash, because a dot of the literal before it is not the tail's.
        Some(rest) if !rest.ends_with('\\') => (rest, Some(Tail::Any)),
        _ => (expression, None),
    }
}

/// The pieces between slashes that stand in no brackets.
fn segments(expression: &str) -> Option<Vec<String>> {
    let mut segments = vec![String::new()];
    let (mut groups, mut is_class, mut is_escaped) = (0_usize, false, false);
    for sign in expression.chars() {
        match sign {
            '/' if groups == 0 && !is_class => {
                // Without its backslash, because an escaped slash is one.
                if is_escaped {
                    segments.last_mut()?.pop();
                }
                segments.push(String::new());
                is_escaped = false;
                continue;
            }
            _ if is_escaped => {}
            '[' => is_class = true,
            ']' => is_class = false,
            '(' if !is_class => groups += 1,
            ')' if !is_class => groups = groups.checked_sub(1)?,
            _ => {}
        }
        is_escaped = sign == '\\' && !is_escaped;
        segments.last_mut()?.push(sign);
    }
    segments.retain(|segment| !segment.is_empty() && segment != "?");
    Some(segments)
}

/// What a segment means; `None` if it is neither a literal nor a whole class.
fn segment_of(segment: &str, index: usize, so_far: &str) -> Option<Segment> {
    if let Some(text) = literal(segment) {
        return Some(Segment::Literal(format!("/{text}")));
    }
    let mut name = format!("p{}", index + 1);
    let mut inside = segment;
    if let Some(group) = segment.strip_prefix('(').and_then(|group| group.strip_suffix(')')) {
        let named = group.strip_prefix("?<").or_else(|| group.strip_prefix("?P<"));
        inside = match named.and_then(|named| named.split_once('>')) {
            Some((called, rest)) => {
                let is_name =
                    |text: &str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                let is_new = called != "rest" && !so_far.contains(&format!("{{{called}}}"));
                if is_name(called) && is_new && called.starts_with(|first: char| first.is_ascii_alphabetic())
                {
                    name = called.to_owned();
                }
                rest
            }
            None => group.strip_prefix("?:").unwrap_or(group),
        };
    }
    let is_exact = inside == "[^/]+";
    (is_exact || is_class(inside)).then_some(Segment::Any { name, is_exact })
}

/// The texts that an expression without anchors matches, if those are few: `(a|b)c`, `(a)?b`.
pub(super) fn alternatives(expression: &str) -> Option<Vec<String>> {
    let Some((before, rest)) = expression.split_once('(') else {
        return Some(vec![if expression.is_empty() { String::new() } else { literal(expression)? }]);
    };
    let (inside, rest) = rest.strip_prefix("?:").unwrap_or(rest).split_once(')')?;
    if expression.len() > EXPRESSION_MAX {
        return None;
    }
    let (rest, is_optional) = rest.strip_prefix('?').map_or((rest, false), |rest| (rest, true));
    let more = is_optional.then_some("");
    let mut texts = Vec::new();
    for one in inside.split('|').chain(more).filter(|_| !before.ends_with('\\') && !inside.ends_with('\\')) {
        texts.extend(alternatives(&format!("{before}{one}{rest}"))?);
    }
    (1..=ALTERNATIVES_MAX).contains(&texts.len()).then_some(texts)
}

/// An anchored expression, split into its literal beginning and the rest.
pub(super) fn beginning(regex: &str) -> Option<(String, String)> {
    let mut rest = regex.strip_prefix('^')?.chars().peekable();
    let mut text = String::new();
    while let Some(sign) = rest.peek().copied() {
        match sign {
            '\\' => {
                rest.next();
                let escaped = rest.next().filter(|sign| !sign.is_ascii_alphanumeric())?;
                text.push(escaped);
            }
            'a'..='z' | 'A'..='Z' | '0'..='9' | '/' | '_' | '-' | '~' | '%' | '@' | ',' | '=' | ':' => {
                rest.next();
                text.push(sign);
            }
            _ => break,
        }
    }
    let mut tail: String = rest.collect();
    match text.strip_suffix('/').filter(|_| tail.starts_with('?')) {
        // A part of the tail, because the slash need not be there.
        Some(bare) => (text, tail) = (bare.to_owned(), format!("/{tail}")),
        // Not literal, because `x?` and `x*` are not the letter before them.
        None if tail.starts_with(['?', '*', '+', '{']) => return None,
        None => {}
    }
    text.starts_with('/').then_some((text, tail))
}

/// The text of an expression that matches nothing else.
pub(super) fn literal(segment: &str) -> Option<String> {
    let mut text = String::new();
    let mut signs = segment.chars();
    while let Some(sign) = signs.next() {
        match sign {
            '\\' => match signs.next()? {
                escaped if escaped.is_ascii_punctuation() => text.push(escaped),
                _ => return None,
            },
            '.' | '*' | '+' | '?' | '(' | ')' | '[' | ']' | '{' | '}' | '|' | '^' | '$' => return None,
            sign => text.push(sign),
        }
    }
    (!text.is_empty()).then_some(text)
}

/// Whether it is one class of signs without a slash, once or several times: `\d+`, `[a-z0-9-]{3,8}`.
fn is_class(text: &str) -> bool {
    let rest = match text.strip_prefix('[') {
        Some(class) => match class.split_once(']') {
            Some((class, rest)) if !class.contains(['/', '^', '\\']) || is_plain_class(class) => rest,
            _ => return false,
        },
        None => match ["\\d", "\\w"].iter().find_map(|class| text.strip_prefix(class)) {
            Some(rest) => rest,
            None => return false,
        },
    };
    match rest {
        "" | "+" => true,
        rest => rest.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).is_some_and(|count| {
            !count.starts_with('0') && count.bytes().all(|byte| byte.is_ascii_digit() || byte == b',')
        }),
    }
}

/// Whether a class with backslashes names signs of segments alone.
fn is_plain_class(class: &str) -> bool {
    let rest = ["\\d", "\\w", "\\-", "\\.", "\\_"]
        .iter()
        .fold(class.to_owned(), |rest, known| rest.replace(known, ""));
    !rest.contains(['/', '^', '\\'])
}

/// More texts are not written out.
const ALTERNATIVES_MAX: usize = 50;
/// Bytes of an expression with groups that is read.
const EXPRESSION_MAX: usize = 1_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn is(expression: &str, is_prefix: bool, wanted: Option<(&str, bool)>) {
        let wanted = wanted.map(|(pattern, is_exact)| PathPattern { pattern: pattern.to_owned(), is_exact });
        assert_eq!(pattern(expression, is_prefix), wanted, "{expression}");
    }

    #[test]
    fn expressions_that_segments_can_say_become_patterns() {
        is("/users/[^/]+$", true, Some(("/users/{p2}", true)));
        is("/users/(?<id>[^/]+)/posts", true, Some(("/users/{id}/posts{*rest}", true)));
        is("/users/(?<id>[^/]+)", true, Some(("/users/{id}/{*rest}", true)));
        is("/users/\\d+.*", false, Some(("/users/{p2}/{*rest}", false)));
        is("/api/", true, Some(("/api/{*rest}", true)));
        is("/api/?.*", false, Some(("/api{*rest}", true)));
        is("/api/.+", false, Some(("/api/{*rest}", false)));
        is("^/a/(?P<id>[^/]+)/(?<id>[^/]+)$", false, Some(("/a/{id}/{p3}", true)));
        is("/users/\\d+", false, Some(("/users/{p2}", false)));
        is("/v[0-9]/x", false, None);
        is("/f/([a-z0-9\\-]{3,8})", false, Some(("/f/{p2}", false)));
        is("^/api(/.*)?$", false, Some(("/api/{*rest}", true)));
        is("/api/.*", false, Some(("/api/{*rest}", true)));
        is("/api.*", false, Some(("/api{*rest}", true)));
        is("/a\\.b\\/c", false, Some(("/a.b/c", true)));
        is(".*", false, Some(("/{*rest}", true)));
        is("/", true, Some(("/{*rest}", true)));
        is("/", false, Some(("/", true)));
        is("/(a|b)/c", false, None);
        is("a/b", false, None);
        is("/a\\", false, None);
        is("/[", false, None);
        is("/a)", false, None);
        is("/a?", false, None);
        is("/[^a]+", false, None);
    }
}
