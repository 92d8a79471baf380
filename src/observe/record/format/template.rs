//! Lines as a text of the operator's own: `{client} "{request}" {status}`. A name is a key of the JSON line, or one
//! of a few that only texts need. A value between quotes has no quote in it. Another one has no blank, and nothing of
//! what stands beside a value that clients choose: of `{client}|{user_agent}` no `|`, so that no value can look like
//! two; what is not there is `-`.

use std::num::NonZeroU64;

use http::header::{HeaderName, REFERER, USER_AGENT};

use super::bounds::{ID_BYTES_MAX, LINE_BYTES_MAX, METHOD_BYTES_MAX, NAME_BYTES_MAX};
use super::date;
use super::escape::{self, CUT_BYTES_MAX, ESCAPE_BYTES, Escape};
use super::target::{self, PATH_BYTES_MAX};
use super::value::{push_address, push_digits};
use crate::record::AccessEntry;
use crate::record::field::FIELD_BYTES_MAX;
use base::hex;
use policy::braces::{self, BracePiece};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogTemplate {
    text: Box<str>,
    parts: Box<[LogPart]>,
    separators: Separators,
}

/// The ASCII bytes that end or begin a value which clients choose, a bit for each: such a value must not have them, unless it
/// stands between quotes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Separators(u128);

#[derive(Clone, Debug, PartialEq, Eq)]
enum LogPart {
    Literal(Box<[u8]>),
    Value(LogValue, Escape),
    /// The value of a header field that lines show.
    Header(HeaderName, Escape),
}

/// What is wrong with a format. Offsets are bytes into its text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A brace without its other one.
    #[error(transparent)]
    Brace(#[from] braces::Error),
    #[error("`{{{name}}}` does not exist here; write one of {}, or `{{header:x-name}}`", known().join(", "))]
    Unknown {
        offset: usize,
        /// As written, between the braces.
        name: String,
    },
    /// A header field that lines do not show.
    #[error(
        "`{name}` is not one of `headers`; name it there, too, where headers that may hold a credential are refused"
    )]
    NotShown {
        /// Where its brace stands.
        offset: usize,
        name: String,
    },
    /// A control character, which would end a line or hide a part of it.
    #[error("a format must not have control characters")]
    Control,
    /// Nothing in it differs from one request to the next.
    #[error("every line would be the same; write values such as `{{client}} \"{{request}}\" {{status}}`")]
    Fixed,
    #[error("a line could become longer than {LINE_BYTES_MAX} bytes; name fewer values")]
    TooLong,
}

impl Error {
    /// The part of the text that is wrong; all of it if nothing more exact is known.
    pub fn span(&self, text: &str) -> std::ops::Range<usize> {
        match self {
            Error::Brace(braces::Error::Unclosed { offset }) => *offset..text.len(),
            Error::Brace(braces::Error::LoneBrace { offset }) => *offset..offset + 1,
            Error::Unknown { offset, name } => *offset..offset + name.len() + 2,
            Error::NotShown { offset, name } => *offset..offset + HEADER.len() + name.len() + 2,
            Error::Control | Error::Fixed | Error::TooLong => 0..text.len(),
        }
    }
}

/// Who chooses the text of a value: who sends the request or names its sender, or the gateway and its operator.
const CLIENT: bool = true;
const GATEWAY: bool = false;

