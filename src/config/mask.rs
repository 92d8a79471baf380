//! Secrets, out of sight: which names hold one, and a line of a file with its secrets starred out.
//!
//! It works on the bare text, so that a line that is not even TOML gives nothing away either. It prefers to
//! hide too much.

use std::ops::Range;

/// What stands in place of a secret.
pub const MASK: &str = "********";

/// Whether a value under this key or header name is a secret.
pub fn is_secret_name(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    SECRET_ENDINGS.iter().any(|ending| name.ends_with(ending))
}

/// The bytes `first..last` of `text`, a line, with every secret's bytes replaced by as many stars: what a
/// place counts in bytes stays where it was.
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
    // Whole characters are replaced only, as `secrets` cuts at ASCII; if that were ever wrong, nothing is shown.
    String::from_utf8(bytes).unwrap_or_else(|_| MASK.to_owned())
}

/// Where the secrets of a line are: values of secret names, passwords of URLs.
fn secrets(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some((name, after)) = next_word(line, rest) {
        rest = after;
        if is_secret_name(name)
            && let Some(value) = value_after(line, after)
        {
            rest = value.end.max(after);
            found.push(value);
        }
    }
    for (scheme, _) in line.match_indices("://") {
        let start = scheme + 3;
        // Passwords stand as they are, spaces and the other kind of quotes included.
        let quote = line[..start].rfind(['"', '\'']).map(|at| line.as_bytes()[at]);
        let closes = |byte: u8| quote.is_none_or(|quote| byte == quote) && b"\"'".contains(&byte);
        let end = line[start..].bytes().position(closes).map_or(line.len(), |at| start + at);
        if let Some(at) = line[start..end].rfind('@')
            && let Some(colon) = line[start..start + at].find(':')
        {
            found.push(start + colon + 1..start + at);
        }
    }
    found
}

/// The next run of name characters at or after `from`, and where it ends.
fn next_word(line: &str, from: usize) -> Option<(&str, usize)> {
    let is_name = |character: char| character.is_ascii_alphanumeric() || "-_".contains(character);
    let start = from + line[from..].find(is_name)?;
    let end = line[start..].find(|character| !is_name(character)).map_or(line.len(), |at| start + at);
    Some((&line[start..end], end))
}

/// The value that belongs to a name ending at `after`, quotes left out. `None`: the name has none.
fn value_after(line: &str, after: usize) -> Option<Range<usize>> {
    let rest =
        line[after..].strip_prefix(['"', '\'']).unwrap_or(&line[after..]).trim_start_matches([' ', '\t']);
    // `=` as it should be, `:` as people write it by mistake, or nothing but a quoted value.
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
    Some(start..end.map_or(line.len(), |at| start + at))
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

/// Whether a value is one `${...}` without a default: its text names the secret but is none.
fn is_bare_reference(value: &str) -> bool {
    let inner = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['}', '{']) && !inner.contains(":-"))
}

/// Names that end so hold secrets.
const SECRET_ENDINGS: [&str; 7] =
    ["token", "secret", "password", "passwd", "api-key", "api_key", "authorization"];

/// How far back an opening `"""` of a secret is looked for, bytes.
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
            ("token = \"${file:/run/token}\"", "token = \"${file:/run/token}\""),
            ("token = \"${TOKEN:-hunter2}\"", "token = \"*****************\""),
            ("url = \"redis://me:hunter2@host/0\"", "url = \"redis://me:*******@host/0\""),
            ("url = \"redis://me:hun ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = \"redis://me:hun'ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = 'redis://me:hun\"ter2@host/0'", "url = 'redis://me:********@host/0'"),
            ("url = redis://me:hunter2@host/0", "url = redis://me:*******@host/0"),
            ("set = { authorization = \"Basic x\" }", "set = { authorization = \"*******\" }"),
            ("path = \"/token\"", "path = \"/token\""),
            ("limit = \"5/m by header:x-token\"", "limit = \"5/m by header:x-token\""),
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
