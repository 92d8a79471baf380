//! The process's own log, on standard error: one line an event. What a value holds that others wrote (an authority, a name
//! server, a client) begins no line of its own and steers no terminal. Secrets of the configuration are masked. The access
//! log goes through `record`.

use std::fmt::{self, Debug, Write};
use std::io::{self, IsTerminal};

use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::layer::SubscriberExt;

use base::words;
use observe::record::{self, process};

/// Starts it for the whole process.
///
/// # Errors
/// If its writer cannot be started.
pub(super) fn start(level: &str) -> Result<(), record::Error> {
    process::start()?;
    // Two crates log errors alone, because h2 warns about every misbehaving client, and hickory_net about every answer
    // of DNS that is forged: strangers could flood the log. The access log, and the lines about names that do not
    // resolve, have those events in bounded form; an operator who wants the warnings names the crate in `log.level`,
    // which overrides this.
    let level = format!("h2=error,hickory_net=error,{level}");
    let filter =
        config::log_filter(&level).unwrap_or_else(|_| Targets::new().with_default(LevelFilter::INFO));
    let ansi = std::io::stderr().is_terminal();
    // Ignored, because another one is there already only in a process that is no gateway.
    let _ = tracing::subscriber::set_global_default(log(filter, ansi, || Lines));
    Ok(())
}

fn log(
    filter: Targets,
    ansi: bool,
    writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static,
) -> impl tracing::Subscriber + Send + Sync {
    // Errors are not logged, because a line that cannot be written would be reported by a macro that panics then.
    let lines = tracing_subscriber::fmt::layer().log_internal_errors(false);
    let lines = lines.with_ansi(ansi).with_writer(writer);
    let lines = lines.fmt_fields(format::debug_fn(field).delimited(" "));
    // They have no level of their own: the greatest of both would be asked for at every event of every crate.
    tracing_subscriber::registry().with(lines).with(filter)
}

/// Whole lines, for the writer of the process log.
struct Lines;

impl io::Write for Lines {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        process::write(lines);
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes one field. The library writes them in the same form, and lets line breaks through.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    // A message keeps its lines, because only the text of a report has any, which escapes what it quotes.
    let has_lines = field.name() == "message";
    let name = field.name().trim_start_matches("r#");
    match writer.has_ansi_escapes() {
        _ if has_lines => {}
        true => write!(writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m")?,
        false => write!(writer, "{name}=")?,
    }
    let text = config::hidden(&format!("{value:?}"));
    let mut escaped = EscapedWriter { writer, has_lines };
    // Otherwise it is not seen where a value ends and the next field begins.
    match !has_lines && text.contains(char::is_whitespace) && !is_quoted(&text) {
        true => write!(escaped, "\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")),
        false => escaped.write_str(&text),
    }
}

/// Whether it is one string in quotes, as `Debug` writes it.
fn is_quoted(text: &str) -> bool {
    let inner = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    inner.is_some_and(|inner| {
        let mut is_escaped = false;
        inner.chars().all(|one| {
            let is_end = one == '"' && !is_escaped;
            is_escaped = one == '\\' && !is_escaped;
            !is_end
        }) && !is_escaped
    })
}

struct EscapedWriter<'a, 'w> {
    writer: &'a mut Writer<'w>,
    /// It may have several lines.
    has_lines: bool,
}

impl EscapedWriter<'_, '_> {
    fn is_harmful(&self, character: char) -> bool {
        match character {
            '\n' | '\t' => !self.has_lines,
            _ => words::steers(character),
        }
    }
}

impl Write for EscapedWriter<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|character| self.is_harmful(character)) {
            let (before, after) = rest.split_at(at);
            let mut characters = after.chars();
            self.writer.write_str(before)?;
            for harmful in characters.next().into_iter().flat_map(char::escape_default) {
                self.writer.write_char(harmful)?;
            }
            rest = characters.as_str();
        }
        self.writer.write_str(rest)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl io::Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("nobody fails").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(ansi: bool, tell: impl FnOnce()) -> String {
        let kept = LogBuffer::default();
        let writer = kept.clone();
        tracing::subscriber::with_default(
            log(Targets::new().with_default(LevelFilter::INFO), ansi, move || writer.clone()),
            tell,
        );
        let bytes = kept.0.lock().expect("nobody fails").clone();
        String::from_utf8(bytes).expect("text")
    }

    #[test]
    fn events_below_every_level_are_told_apart_before_they_are_made() {
        let filter = Targets::new().with_target("gateway::proxy", LevelFilter::DEBUG);
        let log = log(filter.with_default(LevelFilter::INFO), false, io::sink);
        assert_eq!(tracing::Subscriber::max_level_hint(&log), Some(LevelFilter::DEBUG));
    }

    #[test]
    fn no_value_begins_a_line_or_steers_a_terminal() {
        let forged = "slow\n2026-01-01T00:00:00.000000Z  INFO forged\x1b[31m\r\u{9b}2J\u{2028}";
        let shown = r"slow\n2026-01-01T00:00:00.000000Z  INFO forged\u{1b}[31m\r\u{9b}2J\u{2028}";
        let error = io::Error::other(forged);
        let line =
            logged(false, || tracing::error!(name = %"a", %error, count = 3, quoted = "b\n", "it failed"));
        assert!(
            line.ends_with(&format!("it failed name=a error=\"{shown}\" count=3 quoted=\"b\\n\"\n")),
            "{line}"
        );
        assert_eq!(line.lines().count(), 1);
        let line = logged(true, || tracing::error!(%error, "it failed"));
        assert!(
            line.ends_with(&format!("it failed \x1b[3merror\x1b[0m\x1b[2m=\x1b[0m\"{shown}\"\n")),
            "{line}"
        );
    }

    #[test]
    fn values_with_blanks_are_quoted_once() {
        let why = io::Error::other("no connection: \"a\" refused");
        let line = logged(false, || tracing::info!(%why, own = "b c", one = %"d", "it is down"));
        let expected = r#"it is down why="no connection: \"a\" refused" own="b c" one=d"#;
        assert!(line.trim_end().ends_with(expected), "{line}");
        let line = logged(false, || tracing::info!(why = %r#""a" is not "b""#, "it is down"));
        assert!(line.trim_end().ends_with(r#"why="\"a\" is not \"b\"""#), "{line}");
    }

    #[test]
    fn a_report_keeps_its_lines_and_nothing_else() {
        let line = logged(false, || tracing::error!("not reloaded: {}", "a\n\tb\x1b[31m"));
        assert!(line.ends_with("not reloaded: a\n\tb\\u{1b}[31m\n"), "{line}");
    }
}