/// A row for each value: its variant, its name, who chooses its text, and what appends it.
macro_rules! log_values {
    (|$out:ident, $second:ident, $entry:ident, $escape:ident| $($value:ident $name:literal $by:ident $push:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        enum LogValue {
            $($value,)*
        }

        const NAMES: &[(&str, LogValue)] = &[$(($name, LogValue::$value),)*];

        impl LogValue {
            fn is_of_the_client(self) -> bool {
                match self {
                    $(LogValue::$value => $by,)*
                }
            }

            fn push(self, $out: &mut Vec<u8>, $second: &date::Text, $entry: &AccessEntry<'_>, $escape: Escape) {
                match self {
                    $(LogValue::$value => $push,)*
                }
            }
        }
    };
}

log_values! {
    |out, second, entry, escape|
    Time "time" GATEWAY date::push(out, second, entry.time);
    TimeLocal "time_local" GATEWAY date::push_common(out, second);
    Request "request" CLIENT push_request(out, entry, escape);
    RequestId "request_id" CLIENT push_text(out, entry.request_id, ID_BYTES_MAX, escape);
    TraceId "trace_id" GATEWAY push_some(out, entry.trace, |out, trace| out.extend_from_slice(&trace.digits));
    SpanId "span_id" GATEWAY push_some(out, entry.trace.and_then(|trace| trace.span_id), push_span_id);
    Node "node" GATEWAY push_name(out, entry.node, escape);
    Listener "listener" GATEWAY push_name(out, entry.listener, escape);
    Client "client" GATEWAY push_some(out, entry.client, push_address);
    Peer "peer" GATEWAY push_some(out, entry.other_end(), push_address);
    Protocol "protocol" GATEWAY push_name(out, entry.protocol, escape);
    Tls "tls" GATEWAY push_name(out, entry.tls, escape);
    Sni "sni" CLIENT push_text(out, entry.sni, NAME_BYTES_MAX, escape);
    Method "method" CLIENT push_text(out, entry.method, METHOD_BYTES_MAX, escape);
    Host "host" CLIENT push_text(out, entry.host, NAME_BYTES_MAX, escape);
    Path "path" CLIENT push_path(out, entry, escape);
    Route "route" GATEWAY push_name(out, entry.route, escape);
    Consumer "consumer" CLIENT push_name(out, entry.consumer, escape);
    Tenant "tenant" CLIENT push_name(out, entry.tenant, escape);
    Tier "tier" CLIENT push_name(out, entry.tier, escape);
    UserAgent "user_agent" CLIENT push_field(out, entry, &USER_AGENT, escape);
    Referer "referer" CLIENT push_field(out, entry, &REFERER, escape);
    Status "status" GATEWAY push_status(out, entry.status);
    GrpcStatus "grpc_status" GATEWAY push_some(out, entry.grpc_status.map(u64::from), push_digits);
    Reason "reason" GATEWAY push_name(out, entry.reason, escape);
    Cause "cause" GATEWAY push_name(out, entry.cause, escape);
    Decision "decision" GATEWAY push_name(out, entry.decision, escape);
    Decided "decided" GATEWAY push_name(out, entry.decided, escape);
    Policy "policy" GATEWAY push_name(out, entry.policy, escape);
    Limit "limit" GATEWAY push_some(out, entry.left.map(|left| left.limit), push_digits);
    Remaining "remaining" GATEWAY push_some(out, entry.left.map(|left| left.remaining), push_digits);
    Upstream "upstream" GATEWAY push_name(out, entry.upstream, escape);
    Server "server" GATEWAY push_name(out, entry.server, escape);
    Retries "retries" GATEWAY push_digits(out, u64::from(entry.retries));
    TotalUs "total_us" GATEWAY push_some(out, entry.total_us, push_digits);
    DecideUs "decide_us" GATEWAY push_some(out, entry.decide_us, push_digits);
    DelayUs "delay_us" GATEWAY push_some(out, entry.delay_us, push_digits);
    WaitUs "wait_us" GATEWAY push_some(out, entry.wait_us, push_digits);
    ConnectUs "connect_us" GATEWAY push_some(out, entry.connect_us, push_digits);
    FirstByteUs "first_byte_us" GATEWAY push_some(out, entry.first_byte_us, push_digits);
    BytesIn "bytes_in" GATEWAY push_digits(out, entry.bytes_in);
    BytesOut "bytes_out" GATEWAY push_digits(out, entry.bytes_out);
}

fn known() -> Vec<&'static str> {
    NAMES.iter().map(|(name, _)| *name).collect()
}

/// How a header field is named.
const HEADER: &str = "header:";

impl LogTemplate {
    /// Reads a format. `headers` are the fields that lines show.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn parse(text: &str, headers: &[HeaderName]) -> Result<LogTemplate, Error> {
        if text.contains(char::is_control) {
            return Err(Error::Control);
        }
        let mut parts = Vec::new();
        let mut is_quoted = false;
        for piece in braces::split(text)? {
            let escape = if is_quoted { Escape::Quoted } else { Escape::Bare };
            parts.push(match piece {
                BracePiece::Literal(literal) => {
                    is_quoted ^= literal.matches('"').count() % 2 == 1;
                    LogPart::Literal(literal.into_bytes().into())
                }
                BracePiece::Name { offset, name } => match name.strip_prefix(HEADER) {
                    Some(field) => LogPart::Header(shown(field, offset, headers)?, escape),
                    None => {
                        let found = NAMES.iter().find(|(known, _)| *known == name);
                        let unknown = || Error::Unknown { offset, name: name.to_owned() };
                        LogPart::Value(found.ok_or_else(unknown)?.1, escape)
                    }
                },
            });
        }
        if parts.iter().all(|part| matches!(part, LogPart::Literal(_))) {
            return Err(Error::Fixed);
        }
        if parts.iter().map(LogPart::bytes_max).sum::<usize>() >= LINE_BYTES_MAX {
            return Err(Error::TooLong);
        }
        Ok(LogTemplate { text: text.into(), separators: Separators::of(&parts), parts: parts.into() })
    }

    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn push(&self, out: &mut Vec<u8>, second: &date::Text, entry: &AccessEntry<'_>) {
        for part in &self.parts {
            let from = out.len();
            match part {
                LogPart::Literal(literal) => out.extend_from_slice(literal),
                LogPart::Value(name, escape) => name.push(out, second, entry, *escape),
                LogPart::Header(name, escape) => push_field(out, entry, name, *escape),
            }
            if part.is_open() {
                self.separators.escape(out, from);
            }
        }
    }
}

