//! Masks secrets in lines that error messages show: values under names of secrets, and passwords in URLs.
//!
//! A text between a `:` and an `@` may be a password, even if the rest is not a valid URL.
//!
//! It works on the plain text and not on parsed TOML, because messages also show lines that are not valid TOML. In doubt
//! it hides too much.

use std::ops::Range;
use std::sync::{PoisonError, RwLock};

use crate::printer;
use base::words;
use policy::secret::SECRET_ENDINGS;
pub use policy::secret::{MASK, is_secret_name};

pub(crate) const MASKED: &str =
    "is only asterisks, the mask that `check --effective` and `/config` print for a secret";
pub(crate) const OUT_OF_FILE: &str = "keep a secret out of it: `\"${NAME}\"` or `\"${file:/path}\"`";
pub(crate) const WRITE_SECRET: &str = "write the secret itself, as `\"${NAME}\"` or `\"${file:/path}\"`";

/// Whether a secret is only a mask, of any length: everybody knows it.
pub(crate) fn is_mask(secret: &str) -> bool {
    !secret.is_empty() && secret.bytes().all(|byte| byte == b'*')
}

/// Whether a key of gateway.toml has a secret. Some are called as secrets of messages are, and
/// name a file, a method or a cookie.
pub(crate) fn is_secret_key(key: &str) -> bool {
    is_secret_name(key) && !["auth", "key", "cookie"].contains(&key)
}

/// Whether a name is a secret's, or one with a letter wrong, missing, too many, or two letters swapped: masked, because
/// the key is unknown then, and the line that shows it holds the secret all the same.
fn is_nearly_secret_name(name: &str) -> bool {
    if is_secret_name(name) || name == "digest" {
        return !["auth", "key"].contains(&name);
    }
    let name = name.to_ascii_lowercase();
    SECRET_ENDINGS.iter().any(|ending| {
        let lengths = ending.len() - 1..=ending.len() + 1;
        let mut tails = lengths.filter_map(|length| name.get(name.len().checked_sub(length)?..));
        tails.any(|tail| strsim::damerau_levenshtein(tail, ending) <= 1)
    })
}

/// A line to show: a mask, whose length tells nothing, in the place of each secret.
pub(crate) struct MaskedLine {
    pub(crate) text: String,
    /// The bytes of each secret in the line as it is written, from first to last.
    masked: Vec<Range<usize>>,
}

impl MaskedLine {
    /// Where something of the written line is shown. What is within a secret is at an end of its mask, so that a marker
    /// below the line is of the mask's length.
    pub(crate) fn shown(&self, written: Range<usize>) -> Range<usize> {
        let shown = |at: usize, is_end: bool| {
            let mut shown = at;
            for secret in self.masked.iter().filter(|secret| secret.start < at) {
                match at < secret.end {
                    true if is_end => shown = shown + secret.start + MASK.len() - at,
                    true => shown -= at - secret.start,
                    false => shown = shown + MASK.len() - secret.len(),
                }
            }
            shown
        };
        shown(written.start, false)..shown(written.end, true)
    }
}

/// The line `first..last` of `text` with its secrets masked: those `known` to be there, and what its words say is one.
pub(crate) fn line(
    text: &str,
    first: usize,
    last: usize,
    known: impl IntoIterator<Item = Range<usize>>,
) -> MaskedLine {
    let line = &text[first..last];
    let mut masked = match is_inside_secret(text, first) {
        true => std::iter::once(0..line.len()).collect(),
        false => secrets(line),
    };
    masked.extend(known.into_iter().map(|secret| {
        let (start, end) = (secret.start.max(first) - first, secret.end.min(last) - first);
        let start = end - line[start..end].trim_start_matches(['"', '\'']).len();
        start..start + line[start..end].trim_end_matches(['"', '\'']).len()
    }));
    masked.retain(|secret| !secret.is_empty() && !is_bare_reference(&line[secret.clone()]));
    masked.sort_by_key(|secret| secret.start);
    masked.dedup_by(|next, before| {
        let is_one = next.start <= before.end;
        before.end = if is_one { before.end.max(next.end) } else { before.end };
        is_one
    });
    let mut text = String::with_capacity(line.len());
    let mut rest = 0;
    for secret in &masked {
        text.extend([&line[rest..secret.start], MASK]);
        rest = secret.end;
    }
    text += &line[rest..];
    MaskedLine { text: seen(&text), masked }
}

