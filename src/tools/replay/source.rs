//! The bytes of a log as lines: a file, or standard input; plain, gzip or zstd by its first bytes, whatever its name.
//!
//! A line that is too long is skipped and not kept; empty ones are passed over without looking at each. A compressed file that ends early gives the lines before its end.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::bufread::MultiGzDecoder;

use super::request::LINE_BYTES_MAX;

pub struct Source {
    name: String,
    reader: Box<dyn BufRead>,
    line: Vec<u8>,
    /// The number of the present line, from 1 on; empty ones count.
    number: u64,
    ended_early: Option<String>,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Text<'s> {
    /// Its bytes, without the line feed.
    Line(&'s [u8]),
    /// It is longer than [`LINE_BYTES_MAX`].
    Long,
}

/// A log that cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {name}")]
pub struct Unreadable {
    name: String,
    #[source]
    error: io::Error,
}

impl Source {
    /// Opens a log; `-` is standard input.
    ///
    /// # Errors
    /// If it cannot be read at all, or is a directory.
    pub fn open(path: &Path) -> Result<Source, Unreadable> {
        let name = if path == Path::new("-") { PathBuf::from("standard input") } else { path.to_owned() };
        let name = name.display().to_string();
        let opened = || -> io::Result<Source> {
            if path == Path::new("-") {
                return Source::of(name.clone(), Box::new(io::stdin()));
            }
            let file = File::open(path)?;
            if file.metadata()?.is_dir() {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Source::of(name.clone(), Box::new(file))
        };
        opened().map_err(|error| Unreadable { name: name.clone(), error })
    }

    /// A log that comes from a reader.
    ///
    /// # Errors
    /// If its first bytes cannot be read.
    pub fn of(name: String, reader: Box<dyn Read>) -> io::Result<Source> {
        let mut reader = BufReader::with_capacity(BUFFER_BYTES, reader);
        // One read is enough, because no program writes a magic number in two pieces, though a pipe may give few bytes.
        let head = reader.fill_buf()?;
        let reader: Box<dyn BufRead> = if head.starts_with(&GZIP) {
            Box::new(BufReader::with_capacity(BUFFER_BYTES, MultiGzDecoder::new(reader)))
        } else if head.starts_with(&ZSTD) {
            let decoder = zstd::Decoder::with_buffer(reader)?;
            Box::new(BufReader::with_capacity(BUFFER_BYTES, decoder))
        } else {
            Box::new(reader)
        };
        Ok(Source { name, reader, line: Vec::new(), number: 0, ended_early: None })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Why the log ended before its end, if it did.
    pub fn ended_early(&self) -> Option<&str> {
        self.ended_early.as_deref()
    }

    /// The number of the line that was read last, from 1 on; empty ones count.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// The next line that is not empty; `None` at the end.
    pub fn line(&mut self) -> Option<Text<'_>> {
        while self.ended_early.is_none() {
            self.line.clear();
            match self.fill() {
                Ok(FillResult::End) => return None,
                Ok(FillResult::Line) => {
                    let is_marked = self.number == 1 && self.line.starts_with(&BYTE_ORDER_MARK);
                    let begin = if is_marked { BYTE_ORDER_MARK.len() } else { 0 };
                    let line = self.line.strip_suffix(b"\n").unwrap_or(&self.line);
                    let end = line.strip_suffix(b"\r").unwrap_or(line).len();
                    if begin < end {
                        return Some(Text::Line(&self.line[begin..end]));
                    }
                }
                Ok(FillResult::Long) => return Some(Text::Long),
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    self.ended_early = Some("the compressed file is cut off".to_owned());
                }
                Err(error) => self.ended_early = Some(error.to_string()),
            }
        }
        None
    }

    fn fill(&mut self) -> io::Result<FillResult> {
        self.skip_empty()?;
        self.number += 1;
        let mut limited = (&mut self.reader).take(LINE_BYTES_MAX as u64 + 2);
        if limited.read_until(b'\n', &mut self.line)? == 0 {
            return Ok(FillResult::End);
        }
        if self.line.len() <= LINE_BYTES_MAX || self.line.ends_with(b"\n") {
            return Ok(FillResult::Line);
        }
        self.line.clear();
        self.reader.skip_until(b'\n')?;
        Ok(FillResult::Long)
    }

