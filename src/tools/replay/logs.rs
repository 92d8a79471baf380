//! Several logs as one: the lines of all of them, each read in its own format, in the order of their times.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::format::Format;
use super::format::time::TIME_MAX_NS;
use super::options::{Options, Span};
use super::order::{Order, OrderReport, ReplayOrder};
use super::request::{Line, NoLine, Request};
use super::source::{Source, Text, Unreadable};

pub struct Logs {
    logs: Vec<Log>,
    /// The next line of each log that has one.
    next: BinaryHeap<Reverse<ScheduledRequest>>,
    is_begun: bool,
    /// The host of requests whose lines name none.
    host: Option<Box<str>>,
    span: Span,
}

struct Log {
    source: Source,
    /// Lines that were read to find out the format, and are not played yet.
    first: VecDeque<(u64, Option<Vec<u8>>)>,
    /// `None`: no line so far has any.
    format: Option<Format>,
    order: Order<Box<Request>>,
    is_over: bool,
    read: Read,
}

/// A request and when it is played.
pub struct ScheduledRequest {
    /// Its time never goes back.
    pub turn: ReplayOrder,
    log: usize,
    /// The request; it began when it is played, by its log's clock.
    pub request: Box<Request>,
}

/// What was read of one log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Read {
    pub name: String,
    /// Its format; `None` if no line has any.
    pub format: Option<Format>,
    /// All of its lines but empty ones.
    pub lines: u64,
    /// Lines that are none of the format.
    pub unreadable: u64,
    /// Lines about no request.
    pub without_request: u64,
    /// The first of those that are none of the format: their numbers, and why.
    pub examples: Vec<(u64, NoLine)>,
    /// What was found of its times.
    pub disorder: OrderReport,
    /// Why it ended before its end, if it did.
    pub ended_early: Option<String>,
}

impl Logs {
    /// Opens logs, in the format that is asked for or in the one that the first lines have that have any.
    ///
    /// # Errors
    /// If one cannot be read.
    pub fn open(options: &Options) -> Result<Logs, Unreadable> {
        let sources = options.logs.iter().map(|path| Source::open(path)).collect::<Result<Vec<_>, _>>()?;
        Ok(Logs::of(sources, options.format, options.host.as_deref()))
    }

    /// The same of logs that are open.
    fn of(sources: Vec<Source>, format: Option<Format>, host: Option<&str>) -> Logs {
        let held_max = (HELD_MAX / sources.len().max(1)).max(HELD_LEAST);
        let logs = sources.into_iter().map(|source| Log::new(source, format, held_max)).collect();
        let (next, host, span) = (BinaryHeap::new(), host.map(Into::into), Span::default());
        Logs { logs, next, is_begun: false, host, span }
    }

    /// The next request of all logs.
    pub fn request(&mut self) -> Option<ScheduledRequest> {
        if !self.is_begun {
            self.is_begun = true;
            (0..self.logs.len()).for_each(|log| self.look(log));
        }
        let Reverse(mut next) = self.next.pop()?;
        self.look(next.log);
        let request = &mut next.request;
        request.began_ns = next.turn.logged_ns;
        if let (true, Some(host)) = (request.host.is_empty(), &self.host) {
            request.host = host.clone();
        }
        self.span.add(request);
        Some(next)
    }

    /// What is known of the requests that were handed out.
    pub fn span(&self) -> Span {
        self.span
    }

    fn look(&mut self, log: usize) {
        if let Some((turn, request)) = self.logs[log].next() {
            self.next.push(Reverse(ScheduledRequest { turn, log, request }));
        }
    }

    pub fn read(&self) -> Vec<Read> {
        let read = |log: &Log| Read {
            disorder: log.order.disorder(),
            ended_early: log.source.ended_early().map(str::to_owned),
            ..log.read.clone()
        };
        self.logs.iter().map(read).collect()
    }
}

impl Log {
    fn new(source: Source, format: Option<Format>, held_max: usize) -> Log {
        let read = Read { name: source.name().to_owned(), format, ..Read::default() };
        let (first, order) = (VecDeque::new(), Order::new(held_max));
        Log { source, first, format, order, is_over: false, read }
    }

    /// Reads lines until the format is known, a few at a time, because lines of other logs may stand before the first
    /// one, as on a standard output that several share.
    fn find_format(&mut self) {
        while self.first.len() < FIRST_LINES {
            match self.source.line() {
                Some(Text::Line(line)) => {
                    let line = line.to_vec();
                    self.first.push_back((self.source.number(), Some(line)));
                }
                Some(Text::Long) => self.first.push_back((self.source.number(), None)),
                None => break,
            }
        }
        self.format = Format::of(self.first.iter().filter_map(|(_, line)| line.as_deref()));
        self.read.format = self.format;
    }

    /// The next request in the order of times.
    fn next(&mut self) -> Option<(ReplayOrder, Box<Request>)> {
        loop {
            if let Some(next) = self.order.pop(self.is_over) {
                return Some(next);
            }
            if self.is_over {
                return None;
            }
            if !self.push() {
                self.order.finish();
                self.is_over = true;
            }
        }
    }