/// A text with question marks, as many as it has bytes, for each character that steers a terminal: markers stay in their places.
/// Controls of one byte are left to what draws the line.
fn seen(text: &str) -> String {
    let mut seen = String::with_capacity(text.len());
    for one in text.chars() {
        match one.len_utf8() {
            bytes @ 2.. if words::steers(one) => seen.extend(std::iter::repeat_n('?', bytes)),
            _ => seen.push(one),
        }
    }
    seen
}

/// The ranges of a line's secrets: values under secret names, passwords in URLs.
fn secrets(line: &str) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut rest = 0;
    while let Some((name, after)) = next_word(line, rest) {
        rest = after;
        // Shown, because `cookie:name` is a dimension.
        let is_dimension = name == "cookie"
            && line[after..].strip_prefix(':').is_some_and(|rest| rest.starts_with(char::is_alphanumeric));
        if is_nearly_secret_name(name)
            && !is_dimension
            && let Some(value) = value_after(line, after)
        {
            rest = value.end.max(after);
            // Shown, because `credentials` of `cors` are yes or no.
            if !["true", "false"].contains(&line[value.clone()].trim()) {
                found.push(value);
            }
        }
    }
    match quoted_values(line) {
        Some(values) => found.extend(
            values.into_iter().filter_map(|value| shifted(password(&line[value.clone()])?, value.start)),
        ),
        // The whole line, because without its quotes nobody knows where values begin and end.
        None => found.extend(password(line)),
    }
    found
}

/// A value for a message to quote, with what may be a password masked.
pub(crate) fn value(text: &str) -> String {
    match password(text) {
        Some(password) => format!("{}{MASK}{}", &text[..password.start], &text[password.end..]),
        None => text.to_owned(),
    }
}

/// A message with what may be a password masked, both inside and outside its backticks.
pub(crate) fn message(text: &str) -> String {
    text.split('`').map(value).collect::<Vec<_>>().join("`")
}

/// The range that may be a password: from the first colon that does not end a scheme to the last `@`.
fn password(text: &str) -> Option<Range<usize>> {
    let end = text.rfind('@')?;
    // A single word counts, because behind a scheme of Redis it is a password without its colon more often than a user.
    // It may hold that of the scheme, so it is the first one that counts.
    if let Some(at) = text[..end].find("redis") {
        let rest = text[at + "redis".len()..end].trim_start_matches('s').trim_start_matches([':', '/']);
        if at + "redis".len() + rest.len() < end && !rest.contains(':') {
            return Some(end - rest.len()..end);
        }
    }
    let mut starts = text[..end].match_indices(':').map(|(at, _)| at);
    let Some(first) = starts.next() else { return lone_word(text, 0, end) };
    // A scheme's own colon does not count, because no password follows it.
    let is_scheme = |name: &&&str| text[..first].ends_with(**name) && text[first..end].starts_with("://");
    let Some(scheme) = SCHEMES.iter().find(is_scheme) else { return Some(first + 1..end) };
    match starts.next() {
        Some(start) => Some(start + 1..end),
        // A user, because its password is never alone.
        None if scheme.starts_with("postgres") => None,
        None => lone_word(text, first + "://".len(), end),
    }
}

/// The word before an `@` that no colon divides: a token more often than a user. A path has none.
fn lone_word(text: &str, from: usize, end: usize) -> Option<Range<usize>> {
    let is_between = |character: char| character.is_ascii_whitespace() || "\"'`=,([{".contains(character);
    let start = text[from..end].rfind(is_between).map_or(from, |at| from + at + 1);
    (!text[start..end].starts_with('/') && start < end).then_some(start..end)
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
        let length = closing(&line[start..], quote.into())?;
        values.push(start..start + length);
        from = start + length + 1;
    }
    (!line[from..].contains(['@', ':'])).then_some(values)
}

