//! Masks secrets in lines that error messages show: values under names of secrets, and passwords in URLs.
//!
//! A text between a `:` and an `@` may be a password, even if the rest is not a valid URL.
//!
//! It works on the plain text and not on parsed TOML, because messages also show lines that are not valid TOML. In doubt
//! it hides too much.

use std::ops::Range;

use policy::secret::SECRET_ENDINGS;
pub use policy::secret::{MASK, is_secret_name};

/// What is wrong with a secret that is only a mask.
pub(super) const MASKED: &str =
    "is only asterisks, the mask that `check --effective` and `/config` print for a secret";
/// What to write instead.
pub(super) const WRITE_SECRET: &str = "write the secret itself, as `\"${NAME}\"` or `\"${file:/path}\"`";

/// Whether a secret is only a mask, of any length: everybody knows it.
pub(super) fn is_mask(secret: &str) -> bool {
    !secret.is_empty() && secret.bytes().all(|byte| byte == b'*')
}

/// Whether a name is a secret's, or one with a letter wrong, missing, too many, or two letters swapped. The key is unknown then,
/// and the line that shows it holds the secret all the same.
fn is_nearly_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_ENDINGS.iter().any(|ending| {
        let lengths = ending.len() - 1..=ending.len() + 1;
        let mut tails = lengths.filter_map(|length| name.get(name.len().checked_sub(length)?..));
        tails.any(|tail| strsim::damerau_levenshtein(tail, ending) <= 1)
    })
}

/// The line `first..last` of `text` with every byte of a secret replaced by a star. The length stays, so that a marker below
/// the line still points at the right column.
pub(super) fn line(text: &str, first: usize, last: usize) -> String {
    let line = &text[first..last];
    let mut bytes = line.as_bytes().to_vec();
    for secret in secrets(line) {
        if !is_bare_reference(&line[secret.clone()]) {
            bytes[secret].fill(b'*');
        }
    }
    if is_inside_secret(text, first) {
        bytes.fill(b'*');
    }
    // `secrets` cuts at ASCII characters, so this is UTF-8 again. If that were ever wrong, the whole line is hidden.
    String::from_utf8(bytes).unwrap_or_else(|_| MASK.to_owned())
}

/// The ranges of a line's secrets: values under secret names, passwords in URLs.
fn secrets(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some((name, after)) = next_word(line, rest) {
        rest = after;
        if is_nearly_secret_name(name)
            && let Some(value) = value_after(line, after)
        {
            rest = value.end.max(after);
            found.push(value);
        }
    }
    match quoted_values(line) {
        Some(values) => found.extend(
            values.into_iter().filter_map(|value| shifted(password(&line[value.clone()])?, value.start)),
        ),
        // Without knowing where values begin and end, the whole line counts as one value.
        None => found.extend(password(line)),
    }
    found
}

/// A value for a message to quote, with what may be a password masked.
pub(super) fn value(text: &str) -> String {
    match password(text) {
        Some(password) => format!("{}{MASK}{}", &text[..password.start], &text[password.end..]),
        None => text.to_owned(),
    }
}

/// A message with what may be a password masked, both inside and outside its backticks.
pub(super) fn message(text: &str) -> String {
    text.split('`').map(value).collect::<Vec<_>>().join("`")
}

/// The range that may be a password: from the first colon that does not end a scheme to the last `@`.
fn password(text: &str) -> Option<Range<usize>> {
    let end = text.rfind('@')?;
    let mut starts = text[..end].match_indices(':').map(|(at, _)| at);
    let first = starts.next()?;
    let is_scheme = |name: &str| text[..first].ends_with(name) && text[first..end].starts_with("://");
    let ends_scheme = SCHEMES.iter().any(|name| is_scheme(name));
    let start = if ends_scheme { starts.next()? } else { first };
    Some(start + 1..end)
}

fn shifted(range: Range<usize>, by: usize) -> Option<Range<usize>> {
    Some(range.start + by..range.end + by)
}

