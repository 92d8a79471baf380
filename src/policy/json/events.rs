//! An event stream on its way (`text/event-stream`, as the HTML standard has it): the data of each event is a document. No
//! event is gathered: lines of data go to the scanner as they come, and a blank line ends the document.

use std::sync::Arc;

use memchr::memchr2;
use memchr::memmem::{self, Finder};
use smallvec::SmallVec;

use super::path::JsonPath;
use super::scanner::{JsonValue, Scanner};

/// An event stream whose data a scanner reads.
#[derive(Clone, Debug)]
pub(super) struct EventScanner {
    scanner: Scanner,
    line: EventLine,
    /// The last byte ended a line, and a line feed behind it would be the second half of that end.
    is_behind_return: bool,
    glance: Option<EventFilter>,
}

/// Tells from an event as a whole that nothing is to be found in it, as in most events of a stream.
#[derive(Clone, Debug)]
struct EventFilter {
    /// For each path its last name.
    names: SmallVec<[Finder<'static>; 1]>,
}

#[derive(Clone, Copy, Debug)]
enum EventLine {
    /// At the beginning of the stream, behind so many bytes of a byte order mark.
    Mark(usize),
    /// Behind so many bytes of the name `data`, and nothing else.
    Name(usize),
    /// Behind the colon: one space does not count.
    Colon,
    Data,
    /// In another field, or a comment.
    Other,
}

impl EventScanner {
    pub(super) fn new(paths: &Arc<[JsonPath]>) -> EventScanner {
        let scanner = Scanner::new(Arc::clone(paths));
        EventScanner {
            scanner,
            line: EventLine::Mark(0),
            is_behind_return: false,
            glance: EventFilter::of(paths),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8], mut found: impl FnMut(usize, JsonValue<'_>)) {
        let mut at = 0;
        while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
            if std::mem::take(&mut self.is_behind_return) && rest[0] == b'\n' {
                at += 1;
                continue;
            }
            at += match self.line {
                EventLine::Name(0) if let Some(skipped) = self.skip_event(rest) => skipped,
                EventLine::Data | EventLine::Other => self.read_content(rest, &mut found),
                _ => self.read_begin(rest[0]),
            };
        }
    }

    /// The length of an event that begins here, is here to its end, and has nothing that is looked for.
    fn skip_event(&self, rest: &[u8]) -> Option<usize> {
        let glance =
            self.glance.as_ref().filter(|_| self.scanner.is_fresh() && rest.starts_with(b"data:"))?;
        let length = memchr2(b'\n', b'\r', rest)?;
        let end = END_OF_EVENT.iter().find(|end| rest[length..].starts_with(end))?;
        glance.finds_nothing(&rest[..length]).then_some(length + end.len())
    }

    /// Reads data, or skips what is none, to the end of the line.
    fn read_content(&mut self, rest: &[u8], found: &mut impl FnMut(usize, JsonValue<'_>)) -> usize {
        let end = memchr2(b'\n', b'\r', rest);
        if matches!(self.line, EventLine::Data) {
            self.scanner.push(&rest[..end.unwrap_or(rest.len())], &mut *found);
            if end.is_some() {
                // Pushed on, because lines of one event are joined by line feeds.
                self.scanner.push(b"\n", found);
            }
        }
        let Some(end) = end else { return rest.len() };
        self.end_line(rest[end]);
        end + 1
    }

    /// Reads a byte before a line's content. Returns how many bytes are read.
    fn read_begin(&mut self, byte: u8) -> usize {
        match (self.line, byte) {
            (EventLine::Mark(count), _) if MARK.get(count) == Some(&byte) => {
                self.line = EventLine::Mark(count + 1)
            }
            (EventLine::Mark(count), _) => {
                let is_begin = count == 0 || count == MARK.len();
                self.line = if is_begin { EventLine::Name(0) } else { EventLine::Other };
                return 0;
            }
            (EventLine::Name(count), b'\n' | b'\r') => {
                if count == 0 {
                    self.scanner.restart();
                }
                self.end_line(byte);
            }
            (EventLine::Name(count), _) if DATA.get(count) == Some(&byte) => {
                self.line = EventLine::Name(count + 1)
            }
            (EventLine::Name(count), b':') if count == DATA.len() => self.line = EventLine::Colon,
            (EventLine::Colon, b' ') => self.line = EventLine::Data,
            (EventLine::Colon, _) => {
                self.line = EventLine::Data;
                return 0;
            }
            _ => self.line = EventLine::Other,
        }
        1
    }

    fn end_line(&mut self, byte: u8) {
        self.line = EventLine::Name(0);
        self.is_behind_return = byte == b'\r';
    }
}

impl EventFilter {
    /// `None` if a name may be written with an escape other than by its number.
    fn of(paths: &[JsonPath]) -> Option<EventFilter> {
        let last = paths.iter().filter_map(|path| path.names().last());
        let is_plain =
            |name: &str| name.bytes().all(|byte| byte >= b' ' && !matches!(byte, b'"' | b'\\' | b'/'));
        let names: SmallVec<_> = last
            .filter(|name| is_plain(name))
            .map(|name| Finder::new(name.as_bytes()).into_owned())
            .collect();
        (names.len() == paths.len()).then_some(EventFilter { names })
    }

    /// Whether a document has no member of these names, however it is written.
    fn finds_nothing(&self, document: &[u8]) -> bool {
        self.names.iter().all(|name| name.find(document).is_none())
            && memmem::find(document, b"\\u").is_none()
    }
}

/// A line's end and a blank line. Ends by returns alone are read byte by byte.
const END_OF_EVENT: [&[u8]; 2] = [b"\n\n", b"\r\n\r\n"];
const DATA: &[u8] = b"data";
const MARK: &[u8] = b"\xef\xbb\xbf";