/// Where the quote closes a text that it has opened; in double quotes a backslash escapes what follows.
fn closing(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    text.find(|character| {
        let closes = character == quote && !escaped;
        escaped = character == '\\' && !escaped && quote == '"';
        closes
    })
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
    // All three, because `=` is right, `:` is a common mistake, and a quoted value may follow with neither.
    let value = match rest.strip_prefix(['=', ':']) {
        Some(value) => value.trim_start_matches([' ', '\t']),
        None if rest.starts_with(['"', '\'']) => rest,
        None => return None,
    };
    let start = line.len() - value.len();
    if let Some(inside) = value.strip_prefix('[') {
        // Of a list of tables the values have names of their own. If none is a secret's, all is hidden, because any of
        // it may be one.
        let is_tables = inside.trim_start().starts_with('{');
        let is_named = is_tables
            && inside.split(['{', ',']).any(|pair| {
                let name = pair.split(['=', ':']).next().unwrap_or_default();
                is_nearly_secret_name(name.trim().trim_matches(['"', '\'']))
            });
        return (!is_named).then(|| start..inside.rfind(']').map_or(line.len(), |at| start + 1 + at));
    }
    let Some(quote) = value.chars().next().filter(|first| "\"'".contains(*first)) else {
        let end = value.find([',', '}']).map_or(line.len(), |at| start + at);
        return Some(start..end);
    };
    let many = quote.to_string().repeat(3);
    let inner = value.strip_prefix(&many).unwrap_or(&value[1..]);
    let start = line.len() - inner.len();
    let end = closing(inner, quote);
    // To the end of the line otherwise, because the text behind a quote that closes too early may be the value's rest.
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

/// Whether a value is a single `${...}` without a default. It may be shown, because it names where the secret is.
fn is_bare_reference(value: &str) -> bool {
    let inner = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
    inner.is_some_and(|inner| !inner.contains(['}', '{']) && !inner.contains(":-"))
}

/// Texts that came from outside the files, and are masked wherever they turn up.
#[derive(Clone, Default, PartialEq, Eq, derive_more::Debug)]
#[debug("Secrets(..)")]
pub(crate) struct Secrets(Vec<String>);

/// The secrets of all configurations that this process has read, for what it says by code that does not see where a text
/// came from.
static KNOWN: RwLock<Secrets> = RwLock::new(Secrets(Vec::new()));

/// A text with a mask for each secret of the configurations that this process has read.
pub fn hidden(text: &str) -> String {
    KNOWN.read().unwrap_or_else(PoisonError::into_inner).hide(text)
}

impl Secrets {
    /// Keeps them for [`hidden`], beside those of earlier configurations, whose parts may still be at work.
    pub(crate) fn remember(&self) {
        let mut known = KNOWN.write().unwrap_or_else(PoisonError::into_inner);
        known.add(&self.0);
        if known.0.len() > KNOWN_MAX {
            known.clone_from(self);
        }
    }

    /// Adds some. A text of blanks hides nothing.
    pub(crate) fn add(&mut self, texts: &[String]) {
        for text in texts.iter().map(|text| text.trim()).filter(|text| !text.is_empty() && !is_mask(text)) {
            if !self.0.iter().any(|known| known == text) {
                self.0.push(text.to_owned());
            }
        }
        // The longest first, because it may hold another one.
        self.0.sort_by_key(|text| std::cmp::Reverse(text.len()));
    }

    /// The text with a mask for each of them. A short one is masked only between quotes, because it would be found in
    /// any word.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut shown = text.to_owned();
        for secret in &self.0 {
            let in_toml = printer::text(secret);
            // Three forms, because messages have them as they are, as TOML writes them, and quoted.
            for form in [secret, &in_toml[1..in_toml.len() - 1], &secret.escape_debug().to_string()] {
                if form.len() >= FOUND_BYTES_MIN {
                    shown = replaced(&shown, form, MASK);
                } else {
                    for quote in ['"', '`'] {
                        let quoted = |text| format!("{quote}{text}{quote}");
                        shown = replaced(&shown, &quoted(form), &quoted(MASK));
                    }
                }
            }
        }
        shown
    }

    /// The same in the strings of a TOML that the printer wrote, and in nothing else of it.
    pub(crate) fn hide_in_toml(&self, text: &str) -> String {
        let mut shown = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find('"').filter(|_| !self.0.is_empty()) {
            let length = closing(&rest[start + 1..], '"');
            let end = length.map_or(rest.len(), |length| start + 1 + length + 1);
            shown += &rest[..start];
            shown += &self.hide(&rest[start..end]);
            rest = &rest[end..];
        }
        shown + rest
    }
}

/// A text with each occurrence replaced. Case does not count, because hosts and names of fields are written in lower
/// case.
fn replaced(text: &str, from: &str, to: &str) -> String {
    let (lower, from) = (text.to_ascii_lowercase(), from.to_ascii_lowercase());
    let mut shown = String::with_capacity(text.len());
    let mut rest = 0;
    for (at, found) in lower.match_indices(&from) {
        shown += &text[rest..at];
        shown += to;
        rest = at + found.len();
    }
    shown + &text[rest..]
}

/// A shorter secret is masked only where it is all between two quotes, bytes.
const FOUND_BYTES_MIN: usize = 4;

