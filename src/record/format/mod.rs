//! The forms of a line: JSON under names of this gateway's own or of the Elastic Common Schema, or a text by a template, of
//! which the Common and the Combined Log Format are two. `json.rs` and `template.rs` write, into memory that is there
//! already.

mod date;
mod escape;
mod json;
mod names;
mod target;
mod template;
mod value;

use std::sync::LazyLock;

pub use target::PATH_BYTES_MAX;
pub use template::{Error, Template};

use super::Entry;
use names::{Ecs, Own};

/// The form of the lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// JSON under the names of this gateway.
    #[default]
    Json,
    /// JSON under the names of the Elastic Common Schema.
    Ecs,
    /// The Common Log Format.
    Common,
    /// The Combined Log Format, as nginx writes it.
    Combined,
    /// A text of the operator's own.
    Template(Template),
}

/// Writes lines, and keeps the text of the current second between them, which saves writing the date again.
#[derive(Debug)]
pub(super) struct Formatter {
    unix_seconds: u64,
    date: date::Text,
}

impl Formatter {
    pub(super) fn new() -> Formatter {
        Formatter { unix_seconds: 0, date: date::text(0) }
    }

    /// Appends one line with its line feed: at most [`LINE_BYTES_MAX`] bytes.
    pub(super) fn push(&mut self, out: &mut Vec<u8>, format: &Format, entry: &Entry<'_>) {
        let seconds = entry.time.as_secs();
        if seconds != self.unix_seconds {
            *self = Formatter { unix_seconds: seconds, date: date::text(seconds) };
        }
        match format {
            Format::Json => json::push::<Own>(out, &self.date, entry),
            Format::Ecs => json::push::<Ecs>(out, &self.date, entry),
            Format::Common => COMMON.push(out, &self.date, entry),
            Format::Combined => COMBINED.push(out, &self.date, entry),
            Format::Template(template) => template.push(out, &self.date, entry),
        }
        out.push(b'\n');
    }
}

/// The formats whose layout others read as it is.
static COMMON: LazyLock<Template> = LazyLock::new(|| known(COMMON_TEXT));
static COMBINED: LazyLock<Template> = LazyLock::new(|| known(COMBINED_TEXT));

fn known(text: &str) -> Template {
    Template::parse(text, &[]).expect("a test reads both")
}

const COMMON_TEXT: &str = "{client} - {consumer} [{time_local}] \"{request}\" {status} {bytes_out}";
const COMBINED_TEXT: &str = "{client} - {consumer} [{time_local}] \"{request}\" {status} {bytes_out} \
                             \"{referer}\" \"{user_agent}\"";

/// The longest possible line: six times the bytes kept of each text, and room for everything else.
pub(super) const LINE_BYTES_MAX: usize = json::LINE_BYTES_MAX;

/// Bytes kept of a host or of any name.
const NAME_BYTES_MAX: usize = 256;
/// Bytes kept of a request id.
const ID_BYTES_MAX: usize = 128;
/// Bytes kept of a method.
const METHOD_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::record::{AccessConfig, Query, Shown};

    fn line(format: &Format, entry: &Entry<'_>) -> String {
        let mut out = Vec::new();
        Formatter::new().push(&mut out, format, entry);
        String::from_utf8(out).expect("a line is text")
    }

    #[test]
    fn combined_is_what_nginx_writes() {
        let shown = Shown::new(&AccessConfig::default());
        let values = ["curl/8.14 \"x\" \\", "https://a.example/b"];
        let values = values.map(|text| HeaderValue::from_str(text).ok());
        let entry = Entry {
            time: Duration::from_millis(1_709_164_800_007),
            client: Some([192, 0, 2, 1].into()),
            consumer: "ann b",
            method: b"GET",
            path: b"/a\"b\\c\x7f",
            query: Some("d=é".as_bytes()),
            shown_query: Query::Keep,
            protocol: "HTTP/2.0",
            status: 200,
            bytes_out: 5,
            fields: &shown.fields,
            values: &values,
            ..Entry::default()
        };
        let common = r#"192.0.2.1 - ann\x20b [29/Feb/2024:00:00:00 +0000] "GET /a\x22b\x5Cc\x7F?d=\xC3\xA9 HTTP/2.0" 200 5"#;
        assert_eq!(line(&Format::Common, &entry), format!("{common}\n"));
        let combined = format!("{common} \"https://a.example/b\" \"curl/8.14 \\x22x\\x22 \\x5C\"\n");
        assert_eq!(line(&Format::Combined, &entry), combined);
        assert_eq!(
            line(&Format::Combined, &Entry::default()),
            "- - - [01/Jan/1970:00:00:00 +0000] \"-\" 000 0 \"-\" \"-\"\n"
        );
    }

    #[test]
    fn the_second_is_kept_and_renewed() {
        let mut formatter = Formatter::new();
        let mut times = Vec::new();
        for millis in [999, 1_000, 1_001, 999] {
            let mut out = Vec::new();
            let entry = Entry { time: Duration::from_millis(millis), ..Entry::default() };
            formatter.push(&mut out, &Format::Json, &entry);
            times.push(String::from_utf8_lossy(&out[26..32]).into_owned());
        }
        assert_eq!(times, ["00.999", "01.000", "01.001", "00.999"]);
    }
}
