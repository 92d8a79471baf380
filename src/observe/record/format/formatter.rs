//! Writes an [`AccessEntry`] in the form that is asked for.

use std::sync::LazyLock;

use super::names::{EcsNames, OwnNames};
use super::template::LogTemplate;
use super::{LogFormat, date, json};
use crate::record::{AccessEntry, Style};

pub(in crate::record) use super::bounds::LINE_BYTES_MAX;

/// Writes lines, and keeps the text of the current second between them, so that the date is written once a second.
#[derive(Debug)]
pub(in crate::record) struct Formatter {
    unix_seconds: u64,
    date: date::Text,
}

impl Formatter {
    pub(in crate::record) fn new() -> Formatter {
        Formatter { unix_seconds: 0, date: date::text(0) }
    }

    /// Appends one line with its line feed, and as a message with its header: at most [`LINE_BYTES_MAX`] bytes.
    pub(in crate::record) fn push(&mut self, out: &mut Vec<u8>, style: &Style, entry: &AccessEntry<'_>) {
        let seconds = entry.time.as_secs();
        if seconds != self.unix_seconds {
            *self = Formatter { unix_seconds: seconds, date: date::text(seconds) };
        }
        if let Some(header) = &style.header {
            header.push(out, &self.date, entry.time);
        }
        self.push_line(out, &style.format, entry);
        out.push(b'\n');
    }

    fn push_line(&self, out: &mut Vec<u8>, format: &LogFormat, entry: &AccessEntry<'_>) {
        match format {
            LogFormat::Json => json::push::<OwnNames>(out, &self.date, entry),
            LogFormat::Ecs => json::push::<EcsNames>(out, &self.date, entry),
            LogFormat::Common => COMMON.push(out, &self.date, entry),
            LogFormat::Combined => COMBINED.push(out, &self.date, entry),
            LogFormat::Template(template) => template.push(out, &self.date, entry),
        }
    }
}

/// The formats whose layout others read as it is.
static COMMON: LazyLock<LogTemplate> = LazyLock::new(|| known(COMMON_TEXT));
static COMBINED: LazyLock<LogTemplate> = LazyLock::new(|| known(COMBINED_TEXT));

fn known(text: &str) -> LogTemplate {
    LogTemplate::parse(text, &[]).expect("a test reads both")
}

const COMMON_TEXT: &str = "{client} - {consumer} [{time_local}] \"{request}\" {status} {bytes_out}";
const COMBINED_TEXT: &str = "{client} - {consumer} [{time_local}] \"{request}\" {status} {bytes_out} \
                             \"{referer}\" \"{user_agent}\"";

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use http::HeaderValue;

    use super::*;
    use crate::record::syslog::SyslogAddress;
    use crate::record::{AccessConfig, LoggedParts, QueryDetail, Sink, Syslog};

    fn line(format: &LogFormat, entry: &AccessEntry<'_>) -> String {
        let mut out = Vec::new();
        let style = Style { format: format.clone(), ..Style::default() };
        Formatter::new().push(&mut out, &style, entry);
        String::from_utf8(out).expect("a line is text")
    }

    #[test]
    fn combined_is_what_nginx_writes() {
        let shown = LoggedParts::new(&AccessConfig::default());
        let values = ["curl/8.14 \"x\" \\", "https://a.example/b"];
        let values = values.map(|text| HeaderValue::from_str(text).ok());
        let entry = AccessEntry {
            time: Duration::from_millis(1_709_164_800_007),
            client: Some([192, 0, 2, 1].into()),
            consumer: "ann b",
            method: b"GET",
            path: b"/a\"b\\c\x7f",
            query: Some("d=é".as_bytes()),
            shown_query: QueryDetail::Keep,
            protocol: "HTTP/2.0",
            status: 200,
            bytes_out: 5,
            fields: &shown.fields,
            values: &values,
            ..AccessEntry::default()
        };
        let common = r#"192.0.2.1 - ann\x20b [29/Feb/2024:00:00:00 +0000] "GET /a\x22b\x5Cc\x7F?d=\xC3\xA9 HTTP/2.0" 200 5"#;
        assert_eq!(line(&LogFormat::Common, &entry), format!("{common}\n"));
        let combined = format!("{common} \"https://a.example/b\" \"curl/8.14 \\x22x\\x22 \\x5C\"\n");
        assert_eq!(line(&LogFormat::Combined, &entry), combined);
        assert_eq!(
            line(&LogFormat::Combined, &AccessEntry::default()),
            "- - - [01/Jan/1970:00:00:00 +0000] \"-\" 000 0 \"-\" \"-\"\n"
        );
    }

    #[test]
    fn a_message_has_a_header_and_the_line_behind_it() {
        let to = Sink::Syslog(Syslog::new(SyslogAddress::Unix("/dev/log".into())));
        let style =
            Style::new(&AccessConfig { to, format: LogFormat::Common, ..AccessConfig::default() }, "gw-1");
        let mut out = Vec::new();
        let entry = AccessEntry { time: Duration::from_millis(1_709_164_800_007), ..AccessEntry::default() };
        Formatter::new().push(&mut out, &style, &entry);
        let line = format!(
            "<134>1 2024-02-29T00:00:00.007Z gw-1 sluicegate {} access - - - - [29/Feb/2024:00:00:00 +0000] \"-\" 000 0\n",
            std::process::id()
        );
        assert_eq!(String::from_utf8_lossy(&out), line);
    }

    #[test]
    fn the_second_is_kept_and_renewed() {
        let mut formatter = Formatter::new();
        let mut times = Vec::new();
        for millis in [999, 1_000, 1_001, 999] {
            let mut out = Vec::new();
            let entry = AccessEntry { time: Duration::from_millis(millis), ..AccessEntry::default() };
            formatter.push(&mut out, &Style::default(), &entry);
            times.push(String::from_utf8_lossy(&out[26..32]).into_owned());
        }
        assert_eq!(times, ["00.999", "01.000", "01.001", "00.999"]);
    }
}