/// So many secrets of earlier configurations are kept with those of the last one.
const KNOWN_MAX: usize = 1_000;

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
            ("token = \"hunter2\"", "token = \"********\""),
            ("admin = { token = 'hunter2', bind = \"x\" }", "admin = { token = '********', bind = \"x\" }"),
            ("\"password\" = \"a\\\"b\" # c", "\"password\" = \"********\" # c"),
            ("token \"hunter2\"", "token \"********\""),
            (
                "tokens = [{ name = \"a\", token = , role = \"read\" }]",
                "tokens = [{ name = \"a\", token = , role = \"read\" }]",
            ),
            (
                "tokens = [{ name = \"a\", token = \"hunter2\", role }, { token = 'x', name",
                "tokens = [{ name = \"a\", token = \"********\", role }, { token = '********', name",
            ),
            (
                "tokens = [{ name = \"a\", tokn = \"hunter2\" }]",
                "tokens = [{ name = \"a\", tokn = \"********\" }]",
            ),
            ("tokens = [{ value = \"hunter2\" }] # x", "tokens = ********] # x"),
            ("tokens = [\"hunter2\", \"hunter3\"]", "tokens = ********]"),
            ("tokens = [\"hunter2\", \"hunter3\"", "tokens = ********"),
            ("token: hunter2", "token: ********"),
            ("token = \"hunter2", "token = \"********"),
            ("secret = 'it's-mine'", "secret = '********"),
            ("token = \"aaa\" bbb", "token = \"********"),
            ("secret = \"abc\"def\" # c", "secret = \"********"),
            ("token = \"${file:/run/token}\"", "token = \"${file:/run/token}\""),
            ("token = \"${TOKEN:-hunter2}\"", "token = \"********\""),
            ("url = \"redis://me:hunter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = \"redis://me:hun ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = \"redis://me:hun'ter2@host/0\"", "url = \"redis://me:********@host/0\""),
            ("url = 'redis://me:hun\"ter2@host/0'", "url = 'redis://me:********@host/0'"),
            ("url = redis://me:hunter2@host/0", "url = redis://me:********@host/0"),
            ("url = \"postgres://me:hunter2@host/db\"", "url = \"postgres://me:********@host/db\""),
            ("url = \"postgresql://me@host:1/db\"", "url = \"postgresql://me@host:1/db\""),
            ("url = \"rediss//gate:hunter2@h\"", "url = \"rediss//gate:********@h\""),
            ("url = \"redis:/gate:hunter2@h\"", "url = \"redis:********@h\""),
            ("url = \"redsi://gate:hunter2@h\"", "url = \"redsi:********@h\""),
            ("url = \"gate:hunter2@h:1\"", "url = \"gate:********@h:1\""),
            ("url = \"gate:hun:t@er2@h\"", "url = \"gate:********@h\""),
            ("url = \"rediss//gate:hunter2@h", "url = \"rediss//gate:********@h"),
            ("url = \"redis://gate:hun\"ter2@h\"", "url = \"redis://gate:********@h\""),
            ("rediss//gate:hunter2@h", "rediss//gate:********@h"),
            ("bind = 1 # was redis//gate:hunter2@h", "bind = 1 # was redis//gate:********@h"),
            ("bind = 1 # 'tis redis//gate:hunter2@h", "bind = 1 # 'tis redis//gate:********@h"),
            (
                "shards = [{ url = \"redis//a:one@h\", weight = 2 }, { url = 'redis:/b:two@i' }]",
                "shards = [{ url = \"redis//a:********@h\", weight = 2 }, { url = 'redis:********@i' }]",
            ),
            ("url = \"http://a:1\", mail = \"b@c\"", "url = \"http://a:1\", mail = \"********@c\""),
            ("url = \"redis://hunter2@host:1/0\"", "url = \"redis://********@host:1/0\""),
            ("url = \"rediss//hun ter2@h\"", "url = \"rediss//********@h\""),
            ("url = \"redis://redis:hunter2@h\"", "url = \"redis://redis:********@h\""),
            ("url = \"redis://:redis:/hunter2@h\"", "url = \"redis://:********@h\""),
            ("url = \"redis://hunredis:2@h\"", "url = \"redis://hunredis:********@h\""),
            ("url = \"redis://me:redis/hunter2@h\"", "url = \"redis://me:********@h\""),
            ("url = \"redis://hunter/redis2@h\"", "url = \"redis://********@h\""),
            ("url = redis://hunter2@h,b", "url = redis://********@h,b"),
            ("url = \"hunter2@h\"", "url = \"********@h\""),
            ("url = hunter2@h:1", "url = ********@h:1"),
            ("url = \"https://hunter2@h/a\"", "url = \"https://********@h/a\""),
            ("url = \"ftp://hunter2@h\"", "url = \"ftp:********@h\""),
            ("path = \"/a/@me\"", "path = \"/a/@me\""),
            ("path = \"/a@b\" # c", "path = \"/a@b\" # c"),
            ("set = { cookie = \"a=b\", x-a = \"c\" }", "set = { cookie = \"********\", x-a = \"c\" }"),
            ("x-jwt = \"hunter2", "x-jwt = \"********"),
            ("x-session: hunter2", "x-session: ********"),
            (
                "match = { header = { x-signature = 'a' } }",
                "match = { header = { x-signature = '********' } }",
            ),
            (
                "set = { x-auth = \"a\", X-Key = \"b\" }",
                "set = { x-auth = \"********\", X-Key = \"********\" }",
            ),
            ("auth = \"keys\"", "auth = \"keys\""),
            (
                "certs = { cert = \"a.pem\", key = \"a.key\" }",
                "certs = { cert = \"a.pem\", key = \"a.key\" }",
            ),
            ("balance = \"hash:cookie:Session\"", "balance = \"hash:cookie:Session\""),
            ("set = { authorization = \"Basic x\" }", "set = { authorization = \"********\" }"),
            ("path = \"/token\"", "path = \"/token\""),
            ("limit = \"5/m by header:x-token\"", "limit = \"5/m by header:x-token\""),
            ("tokn=\"hunter2\"", "tokn=\"********\""),
            ("admin-tokne = 'hunter2'", "admin-tokne = '********'"),
            ("secrett = \"hunter2\"", "secrett = \"********\""),
            ("redis-pasword = \"hunter2\"", "redis-pasword = \"********\""),
            ("apikey = \"hunter2\"", "apikey = \"********\""),
            ("taken = 1", "taken = ********"),
            ("digest = \"sha256:00\"", "digest = \"********\""),
            ("tier = \"free\"", "tier = \"free\""),
            ("token = \"größe\"", "token = \"********\""),
        ] {
            assert_eq!(line(line_in, 0, line_in.len(), []).text, line_out);
        }
    }

    #[test]
    fn a_marker_is_where_its_place_is_shown() {
        for (line_in, marked, under) in [
            ("token = 'a', bind = 1", "bind", "bind"),
            ("token = 'a long secret, that of all', bind = 1", "bind", "bind"),
            ("token = 'a long secret, that of all', bind = 1", "'a long secret, that of all'", "'********'"),
            ("token = 'a long secret, that of all' # b", "a long", "********"),
            ("token = 'a' # b", "a' # b", "********' # b"),
            (
                "token = 'a', secret = 'bcd', bind = 1",
                "token = 'a', secret = 'bcd', bind",
                "token = '********', secret = '********', bind",
            ),
            ("bind = 1, token = 'a'", "bind", "bind"),
        ] {
            let at = line_in.rfind(marked).expect("it is in the line");
            let line = line(line_in, 0, line_in.len(), []);
            assert_eq!(&line.text[line.shown(at..at + marked.len())], under, "{line_in}");
        }
    }

    #[test]
    fn the_later_lines_of_a_secret_are_starred() {
        let text = "token = \"\"\"a\nhunter2\n\"\"\"\nbind = 1";
        let second = text.find("hunter2").expect("it is in the text");
        assert_eq!(line(text, second, second + 7, []).text, MASK);
        let bind = text.find("bind").expect("it is in the text");
        assert_eq!(line(text, bind, text.len(), []).text, "bind = 1");
    }

    #[test]
    fn a_line_steers_no_terminal() {
        let text = "a = \"\u{9b}31m \u{202e}x\u{feff} \u{e0041}é\"";
        assert_eq!(line(text, 0, text.len(), []).text, "a = \"??31m ???x??? ????é\"");
    }

    #[test]
    fn texts_from_outside_are_hidden_in_every_form() {
        let mut secrets = Secrets::default();
        secrets.add(&["hun\"${ter2".to_owned(), "hunter2\n".to_owned(), "ip".to_owned(), " ".to_owned()]);
        for (text, shown) in [
            ("`HUNTER2` of /etc/hunter2/a", "`********` of /etc/********/a"),
            ("`ip` of a zip \"ip\"", "`********` of a zip \"********\""),
            ("hun\"${ter2", "********"),
        ] {
            assert_eq!(secrets.hide(text), shown);
        }
        let page = "hunter2 = [\"a hunter2\", \"\\\"hunter2\", \"hun\\\"$${ter2\"] # hunter2\nby = [\"ip\", \"tip\"]\n";
        assert_eq!(
            secrets.hide_in_toml(page),
            "hunter2 = [\"a ********\", \"\\\"********\", \"********\"] # hunter2\nby = [\"********\", \"tip\"]\n"
        );
        assert_eq!(format!("{secrets:?}"), "Secrets(..)");
    }
}