    /// Reads one more line; `false` at the end.
    fn push(&mut self) -> bool {
        if self.format.is_none() && self.first.is_empty() {
            self.find_format();
        }
        let format = self.format;
        let read = |line: &[u8]| format.map_or(Err(NoLine::Format), |format| format.read(line));
        let (number, read) = match self.first.pop_front() {
            Some((number, line)) => (number, line.map_or(Err(NoLine::Long), |line| read(&line))),
            None => {
                let read = match self.source.line() {
                    None => return false,
                    Some(Text::Long) => Err(NoLine::Long),
                    Some(Text::Line(line)) => read(line),
                };
                (self.source.number(), read)
            }
        };
        self.read.lines += 1;
        match read {
            Ok(Line::Request(request)) => {
                let logged_ns = match self.format {
                    // The end, because these lines have both and are written then.
                    Some(Format::Own | Format::Envoy) => {
                        request.began_ns.saturating_add(request.lasted_ns).min(TIME_MAX_NS)
                    }
                    _ => request.began_ns,
                };
                self.order.push(request.began_ns, logged_ns, request);
            }
            Ok(Line::NoRequest) => self.read.without_request += 1,
            Err(why) => {
                self.read.unreadable += 1;
                if self.read.examples.len() < EXAMPLES {
                    self.read.examples.push((number, why));
                }
            }
        }
        true
    }
}

impl Ord for ScheduledRequest {
    fn cmp(&self, other: &ScheduledRequest) -> std::cmp::Ordering {
        (self.turn.at_ns, self.log).cmp(&(other.turn.at_ns, other.log))
    }
}

impl PartialOrd for ScheduledRequest {
    fn partial_cmp(&self, other: &ScheduledRequest) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for ScheduledRequest {
    fn eq(&self, other: &ScheduledRequest) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for ScheduledRequest {}

/// Lines that are held to bring them into order, of all logs together.
pub const HELD_MAX: usize = 1 << 17;
/// The same of each log, however many there are.
const HELD_LEAST: usize = 1 << 10;
/// Lines that are read at once to find out the format.
const FIRST_LINES: usize = 20;
/// Lines that are none of the format, of which the number is shown.
const EXAMPLES: usize = 5;

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    fn log(text: &str) -> Source {
        Source::of("a.log".to_owned(), Box::new(Cursor::new(text.to_owned().into_bytes())))
            .expect("memory is readable")
    }

    fn line(second: u32, path: &str) -> String {
        format!("192.0.2.1 - - [20/Nov/2026:10:00:{second:02} +0000] \"GET {path} HTTP/1.1\" 200 5\n")
    }

    #[test]
    fn logs_of_several_nodes_are_one() {
        let own = r#"{"time":"2026-11-20T10:00:01.500Z","method":"GET","path":"/own","status":200}"#;
        let [one, other] = [line(1, "/a") + &line(3, "/c"), line(2, "/b") + &line(4, "/d")];
        let mut logs = Logs::of(vec![log(&one), log(&other), log(own)], None, None);
        let mut targets = Vec::new();
        while let Some(next) = logs.request() {
            targets.push(next.request.target.into_string());
        }
        assert_eq!(targets, ["/a", "/own", "/b", "/c", "/d"]);
        let formats: Vec<_> = logs.read().into_iter().map(|read| read.format).collect();
        assert_eq!(formats, [Some(Format::Common), Some(Format::Common), Some(Format::Own)]);
    }

    #[test]
    fn one_line_whose_time_is_wrong_stretches_nothing() {
        let stray = line(30, "/stray").replace("2026", "2099");
        let broken = r#"{"time":"2026-11-20T10:00:01.500Z","method":"GET","path":"/","status":200,"total_us":99999999999999}"#;
        let own = |second: u32| {
            format!(
                r#"{{"time":"2026-11-20T10:00:{second:02}.500Z","method":"GET","path":"/","status":200}}"#
            ) + "\n"
        };
        let lines = |count: u32| (0..count).map(|second| line(second, "/a")).collect::<String>();
        let late = (0..40).map(own).collect::<String>() + broken;
        for text in [stray.clone() + &lines(20), lines(10) + &stray + &lines(20), lines(20) + &stray, late] {
            let mut logs = Logs::of(vec![log(&text)], None, Some("api.example"));
            while let Some(next) = logs.request() {
                assert_eq!(&*next.request.host, "api.example");
            }
            assert!(logs.span().ns() < 41_000_000_000, "{:?} of\n{text}", logs.span());
            assert_eq!(logs.span().no_host, 0);
        }
    }

    #[test]
    fn lines_that_are_none_are_counted_and_named() {
        let text = format!("{}broken\n\n{}\u{0}\u{1}\n", line(1, "/a"), line(2, "/b"));
        let mut logs = Logs::of(vec![log(&text)], None, None);
        while logs.request().is_some() {}
        let read = logs.read().remove(0);
        assert_eq!((read.lines, read.unreadable, read.without_request), (4, 2, 0));
        assert_eq!(read.examples, [(2, NoLine::Form), (5, NoLine::Form)]);
        let mut none = Logs::of(vec![log("x\ny\n"), log("")], None, None);
        assert!(none.request().is_none());
        assert_eq!(none.read().iter().map(|read| read.lines).collect::<Vec<_>>(), [2, 0]);
        assert_eq!(none.read()[0].examples, [(1, NoLine::Format), (2, NoLine::Format)]);
    }

    #[test]
    fn lines_of_another_log_hide_no_format() {
        let decision = "{\"kind\":\"decision\",\"time\":\"2026-11-20T10:00:00.000Z\",\"policy\":\"p\"}\n";
        for before in [19, 20, 21, 500] {
            let text = decision.repeat(before) + &line(1, "/a") + decision + &line(2, "/b");
            let mut logs = Logs::of(vec![log(&text)], None, None);
            let played = std::iter::from_fn(|| logs.request()).count();
            let read = logs.read().remove(0);
            assert_eq!((played, read.format), (2, Some(Format::Common)), "{before}");
            assert_eq!((read.lines, read.unreadable), (before as u64 + 3, before as u64 + 1));
        }
    }
}