impl Separators {
    fn of(parts: &[LogPart]) -> Separators {
        let mut found = 0;
        for (index, _) in parts.iter().enumerate().filter(|(_, part)| part.is_open()) {
            // Both sides count, because who knows the format looks for what stands behind a value, and who splits
            // lines for marks on either side.
            let before = index.checked_sub(1).and_then(|index| parts[index].literal()?.last());
            let before = before.filter(|byte| !byte.is_ascii_alphanumeric());
            let behind = parts.get(index + 1).and_then(|part| part.literal()?.first());
            for byte in before.into_iter().chain(behind).filter(|byte| byte.is_ascii()) {
                found |= 1 << byte;
            }
        }
        Separators(found)
    }

    fn has(self, byte: u8) -> bool {
        byte.is_ascii() && self.0 >> byte & 1 == 1
    }

    /// Escapes them in the value that was appended since `from`, which has its other escapes already.
    fn escape(self, out: &mut Vec<u8>, from: usize) {
        if !out[from..].iter().any(|byte| self.has(*byte)) {
            return;
        }
        let value = out.split_off(from);
        let mut rest = &*value;
        while let Some((byte, behind)) = rest.split_first() {
            match rest.split_at_checked(ESCAPE_BYTES) {
                // Passed over whole, because a backslash begins nothing but an escape.
                Some((escaped, behind)) if *byte == b'\\' => {
                    out.extend_from_slice(escaped);
                    rest = behind;
                }
                _ => {
                    match self.has(*byte) {
                        true => out.extend_from_slice(&escape::hex(*byte)),
                        false => out.push(*byte),
                    }
                    rest = behind;
                }
            }
        }
    }
}

fn shown(field: &str, offset: usize, headers: &[HeaderName]) -> Result<HeaderName, Error> {
    let name = headers.iter().find(|name| name.as_str().eq_ignore_ascii_case(field));
    name.cloned().ok_or_else(|| Error::NotShown { offset, name: field.to_owned() })
}

impl LogPart {
    fn literal(&self) -> Option<&[u8]> {
        match self {
            LogPart::Literal(literal) => Some(literal),
            LogPart::Value(..) | LogPart::Header(..) => None,
        }
    }

    /// Whether it is a value that clients choose, and does not stand between quotes.
    fn is_open(&self) -> bool {
        match self {
            LogPart::Literal(_) => false,
            LogPart::Header(_, escape) => *escape == Escape::Bare,
            LogPart::Value(name, escape) => *escape == Escape::Bare && name.is_of_the_client(),
        }
    }

    /// The most that it adds to a line: four bytes for each that is escaped.
    fn bytes_max(&self) -> usize {
        let kept = match self {
            LogPart::Literal(literal) => return literal.len(),
            LogPart::Header(..) | LogPart::Value(LogValue::UserAgent | LogValue::Referer, _) => {
                FIELD_BYTES_MAX
            }
            LogPart::Value(LogValue::Path, _) => PATH_BYTES_MAX,
            LogPart::Value(LogValue::Request, _) => PATH_BYTES_MAX + METHOD_BYTES_MAX + 16,
            LogPart::Value(..) => NAME_BYTES_MAX,
        };
        4 * kept + 2 * CUT_BYTES_MAX
    }
}

/// Appends the first line of the request, as HTTP/1.1 writes it.
fn push_request(out: &mut Vec<u8>, entry: &AccessEntry<'_>, escape: Escape) {
    if entry.method.is_empty() {
        return out.push(b'-');
    }
    let blank: &[u8] = if escape == Escape::Bare { b"\\x20" } else { b" " };
    escape.push(out, entry.method, METHOD_BYTES_MAX);
    out.extend_from_slice(blank);
    target::push(out, entry, escape);
    out.extend_from_slice(blank);
    out.extend_from_slice(entry.protocol.as_bytes());
}

