//! The parts that the text formats have in common: words, quoted texts with escapes, and the line of a request.

use std::borrow::Cow;

use http::Method;

use crate::request::NoLine;

/// What is left of a line.
pub struct LineCursor<'l>(pub &'l [u8]);

impl<'l> LineCursor<'l> {
    /// The text up to the next space, and skips that.
    pub fn word(&mut self) -> Result<&'l [u8], NoLine> {
        let end = memchr::memchr(b' ', self.0).unwrap_or(self.0.len());
        let (word, rest) = self.0.split_at(end);
        self.0 = rest.strip_prefix(b" ").unwrap_or(rest);
        if word.is_empty() { Err(NoLine::Form) } else { Ok(word) }
    }

    /// A text between these two bytes without escapes, and skips the space behind it.
    pub fn between(&mut self, open: u8, close: u8) -> Result<&'l [u8], NoLine> {
        let inner = self.0.split_first().filter(|(first, _)| **first == open).ok_or(NoLine::Form)?.1;
        let end = memchr::memchr(close, inner).ok_or(NoLine::Form)?;
        self.0 = &inner[end + 1..];
        self.space()?;
        Ok(&inner[..end])
    }

    /// A text between quotation marks, in which a backslash escapes the byte behind it, and skips the space behind it.
    pub fn quoted(&mut self) -> Result<Cow<'l, [u8]>, NoLine> {
        let inner = self.0.strip_prefix(b"\"").ok_or(NoLine::Form)?;
        let mut at = 0;
        loop {
            at += memchr::memchr2(b'"', b'\\', &inner[at..]).ok_or(NoLine::Form)?;
            if inner[at] == b'"' {
                break;
            }
            at = (at + 2).min(inner.len());
        }
        self.0 = &inner[at + 1..];
        self.space()?;
        Ok(unescaped(&inner[..at]))
    }

    fn space(&mut self) -> Result<(), NoLine> {
        if !self.0.is_empty() {
            self.0 = self.0.strip_prefix(b" ").ok_or(NoLine::Form)?;
        }
        Ok(())
    }
}

/// A number; `-` is 0.
pub fn number(text: &[u8]) -> Result<u64, NoLine> {
    if text == b"-" {
        return Ok(0);
    }
    let digits = std::str::from_utf8(text).ok().filter(|text| !text.starts_with('+'));
    digits.and_then(|digits| digits.parse().ok()).ok_or(NoLine::Form)
}

/// A text that is there; `-` and nothing stand for none.
pub fn present(text: &[u8]) -> Option<Cow<'_, str>> {
    (!text.is_empty() && text != b"-").then(|| String::from_utf8_lossy(text))
}

/// The parts of the line of a request.
pub struct RequestLine {
    pub method: Method,
    /// Of a target in absolute form.
    pub host: Option<Box<str>>,
    pub target: Box<str>,
}

/// Reads `GET /a HTTP/1.1`; `None` if it is the line of no request. Bytes that are no text stay as U+FFFD.
pub fn request_line(text: &[u8]) -> Option<RequestLine> {
    let text = String::from_utf8_lossy(text);
    let (method, rest) = text.split_once(' ')?;
    let target = match rest.rsplit_once(' ') {
        Some((target, version)) if version.starts_with("HTTP/") => target,
        _ => rest,
    };
    let method = Method::from_bytes(method.as_bytes()).ok()?;
    let absolute = ["http://", "https://"].into_iter().find_map(|scheme| target.strip_prefix(scheme));
    let (host, target) = match absolute {
        None => (None, target),
        Some(rest) => {
            let (host, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
            (Some(host.into()), if path.is_empty() { "/" } else { path })
        }
    };
    (target.starts_with('/') || target == "*").then(|| RequestLine { method, host, target: target.into() })
}

/// What Apache and nginx write for bytes that would break a line: `\"`, `\\`, `\n`, `\x1b`.
fn unescaped(text: &[u8]) -> Cow<'_, [u8]> {
    let Some(first) = memchr::memchr(b'\\', text) else { return Cow::Borrowed(text) };
    let (mut bytes, mut rest) = (text[..first].to_vec(), &text[first..]);
    while let [byte, behind @ ..] = rest {
        let (one, behind) = match (byte, behind) {
            (b'\\', [b'x', high, low, behind @ ..]) if hex(*high).is_some() && hex(*low).is_some() => {
                (hex(*high).zip(hex(*low)).map_or(0, |(high, low)| high << 4 | low), behind)
            }
            (b'\\', [b'n', behind @ ..]) => (b'\n', behind),
            (b'\\', [b'r', behind @ ..]) => (b'\r', behind),
            (b'\\', [b't', behind @ ..]) => (b'\t', behind),
            (b'\\', [escaped, behind @ ..]) => (*escaped, behind),
            (byte, behind) => (*byte, behind),
        };
        bytes.push(one);
        rest = behind;
    }
    Cow::Owned(bytes)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_texts_end_at_a_mark_that_is_not_escaped() {
        for (line, text, left) in [
            (r#""a b" c"#, "a b", "c"),
            (r#""a\"b\\" c"#, "a\"b\\", "c"),
            (r#""\x22\x1B\xzz" c"#, "\"\u{1b}xzz", "c"),
            (r#""" c"#, "", "c"),
            (r#""a""#, "a", ""),
        ] {
            let mut rest = LineCursor(line.as_bytes());
            assert_eq!(rest.quoted().as_deref(), Ok(text.as_bytes()), "{line}");
            assert_eq!(rest.0, left.as_bytes(), "{line}");
        }
        for line in ["a", "\"a", "\"a\\", "\"a\\\"", "\"a\"b"] {
            assert!(LineCursor(line.as_bytes()).quoted().is_err(), "{line}");
        }
    }

    #[test]
    fn the_line_of_a_request_has_a_method_and_a_target() {
        let broken = request_line(b"GET /\xff HTTP/1.1").expect("it is a request");
        assert_eq!(&*broken.target, "/\u{fffd}");
        let read = |line: &str| {
            request_line(line.as_bytes()).map(|it| (it.method.to_string(), it.host, it.target.into_string()))
        };
        let get = |target: &str| Some(("GET".to_owned(), None, target.to_owned()));
        assert_eq!(read("GET /a HTTP/1.1"), get("/a"));
        assert_eq!(read("GET /a"), get("/a"));
        assert_eq!(read("GET /a b HTTP/2.0"), get("/a b"));
        let absolute = Some(("GET".to_owned(), Some("b.example:80".into()), "/c?d".to_owned()));
        assert_eq!(read("GET http://b.example:80/c?d HTTP/1.1"), absolute);
        for line in ["-", "", "\u{16}\u{3}\u{1}", "GET", "GET a HTTP/1.1", "G@T\u{0} / HTTP/1.1"] {
            assert_eq!(read(line), None, "{line:?}");
        }
    }
}
