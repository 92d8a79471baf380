//! The head of an answer: its fields, and where its body ends (RFC 9112 section 6.3). It does no I/O.

use std::mem::MaybeUninit;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, StatusCode};
use hyper::ext::ReasonPhrase;

use super::chunks::Chunks;
use super::fields::{FIELDS_MAX, MalformedMessage, copy, length};

/// The head of an answer, without its fields.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub status: StatusCode,
    /// What it calls its status, if it calls it anything but its standard name.
    pub phrase: Option<Box<ReasonPhrase>>,
    /// The fields of early hints (RFC 8297). Boxed, because few answers give any.
    pub hints: Option<Box<HeaderMap>>,
    /// Its length in bytes.
    pub taken: usize,
    is_http_10: bool,
    said: FramingFields,
}

/// The fields that frame the message or concern the connection.
#[derive(Debug, Default)]
struct FramingFields {
    length: Length,
    /// The last transfer coding, which decides the framing.
    coding: Option<LastCoding>,
    closes: bool,
    keeps: bool,
    kept_for: Option<Duration>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    Unsaid,
    Bytes(u64),
    /// The value is no number, or there are different ones.
    Unclear,
}

/// The last transfer coding that an answer names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastCoding {
    Chunked,
    Other,
}

#[derive(Debug)]
pub(super) enum AnswerBody {
    /// After this many more bytes.
    Length(u64),
    Chunked(Chunks),
    /// With the connection; whether it has ended.
    Close(bool),
}

impl AnswerHead {
    /// Parses a head; `None` if more of it must be read. The fields of a final answer replace those in `fields`; the
    /// fields of an interim answer are dropped, but for hints.
    pub(super) fn parse(read: &[u8], fields: &mut HeaderMap) -> Result<Option<AnswerHead>, MalformedMessage> {
        let mut lines = [const { MaybeUninit::uninit() }; FIELDS_MAX];
        let mut answer = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let taken = match config.parse_response_with_uninit_headers(&mut answer, read, &mut lines) {
            Ok(httparse::Status::Complete(taken)) => taken,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(MalformedMessage("its status line or headers are invalid")),
        };
        let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or(MalformedMessage("its status is invalid"))?;
        let is_http_10 = answer.version == Some(0);
        let mut head = AnswerHead {
            status,
            phrase: phrase(status, answer.reason),
            hints: None,
            taken,
            is_http_10,
            said: FramingFields::default(),
        };
        if !head.is_interim() {
            fields.clear();
            let said = &mut head.said;
            copy(&read[..taken], answer.headers, fields, |name, value| said.note(name, value))?;
        } else if status.as_u16() == EARLY_HINTS {
            let mut hints = Box::<HeaderMap>::default();
            let is_read = copy(&read[..taken], answer.headers, &mut hints, |_, _| true).is_ok();
            head.hints = is_read.then_some(hints);
        }
        Ok(Some(head))
    }

    /// Whether it is an interim answer, which another follows (RFC 9110 section 15.2).
    pub(super) fn is_interim(&self) -> bool {
        self.status.is_informational() && self.status != StatusCode::SWITCHING_PROTOCOLS
    }

    /// Whether the server keeps the connection open (RFC 9112 section 9.3). A single `close` wins over any
    /// `keep-alive`.
    pub(super) fn keeps(&self) -> bool {
        !self.said.closes && (!self.is_http_10 || self.said.keeps)
    }

    /// How long the connection may be idle before the next request. Because the server closes it at the time that it
    /// says, and a request on its way then is lost, it is a second less, or half of the time where that is shorter.
    pub(super) fn kept_for(&self) -> Option<Duration> {
        let said = self.said.kept_for?;
        Some(said.saturating_sub(BEFORE_CLOSE.min(said / 2)))
    }

    /// Where the body ends. `to_head`: the request was HEAD, whose answer has no body.
    pub(super) fn body(&self, to_head: bool) -> Result<AnswerBody, MalformedMessage> {
        let is_empty = matches!(
            self.status,
            StatusCode::SWITCHING_PROTOCOLS | StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED
        );
        match (self.said.coding, self.said.length) {
            _ if is_empty || to_head => Ok(AnswerBody::Length(0)),
            (Some(_), _) if self.is_http_10 => {
                Err(MalformedMessage("it has `Transfer-Encoding` over HTTP/1.0"))
            }
            (Some(LastCoding::Chunked), _) => Ok(AnswerBody::Chunked(Chunks::default())),
            (None, Length::Bytes(length)) => Ok(AnswerBody::Length(length)),
            (None, Length::Unclear) => Err(MalformedMessage("its `Content-Length` is not one plain number")),
            (Some(LastCoding::Other), _) | (None, Length::Unsaid) => Ok(AnswerBody::Close(false)),
        }
    }
}