fn push_field(out: &mut Vec<u8>, entry: &AccessEntry<'_>, name: &HeaderName, escape: Escape) {
    let mut values = entry.fields.iter().zip(entry.values).filter(|(field, _)| field.name == *name);
    match values.next() {
        Some((field, Some(value))) if !value.is_empty() => {
            target::push_field(out, value.as_bytes(), field.is_url, entry.shown_query, escape)
        }
        _ => out.push(b'-'),
    }
}

fn push_name(out: &mut Vec<u8>, text: &str, escape: Escape) {
    push_text(out, text.as_bytes(), NAME_BYTES_MAX, escape);
}

fn push_text(out: &mut Vec<u8>, text: &[u8], bytes_max: usize, escape: Escape) {
    match text {
        [] => out.push(b'-'),
        text => escape.push(out, text, bytes_max),
    }
}

/// Appends a value, or a dash if there is none.
fn push_some<T>(out: &mut Vec<u8>, value: Option<T>, push: impl FnOnce(&mut Vec<u8>, T)) {
    match value {
        Some(value) => push(out, value),
        None => out.push(b'-'),
    }
}

fn push_span_id(out: &mut Vec<u8>, id: NonZeroU64) {
    out.extend_from_slice(&hex::digits(id.get()));
}

fn push_path(out: &mut Vec<u8>, entry: &AccessEntry<'_>, escape: Escape) {
    match entry.path {
        [] => out.push(b'-'),
        _ => target::push(out, entry, escape),
    }
}