/// The ranges between quotes in a line. `None` if a quote is not closed, or the text between two values may be part of one.
fn quoted_values(line: &str) -> Option<Vec<Range<usize>>> {
    let mut values = Vec::new();
    let mut from = 0;
    while let Some(at) = line[from..].find(['"', '\'']) {
        if line[from..from + at].contains(['@', ':', '#']) {
            return None;
        }
        let (start, quote) = (from + at + 1, line.as_bytes()[from + at]);
        let mut escaped = false;
        let length = line[start..].bytes().position(|byte| {
            let closes = byte == quote && !escaped;
            escaped = byte == b'\\' && !escaped && quote == b'"';
            closes
        })?;
        values.push(start..start + length);
        from = start + length + 1;
    }
    (!line[from..].contains(['@', ':'])).then_some(values)
}

/// The next run of name characters at or after `from`, and where it ends.
fn next_word(line: &str, from: usize) -> Option<(&str, usize)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let start = from + line[from..].find(is_name)?;
    let end = line[start..].find(|character| !is_name(character)).map_or(line.len(), |at| start + at);
    Some((&line[start..end], end))
}

/// The value of a name that ends at `after`, without its quotes. `None` if the name has no value.
fn value_after(line: &str, after: usize) -> Option<Range<usize>> {
    let rest =
        line[after..].strip_prefix(['"', '\'']).unwrap_or(&line[after..]).trim_start_matches([' ', '\t']);
    // `=` is right, `:` is a common mistake, and a quoted value may follow with neither.
    let value = match rest.strip_prefix(['=', ':']) {
        Some(value) => value.trim_start_matches([' ', '\t']),
        None if rest.starts_with(['"', '\'']) => rest,
        None => return None,
    };
    let start = line.len() - value.len();
    let Some(quote) = value.chars().next().filter(|first| "\"'".contains(*first)) else {
        let end = value.find([',', '}']).map_or(line.len(), |at| start + at);
        return Some(start..end);
    };
    let inner = value.trim_start_matches(quote);
    let start = line.len() - inner.len();
    let mut escaped = false;
    let end = inner.find(|character| {
        let closes = character == quote && !escaped;
        escaped = character == '\\' && !escaped && quote == '"';
        closes
    });
    // If a quote closes too early, the text after it may be the rest of the value.
    let ends_there = |at: &usize| {
        let behind = inner[*at..].trim_start_matches(quote).trim_start();
        behind.is_empty() || behind.starts_with([',', '}', ']', '#'])
    };
    Some(start..end.filter(ends_there).map_or(line.len(), |at| start + at))
}

/// Whether the line starting at `first` lies inside a multi-line string that a secret name opened.
fn is_inside_secret(text: &str, first: usize) -> bool {
    let before = &text.as_bytes()[first.saturating_sub(MULTI_LINE_BYTES_MAX)..first];
    ["\"\"\"", "'''"].iter().any(|delimiter| {
        let mut opened_by_secret = false;
        let mut open = false;
        for line in before.split(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(line);
            for _ in line.matches(delimiter) {
                open = !open;
                opened_by_secret = open && next_word(&line, 0).is_some_and(|(name, _)| is_secret_name(name));
            }
        }
        open && opened_by_secret
    })
}

/// Whether a value is a single `${...}` without a default. It names where the secret is, so it may be shown.
fn is_bare_reference(value: &str) -> bool {
    let inner = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['}', '{']) && !inner.contains(":-"))
}

/// Schemes of URLs in a configuration. A colon after any other word may be the one before a password.
const SCHEMES: [&str; 6] = ["redis", "rediss", "postgres", "postgresql", "http", "https"];