/// The phrase to pass on, as other proxies do; most answers have the standard one and need not copy it.
fn phrase(status: StatusCode, said: Option<&str>) -> Option<Box<ReasonPhrase>> {
    let said = said.filter(|said| !said.is_empty() && said.len() <= PHRASE_BYTES_MAX)?;
    if status.canonical_reason() == Some(said) {
        return None;
    }
    ReasonPhrase::try_from(said.as_bytes()).ok().map(Box::new)
}

impl FramingFields {
    /// Reads a field that concerns framing or the connection. Returns whether it is passed on: a `Connection` that only
    /// says `close` or `keep-alive` is not.
    fn note(&mut self, name: &HeaderName, value: &[u8]) -> bool {
        if *name == CONNECTION {
            for token in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                self.closes |= token.eq_ignore_ascii_case(b"close");
                self.keeps |= token.eq_ignore_ascii_case(b"keep-alive");
            }
            return ![&b"close"[..], b"keep-alive"].contains(&value);
        }
        if name.as_str() == "keep-alive" {
            let parts = value.split(|byte| *byte == b',').filter_map(|part| std::str::from_utf8(part).ok());
            let mut timeouts = parts.filter_map(|part| part.split_once('='));
            let timeout = timeouts.find(|(name, _)| name.trim().eq_ignore_ascii_case("timeout"));
            let seconds = timeout.and_then(|(_, seconds)| seconds.trim().parse().ok());
            self.kept_for = seconds.map(Duration::from_secs).or(self.kept_for);
        }
        if *name == CONTENT_LENGTH {
            self.length = match (length(value), self.length) {
                (Some(length), Length::Unsaid) => Length::Bytes(length),
                (Some(length), before) if before == Length::Bytes(length) => before,
                _ => Length::Unclear,
            };
        }
        if *name == TRANSFER_ENCODING {
            let last = value.rsplit(|byte| *byte == b',').next().unwrap_or_default();
            let is_chunked = last.trim_ascii().eq_ignore_ascii_case(b"chunked");
            self.coding = Some(if is_chunked { LastCoding::Chunked } else { LastCoding::Other });
        }
        true
    }
}

impl AnswerBody {
    pub(super) fn is_over(&self) -> bool {
        match self {
            AnswerBody::Length(left) => *left == 0,
            AnswerBody::Chunked(chunks) => chunks.is_over(),
            AnswerBody::Close(is_closed) => *is_closed,
        }
    }
}