/// Three digits, because readers of the Common Log Format expect them: `000` if no answer was sent.
fn push_status(out: &mut Vec<u8>, status: u16) {
    let mut digits = [b'0'; 3];
    date::put(&mut digits, u64::from(status));
    out.extend_from_slice(&digits);
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;
    use crate::record::format::LogFormat;
    use crate::record::format::formatter::Formatter;
    use crate::record::{AccessConfig, LoggedParts, RemainingLimit, Style};
    use crate::trace::TraceIds;

    fn line(text: &str, entry: &AccessEntry<'_>) -> String {
        let headers = [USER_AGENT, REFERER, HeaderName::from_static("x-plan")];
        let template = LogTemplate::parse(text, &headers).expect("a format");
        let mut out = Vec::new();
        let style = Style { format: LogFormat::Template(template), ..Style::default() };
        Formatter::new().push(&mut out, &style, entry);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn every_name_is_written_and_what_is_not_there_is_a_dash() {
        let all: Vec<String> = NAMES.iter().map(|(name, _)| format!("{{{name}}}")).collect();
        let empty = line(&all.join("|"), &AccessEntry::default());
        let shown: Vec<&str> = empty.trim_end().split('|').filter(|value| *value != "-").collect();
        let zeros = ["1970-01-01T00:00:00.000Z", "01/Jan/1970:00:00:00 +0000", "000", "0", "0", "0"];
        assert_eq!(shown, zeros);
        let entry = AccessEntry {
            trace: TraceIds::new(1, 2),
            left: Some(RemainingLimit { limit: 5, remaining: 4 }),
            node: "gw 1",
            ..AccessEntry::default()
        };
        let shown = line("{{{node}}} \"{node}\" {trace_id} {span_id} {remaining}/{limit}", &entry);
        assert_eq!(shown, format!("{{gw\\x201}} \"gw 1\" {:032x} {:016x} 4/5\n", 1, 2));
    }

    #[test]
    fn the_peer_is_shown_if_it_is_not_the_client() {
        let [client, proxy] = [[192, 0, 2, 1], [192, 0, 2, 2]].map(|address| Some(address.into()));
        let of = |peer| line("{client} {peer}", &AccessEntry { client, peer, ..AccessEntry::default() });
        assert_eq!([of(client), of(proxy)], ["192.0.2.1 -\n", "192.0.2.1 192.0.2.2\n"]);
    }

    #[test]
    fn a_field_is_shown_if_headers_names_it() {
        let headers = vec![HeaderName::from_static("x-plan")];
        let shown = LoggedParts::new(&AccessConfig { headers: headers.clone(), ..AccessConfig::default() });
        let values = [HeaderValue::from_static("a b").into()];
        let entry = AccessEntry { fields: &shown.fields, values: &values, ..AccessEntry::default() };
        assert_eq!(line("{header:X-Plan} {user_agent}", &entry), "a\\x20b -\n");
        let refused = |text: &str| LogTemplate::parse(text, &headers).expect_err("wrong");
        let text = "{client} {header:cookie}";
        assert_eq!(&text[refused(text).span(text)], "{header:cookie}");
        let text = "{client} {ip}";
        let unknown = refused(text);
        assert_eq!(&text[unknown.span(text)], "{ip}");
        assert!(unknown.to_string().contains("client, peer"), "{unknown}");
        assert_eq!(refused("a"), Error::Fixed);
        assert_eq!(refused("{client}\n{status}"), Error::Control);
        assert_eq!(refused(&"{path}".repeat(20)), Error::TooLong);
        assert!(matches!(refused("{client} {status"), Error::Brace(_)));
    }

    #[test]
    fn what_separates_values_is_in_none_of_them() {
        let shown = LoggedParts::new(&AccessConfig::default());
        let values = [HeaderValue::from_static("a|200,b;'[x]\" c").into(), None];
        let entry = AccessEntry {
            path: b"/a|b/c",
            method: b"GET",
            consumer: "ann-b",
            fields: &shown.fields,
            values: &values,
            status: 200,
            left: Some(RemainingLimit { limit: 5, remaining: 4 }),
            ..AccessEntry::default()
        };
        let user_agent = |separators: [&str; 2]| {
            let [before, behind] = separators;
            line(&format!("{{status}}{before}{{user_agent}}{behind}{{status}}"), &entry)
        };
        assert_eq!(user_agent(["|", "|"]), "200|a\\x7C200,b;'[x]\\x22\\x20c|200\n");
        assert_eq!(user_agent([", ", ","]), "200, a|200\\x2Cb;'[x]\\x22\\x20c,200\n");
        assert_eq!(user_agent([" '", "' "]), "200 'a|200,b;\\x27[x]\\x22\\x20c' 200\n");
        assert_eq!(user_agent([" [", "] "]), "200 [a|200,b;'\\x5Bx\\x5D\\x22\\x20c] 200\n");
        assert_eq!(user_agent([" \"", "\"|"]), "200 \"a|200,b;'[x]\\x22 c\"|200\n");
        assert_eq!(user_agent(["ua", "x2"]), "200uaa|200,b;'[\\x78]\\x22\\x20cx2200\n");
        // A separator is one in every value, not only in that which it stands beside.
        assert_eq!(line("{path} {consumer}|{status}", &entry), "/a\\x7Cb/c ann-b|200\n");
        assert_eq!(line("{path}|{sni}|{status}", &entry), "/a\\x7Cb/c|-|200\n");
        // What stands only between values that no client chooses separates none of a client's.
        assert_eq!(line("{path} - {remaining}/{limit}", &entry), "/a|b/c - 4/5\n");
    }

    proptest! {
        #[test]
        fn no_bytes_forge_a_field_between_any_separators(
            agent in "[ -~]{1,60}",
            separator in "[!-.:-@^_`|~]{1,3}",
        ) {
            let shown = LoggedParts::new(&AccessConfig::default());
            let values = [HeaderValue::from_str(&agent).ok(), None];
            let entry = AccessEntry {
                path: agent.as_bytes(),
                fields: &shown.fields,
                values: &values,
                status: 200,
                ..AccessEntry::default()
            };
            let text = separator.replace('"', "|");
            let line = line(&format!("{{status}}{text}{{user_agent}}{text}{{path}}{text}{{status}}"), &entry);
            prop_assert_eq!(line.trim_end_matches('\n').split(&text).count(), 4, "{}", line);
        }

        #[test]
        fn no_bytes_forge_a_field(
            path in prop::collection::vec(any::<u8>(), 1..3_000),
            query in prop::option::of(prop::collection::vec(any::<u8>(), 0..3_000)),
            consumer in "(?s).{0,40}",
            agent in prop::collection::vec(prop_oneof![32u8..127, 128u8..=255], 0..700),
        ) {
            let shown = LoggedParts::new(&AccessConfig::default());
            let values = [HeaderValue::from_bytes(&agent).ok(), None];
            let entry = AccessEntry {
                method: b"GET",
                path: &path,
                query: query.as_deref(),
                consumer: &consumer,
                fields: &shown.fields,
                values: &values,
                ..AccessEntry::default()
            };
            let line = line("{consumer} {path} \"{request}\" \"{user_agent}\" {user_agent}", &entry);
            prop_assert!(line.len() <= LINE_BYTES_MAX);
            let line = line.strip_suffix('\n').expect("a line ends");
            prop_assert!(line.bytes().all(|byte| matches!(byte, b' '..=b'~')));
            let quoted: Vec<&str> = line.split('"').collect();
            prop_assert_eq!(quoted.len(), 5, "{}", line);
            prop_assert_eq!(quoted[0].split(' ').count(), 3, "{}", line);
            prop_assert_eq!(quoted[4].split(' ').count(), 2, "{}", line);
        }
    }
}