/// How far back to search for the opening `"""` of a secret, bytes.
const MULTI_LINE_BYTES_MAX: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_starred_and_nothing_else_is() {
        for (line_in, line_out) in [
            ("token = \"hunter2\"", "token = \"*******\""),
            ("admin = { token = 'hunter2', bind = \"x\" }", "admin = { token = '*******', bind = \"x\" }"),
            ("\"password\" = \"a\\\"b\" # c", "\"password\" = \"****\" # c"),
            ("token \"hunter2\"", "token \"*******\""),
            ("token: hunter2", "token: *******"),
            ("token = \"hunter2", "token = \"*******"),
            ("secret = 'it's-mine'", "secret = '**********"),
            ("token = \"aaa\" bbb", "token = \"********"),
            ("secret = \"abc\"def\" # c", "secret = \"************"),
            ("token = \"${file:/run/token}\"", "token = \"${file:/run/token}\""),
            ("token = \"${TOKEN:-hunter2}\"", "token = \"*****************\""),
            ("url = \"redis://me:hunter2@host/0\"", "url = \"redis://me:*******@host/0\""),
            ("url = \"redis://me:hun ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = \"redis://me:hun'ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = 'redis://me:hun\"ter2@host/0'", "url = 'redis://me:********@host/0'"),
            ("url = redis://me:hunter2@host/0", "url = redis://me:*******@host/0"),
            ("url = \"postgres://me:hunter2@host/db\"", "url = \"postgres://me:*******@host/db\""),
            ("url = \"postgresql://me@host:1/db\"", "url = \"postgresql://me@host:1/db\""),
            ("url = \"rediss//gate:hunter2@h\"", "url = \"rediss//gate:*******@h\""),
            ("url = \"redis:/gate:hunter2@h\"", "url = \"redis:*************@h\""),
            ("url = \"redsi://gate:hunter2@h\"", "url = \"redsi:**************@h\""),
            ("url = \"gate:hunter2@h:1\"", "url = \"gate:*******@h:1\""),
            ("url = \"gate:hun:t@er2@h\"", "url = \"gate:*********@h\""),
            ("url = \"rediss//gate:hunter2@h", "url = \"rediss//gate:*******@h"),
            ("url = \"redis://gate:hun\"ter2@h\"", "url = \"redis://gate:********@h\""),
            ("rediss//gate:hunter2@h", "rediss//gate:*******@h"),
            ("bind = 1 # was redis//gate:hunter2@h", "bind = 1 # was redis//gate:*******@h"),
            ("bind = 1 # 'tis redis//gate:hunter2@h", "bind = 1 # 'tis redis//gate:*******@h"),
            (
                "shards = [{ url = \"redis//a:one@h\", weight = 2 }, { url = 'redis:/b:two@i' }]",
                "shards = [{ url = \"redis//a:***@h\", weight = 2 }, { url = 'redis:******@i' }]",
            ),
            ("url = \"http://a:1\", mail = \"b@c\"", "url = \"http://a:1\", mail = \"b@c\""),
            ("url = \"redis://me@host:1/0\"", "url = \"redis://me@host:1/0\""),
            ("set = { authorization = \"Basic x\" }", "set = { authorization = \"*******\" }"),
            ("path = \"/token\"", "path = \"/token\""),
            ("limit = \"5/m by header:x-token\"", "limit = \"5/m by header:x-token\""),
            ("tokn=\"hunter2\"", "tokn=\"*******\""),
            ("admin-tokne = 'hunter2'", "admin-tokne = '*******'"),
            ("secrett = \"hunter2\"", "secrett = \"*******\""),
            ("redis-pasword = \"hunter2\"", "redis-pasword = \"*******\""),
            ("apikey = \"hunter2\"", "apikey = \"*******\""),
            ("taken = 1", "taken = *"),
            ("tier = \"free\"", "tier = \"free\""),
            ("token = \"größe\"", "token = \"*******\""),
        ] {
            assert_eq!(line(line_in, 0, line_in.len()), line_out);
        }
    }

    #[test]
    fn the_later_lines_of_a_secret_are_starred() {
        let text = "token = \"\"\"a\nhunter2\n\"\"\"\nbind = 1";
        let second = text.find("hunter2").expect("it is in the text");
        assert_eq!(line(text, second, second + 7), "*******");
        let bind = text.find("bind").expect("it is in the text");
        assert_eq!(line(text, bind, text.len()), "bind = 1");
    }
}
