//! The formats of access logs that are read, one a file. A reader takes one line and keeps nothing.

pub mod common;
pub mod envoy;
pub mod own;
mod text;
pub mod time;

use super::request::{Line, NoLine};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The gateway's own: a JSON object a line.
    Own,
    /// The Common Log Format, with or without what Combined and nginx's default add to it.
    Common,
    Envoy,
}

impl Format {
    pub const ALL: [Format; 3] = [Format::Own, Format::Common, Format::Envoy];

    /// Its name on the command line.
    pub fn word(self) -> &'static str {
        match self {
            Format::Own => "sluicegate",
            Format::Common => "common",
            Format::Envoy => "envoy",
        }
    }

    /// Reads one line, without its line feed.
    ///
    /// # Errors
    /// If it is none of this format.
    pub fn read(self, line: &[u8]) -> Result<Line, NoLine> {
        match self {
            Format::Own => own::read(line),
            Format::Common => common::read(line),
            Format::Envoy => envoy::read(line),
        }
    }

    /// The format that most of these lines have; `None` if none of them has any.
    pub fn of<'l>(lines: impl Iterator<Item = &'l [u8]> + Clone) -> Option<Format> {
        let fits = |format: Format| lines.clone().filter(|line| format.read(line).is_ok()).count();
        let counted = Format::ALL.into_iter().map(|format| (fits(format), format));
        // Of two alike the first, because no line has two formats.
        let best = counted.rev().max_by_key(|(count, _)| *count)?;
        (best.0 > 0).then_some(best.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_that_of_most_of_the_first_lines() {
        let own = br#"{"time":"2026-11-20T10:00:00.000Z","method":"GET","path":"/","status":200}"#;
        let common = br#"192.0.2.1 - - [20/Nov/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
        let envoy = br#"[2026-11-20T10:00:00.000Z] "GET / HTTP/1.1" 200 - 0 5 1 - "-" "-" "-" "-" "-""#;
        for (format, line) in Format::ALL.into_iter().zip([&own[..], common, envoy]) {
            let lines: [&[u8]; 3] = [b"no line at all", line, b""];
            assert_eq!(Format::of(lines.into_iter()), Some(format));
            assert_eq!(Format::ALL.into_iter().filter(|format| format.read(line).is_ok()).count(), 1);
        }
        let mixed: [&[u8]; 3] = [own, common, common];
        assert_eq!(Format::of(mixed.into_iter()), Some(Format::Common));
        assert_eq!(Format::of([&b"nothing"[..]].into_iter()), None);
    }
}