    /// Passes over empty lines at once, because a few kilobytes can unpack to hundreds of millions of them.
    fn skip_empty(&mut self) -> io::Result<()> {
        loop {
            let bytes = self.reader.fill_buf()?;
            let mut at = 0;
            while let Some(length) = match &bytes[at..] {
                [b'\n', ..] => Some(1),
                [b'\r', b'\n', ..] => Some(2),
                _ => None,
            } {
                at += length;
                self.number += 1;
            }
            self.reader.consume(at);
            if at == 0 {
                return Ok(());
            }
        }
    }
}

enum FillResult {
    Line,
    Long,
    End,
}

const BUFFER_BYTES: usize = 256 * 1024;
/// What some editors write before UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];
/// The first bytes of a gzip file (RFC 1952 section 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// The first bytes of a zstd frame (RFC 8878 section 3.1.1).
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    fn lines(bytes: &[u8]) -> (Vec<String>, Option<String>) {
        let mut source = Source::of("test".to_owned(), Box::new(io::Cursor::new(bytes.to_vec())))
            .expect("the first bytes are there");
        let mut lines = Vec::new();
        while let Some(text) = source.line() {
            lines.push(match text {
                Text::Line(line) => String::from_utf8_lossy(line).into_owned(),
                Text::Long => "LONG".to_owned(),
            });
        }
        (lines, source.ended_early().map(str::to_owned))
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("memory takes it");
        encoder.finish().expect("memory takes it")
    }

    #[test]
    fn compression_is_told_by_the_bytes() {
        let text = b"one\r\ntwo\n\nfour";
        let expected = (["one", "two", "four"].map(str::to_owned).to_vec(), None);
        let zstd = zstd::encode_all(&text[..], 3).expect("memory takes it");
        let members = [gzip(&text[..5]), gzip(&text[5..])].concat();
        let frames = [
            zstd::encode_all(&text[..5], 3).expect("memory takes it"),
            zstd::encode_all(&text[5..], 3).expect("memory takes it"),
        ];
        for bytes in [text.to_vec(), gzip(text), zstd, members, frames.concat()] {
            assert_eq!(lines(&bytes), expected);
        }
        assert_eq!(lines(b""), (Vec::new(), None));
        let marked = lines("\u{feff}one\n\u{feff}two".as_bytes());
        assert_eq!(marked.0, ["one", "\u{feff}two"]);
    }

    #[test]
    fn empty_lines_only_count() {
        let empty = [&b"\n"[..], b"\r\n", b"\n\r\n\n"].map(|lines| lines.repeat(200_001)).concat();
        for bytes in [[&empty[..], b"a\n\r\r\n"].concat(), gzip(&[&empty[..], b"a\n\n\n"].concat())] {
            let mut source = Source::of("test".to_owned(), Box::new(io::Cursor::new(bytes))).expect("bytes");
            assert_eq!(source.line(), Some(Text::Line(b"a")));
            assert_eq!(source.number(), 5 * 200_001 + 1);
            assert!(source.line().is_none_or(|line| line == Text::Line(b"\r")));
        }
    }

    #[test]
    fn what_is_cut_gives_the_lines_before() {
        let text = (0..20_000).map(|number| format!("line {}\n", number * 7919)).collect::<String>();
        for whole in [gzip(text.as_bytes()), zstd::encode_all(text.as_bytes(), 3).expect("memory takes it")] {
            assert_eq!(lines(&whole).0.len(), 20_000);
            let (kept, ended_early) = lines(&whole[..whole.len() - 10]);
            assert_eq!(ended_early.as_deref(), Some("the compressed file is cut off"));
            assert!(kept.len() < 20_000, "{}", kept.len());
            assert!(kept.iter().zip(text.lines()).all(|(kept, line)| kept == line));
        }
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped() {
        let longest = "a".repeat(LINE_BYTES_MAX);
        let text = format!("one\n{longest}\n{longest}aa\nthree\n{longest}aaa");
        let shown = ["one", &longest, "LONG", "three", "LONG"].map(str::to_owned);
        assert_eq!(lines(text.as_bytes()), (shown.to_vec(), None));
    }

    #[test]
    fn a_directory_and_nothing_are_no_logs() {
        assert!(Source::open(Path::new("/")).is_err());
        assert!(Source::open(Path::new("/nowhere/access.log")).is_err());
    }
}
