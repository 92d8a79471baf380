//! Values of HAProxy: formats, times.

use std::time::Duration;

use super::super::template;

/// A format of a log line, as values of fields are written: `%[src]` and the like.
pub(super) fn format(text: &str) -> Option<String> {
    let mut template = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('%') {
        template.push_str(&template::literal(&rest[..at]));
        let behind = &rest[at + 1..];
        if let Some(escaped) = behind.strip_prefix('%') {
            template.push('%');
            rest = escaped;
            continue;
        }
        let (inside, after) = behind.strip_prefix('[')?.split_once(']')?;
        template.push_str(match inside {
            "src" => "{ip}",
            "method" => "{method}",
            "path" => "{path}",
            "query" => "{query}",
            "req.hdr(host),field(1,:)" | "req.hdr(Host),field(1,:)" | "hdr(host),field(1,:)" => "{host}",
            "unique-id" => "{request_id}",
            _ => return None,
        });
        rest = after;
    }
    template.push_str(&template::literal(rest));
    Some(template)
}

/// A time: milliseconds unless a unit stands behind it.
pub(super) fn time(text: &str) -> Option<Duration> {
    let digits = text.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let micros = match &text[digits..] {
        "us" => 1,
        "" | "ms" => 1_000,
        "s" => 1_000_000,
        "m" => 60_000_000,
        "h" => 3_600_000_000,
        "d" => 86_400_000_000,
        _ => return None,
    };
    let time = Duration::from_micros(number.checked_mul(micros)?);
    (time >= Duration::from_millis(1)).then_some(time)
}