/// RFC 8297.
const EARLY_HINTS: u16 = 103;
/// How long before a server closes a connection it gets no request.
const BEFORE_CLOSE: Duration = Duration::from_secs(1);
/// A longer phrase is not passed on.
const PHRASE_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn read(text: &str) -> (AnswerHead, HeaderMap) {
        let mut fields = HeaderMap::new();
        fields.insert("before", HeaderValue::from_static("a request's"));
        let head = AnswerHead::parse(text.as_bytes(), &mut fields).expect("well formed").expect("whole");
        assert_eq!(head.taken, text.len());
        (head, fields)
    }

    fn head(text: &str) -> AnswerHead {
        read(text).0
    }

    /// Where the body after these fields ends.
    fn body(status: &str, fields: &str) -> String {
        match head(&format!("HTTP/1.1 {status}\r\n{fields}\r\n")).body(false) {
            Ok(AnswerBody::Length(length)) => length.to_string(),
            Ok(AnswerBody::Chunked(_)) => "chunked".to_owned(),
            Ok(AnswerBody::Close(false)) => "close".to_owned(),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_body_ends_where_its_head_says() {
        assert_eq!(body("200 OK", "Content-Length: 7\r\n"), "7");
        assert_eq!(body("200", "Content-Length: 7\r\ncontent-length: 7\r\n"), "7");
        assert_eq!(body("200 OK", "transfer-encoding: gzip, Chunked\r\n"), "chunked");
        assert_eq!(body("200 OK", "transfer-encoding: gzip\r\n"), "close");
        assert_eq!(body("200 OK", ""), "close");
        for status in ["101 X", "204 No Content", "304 Not Modified"] {
            assert_eq!(body(status, "content-length: 7\r\n"), "0", "{status}");
        }
        for length in ["", "+7", "7 7", "7,8", "0x7", "99999999999999999999"] {
            assert!(
                body("200 OK", &format!("content-length: {length}\r\n")).contains("Malformed"),
                "{length}"
            );
        }
        assert!(head("HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").body(false).is_err());
        let to_head = head("HTTP/1.1 200 OK\r\ncontent-length: 7\r\n\r\n").body(true);
        assert!(to_head.is_ok_and(|framing| framing.is_over()));
    }

    #[test]
    fn a_phrase_is_kept_unless_it_is_the_standard_one() {
        let phrase = |line: &str| {
            let phrase = head(&format!("HTTP/1.1 {line}\r\n\r\n")).phrase;
            phrase.map(|phrase| String::from_utf8_lossy(phrase.as_bytes()).into_owned())
        };
        assert_eq!(phrase("299 Rather odd").as_deref(), Some("Rather odd"));
        let longest = "x".repeat(PHRASE_BYTES_MAX);
        assert_eq!(phrase(&format!("520 {longest}")), Some(longest.clone()));
        assert_eq!(phrase("200 Fine").as_deref(), Some("Fine"));
        for line in ["200 OK", "200", "404 ", "299", "299 ", "299 \u{e9}", &format!("520 {longest}x")] {
            assert_eq!(phrase(line), None, "{line}");
        }
    }

    #[test]
    fn a_connection_is_kept_as_its_server_says() {
        for (begin, keeps) in [
            ("HTTP/1.1 200 OK\r\n", true),
            ("HTTP/1.1 200 OK\r\nconnection: x, Close\r\n", false),
            ("HTTP/1.1 200 OK\r\nconnection: close\r\nconnection: keep-alive\r\n", false),
            ("HTTP/1.0 200 OK\r\n", false),
            ("HTTP/1.0 200 OK\r\nconnection: Keep-Alive\r\n", true),
        ] {
            assert_eq!(head(&format!("{begin}\r\n")).keeps(), keeps, "{begin:?}");
        }
    }

    #[test]
    fn a_connection_is_kept_as_long_as_its_server_says_and_a_little_less() {
        for (value, millis) in [
            ("timeout=5", Some(4_000)),
            ("Timeout = 2, max=100", Some(1_000)),
            ("max=100,timeout=1", Some(500)),
            ("timeout=0", Some(0)),
            ("max=100", None),
            ("timeout=x", None),
            ("timeout=-1", None),
            ("5", None),
        ] {
            let kept_for = head(&format!("HTTP/1.1 200 OK\r\nKeep-Alive: {value}\r\n\r\n")).kept_for();
            assert_eq!(kept_for, millis.map(Duration::from_millis), "{value}");
        }
        assert_eq!(head("HTTP/1.1 200 OK\r\n\r\n").kept_for(), None);
    }

    #[test]
    fn fields_of_the_connection_are_not_passed_on() {
        let connection = |value: &str| {
            let (_, fields) = read(&format!("HTTP/1.1 101 X\r\nconnection: {value}\r\n\r\n"));
            fields.contains_key(CONNECTION)
        };
        assert!(!connection("keep-alive") && !connection("close"));
        assert!(connection("upgrade") && connection("close, x-own"), "what it names has to go too");
    }

    #[test]
    fn an_interim_answer_does_not_change_the_fields() {
        let (head, fields) = read("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n");
        assert!(head.is_interim());
        assert_eq!(head.hints.expect("it gives some")["link"], "</a>");
        assert_eq!(fields.keys().collect::<Vec<_>>(), ["before"]);
    }

    #[test]
    fn fields_are_read_as_they_stand_and_half_a_head_is_none() {
        let text = "HTTP/1.1 200 OK\r\nServer: a b\r\nempty:\r\nX-Twice: 1\r\nx-twice: 2\r\n\r\n";
        let (_, fields) = read(text);
        assert_eq!(
            (&fields["server"], &fields["empty"]),
            (&"a b".parse().expect("a value"), &"".parse().expect("one"))
        );
        assert_eq!(fields.len(), 4);
        assert_eq!(fields.get_all("x-twice").iter().collect::<Vec<_>>(), ["1", "2"]);
        for end in 0..text.len() {
            let half = AnswerHead::parse(&text.as_bytes()[..end], &mut HeaderMap::new());
            assert!(half.is_ok_and(|head| head.is_none()), "{end}");
        }
    }
}
