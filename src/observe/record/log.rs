//! The access log as a whole: opens its sink, runs its writer thread, and closes it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use super::format::date;
use super::queue::{CHUNK_BYTES_MAX, Chunk, Output, Queue, Task, lines_of};
use super::syslog::{Header, SentCounts, SyslogSender};
use super::{Buffer, Sink};
use metrics::AccessLog;

/// The access log. `app` holds it, and workers hold [`Buffer`]s of it. Opening, flushing and closing block on the file
/// system, so a thread that answers requests must not call them.
#[derive(Debug)]
pub struct LineLog {
    name: &'static str,
    queue: Arc<Queue>,
    sink: Mutex<Sink>,
    metrics: AccessLog,
    /// Lines lost since they began to find no room, which was logged; `None`: all find room.
    crowded: Mutex<Option<u64>>,
}

/// A sink that is open, and not written to yet.
#[derive(Debug)]
pub struct OpenSink {
    output: Output,
    sink: Sink,
}

/// Why a log cannot be opened; the operator must act on either.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be opened for appending.
    #[error("{log} {path} cannot be opened: {source}")]
    Open {
        log: &'static str,
        path: PathBuf,
        /// The operating system's reason.
        source: io::Error,
    },
    /// The writer's thread cannot be started.
    #[error("{0}: its writer thread cannot be started: {1}")]
    Thread(&'static str, io::Error),
}

impl LineLog {
    /// Opens the sink and starts the writer.
    ///
    /// The writer is a thread of its own and not a task, because a pipe that nobody reads may block it for ever, and
    /// must block nothing else.
    pub fn open(sink: &Sink, metrics: &AccessLog) -> Result<LineLog, Error> {
        LineLog::named(ACCESS_LOG, "access-log", sink, metrics)
    }

    /// The same for a log with another name for operators, and its thread.
    pub fn named(
        name: &'static str,
        thread: &'static str,
        sink: &Sink,
        metrics: &AccessLog,
    ) -> Result<LineLog, Error> {
        LineLog::start((name, thread), open(name, sink)?, sink, metrics)
    }

    fn start(
        (name, thread): (&'static str, &'static str),
        output: Output,
        sink: &Sink,
        metrics: &AccessLog,
    ) -> Result<LineLog, Error> {
        let queue = Arc::new(Queue::default());
        // The queue is told, so that nobody makes lines for a log that is off.
        if matches!(output, Output::Off) {
            queue.switch(Output::Off);
        }
        let writer = ChunkWriter { name, output, is_torn: false, failing: None, metrics: metrics.clone() };
        let tasks = queue.clone();
        thread::Builder::new()
            .name(thread.into())
            .spawn(move || writer.run(&tasks))
            .map_err(|error| Error::Thread(name, error))?;
        let (sink, metrics) = (Mutex::new(sink.clone()), metrics.clone());
        Ok(LineLog { name, queue, sink, metrics, crowded: Mutex::default() })
    }

    /// A new buffer, for one worker.
    pub fn buffer(&self) -> Buffer {
        Buffer::new(self.queue.clone(), self.metrics.dropped.clone())
    }

    /// Writes lines of any thread, with their line feeds. Neither waits nor fails, as [`Buffer::write`].
    pub fn write(&self, lines: &[u8]) {
        let mut rest = lines;
        while !rest.is_empty() {
            let (lines, after) = rest.split_at(whole_lines(rest, CHUNK_BYTES_MAX));
            rest = after;
            if !self.queue.append(lines) {
                let lost = lines_of(lines);
                self.metrics.dropped.add(lost);
                self.queue.crowd_out(lost);
            }
        }
    }

    /// Opens another sink, to continue there by [`LineLog::put`].
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open_other(&self, sink: &Sink) -> Result<OpenSink, Error> {
        Ok(OpenSink { output: open(self.name, sink)?, sink: sink.clone() })
    }

    /// Continues in another sink from the writer's next chunk on.
    pub fn put(&self, opened: OpenSink) {
        let mut current = self.sink.lock().unwrap_or_else(PoisonError::into_inner);
        self.queue.switch(opened.output);
        *current = opened.sink;
    }

    /// What stands before a line of this time from this node: the header of a message whose MSGID is `kind`, if lines are
    /// messages of syslog.
    pub fn before_line(&self, kind: &str, node: &str, time: Duration) -> Vec<u8> {
        let mut before = Vec::new();
        if let Sink::Syslog(syslog) = &*self.sink.lock().unwrap_or_else(PoisonError::into_inner) {
            Header::new(syslog, node, kind).push(&mut before, &date::text(time.as_secs()), time);
        }
        before
    }

    /// Opens the file of the present sink again, after a rotation. On an error the old one stays.
    pub fn reopen(&self) -> Result<(), Error> {
        let sink = self.sink.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.put(self.open_other(&sink)?);
        Ok(())
    }

    /// Says when lines begin to find no room, because the sink takes them too slowly or not at all, and when all find
    /// room again. The writer cannot, because it may be stuck in a write.
    pub fn look(&self) {
        let (lost, has_room) = self.queue.take_crowded_out();
        let mut crowded = self.crowded.lock().unwrap_or_else(PoisonError::into_inner);
        match *crowded {
            None if lost > 0 => {
                tracing::warn!("{} is written too slowly: lines are dropped until it keeps up", self.name);
                *crowded = Some(lost);
            }
            Some(before) if lost == 0 && has_room => {
                tracing::info!(lines_lost = before, "{} keeps up again", self.name);
                *crowded = None;
            }
            Some(before) => *crowded = Some(before + lost),
            None => {}
        }
    }

    /// Waits, at most for `wait`, until every chunk handed over is written. Returns whether it is.
    pub fn flush(&self, wait: Duration) -> bool {
        self.queue.flush(wait)
    }

    /// Waits, at most for `wait`, until every chunk is written, and ends the writer; one that is stuck is left
    /// behind. Returns how many lines were lost. Drop the buffers first, because they hand over their last lines
    /// then.
    pub fn close(self, wait: Duration) -> u64 {
        self.queue.flush(wait);
        let lost = self.queue.close();
        self.metrics.dropped.add(lost);
        lost
    }
}

impl Drop for LineLog {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// Writes chunks, in a thread of its own.
struct ChunkWriter {
    name: &'static str,
    output: Output,
    /// The last write ended inside a line.
    is_torn: bool,
    /// Lines lost since writing began to fail, which was logged; `None`: the last write succeeded.
    failing: Option<u64>,
    metrics: AccessLog,
}

impl ChunkWriter {
    fn run(mut self, queue: &Queue) {
        while let Some(task) = queue.next() {
            match task {
                Task::Switch(output) => {
                    self.output = output;
                    // Reset, because a line that was cut short stands in the output before.
                    self.is_torn = false;
                }
                Task::Write(chunk) => {
                    let SentCounts { sent, cut, error } = self.write(&chunk);
                    self.metrics.written.add(sent);
                    self.metrics.cut.add(cut);
                    match error {
                        Some(error) => self.lose(chunk.lines.saturating_sub(sent), &error),
                        None => self.recover(),
                    }
                    queue.done(chunk);
                }
            }
        }
    }

    fn write(&mut self, chunk: &Chunk) -> SentCounts {
        let text = &chunk.text;
        let (written, error) = match &mut self.output {
            Output::Stdout => write_whole(&mut io::stdout().lock(), text, &mut self.is_torn),
            Output::Stderr => write_whole(&mut WholeLines(io::stderr().lock()), text, &mut self.is_torn),
            Output::File(file, _) => write_whole(file, text, &mut self.is_torn),
            Output::Syslog(sender) => return sender.send_lines(text),
            Output::Off => (text.len(), None),
        };
        let sent = match &error {
            None => chunk.lines,
            // Counted, because a disk that becomes full takes a part, and the lines of it that went out whole can be
            // read.
            Some(_) => lines_of(&text[..written]),
        };
        SentCounts { sent, error, ..SentCounts::default() }
    }

    fn recover(&mut self) {
        if let Some(lines) = self.failing.take() {
            tracing::info!(lines_lost = lines, "{} can be written again", self.name);
        }
    }

    fn lose(&mut self, lines: u64, error: &io::Error) {
        self.metrics.dropped.add(lines);
        if self.failing.is_none() {
            let to = match &self.output {
                Output::File(_, path) => format!(" {}", path.display()),
                Output::Syslog(sender) => format!(" {}", sender.to),
                Output::Stdout | Output::Stderr | Output::Off => String::new(),
            };
            tracing::warn!(%error, "{}{to} cannot be written: lines are dropped until it can", self.name);
        }
        self.failing = Some(self.failing.unwrap_or(0) + lines);
    }
}

/// Writes in pieces of whole lines that a pipe takes in one go, because two processes share standard error during an
/// upgrade, and lines in pieces would mix.
struct WholeLines<W>(W);

impl<W: Write> Write for WholeLines<W> {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.write(&text[..whole_lines(text, PIPE_BYTES)])
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Where the last line of a text ends that ends within `most` bytes; the first line, if that is longer.
fn whole_lines(text: &[u8], most: usize) -> usize {
    let is_end = |byte: &u8| *byte == b'\n';
    let within = text.iter().take(most).rposition(is_end);
    within.or_else(|| text.iter().position(is_end)).map_or(text.len(), |last| last + 1)
}

/// Writes `text`; returns how many bytes of it went out, and why not all of them did. If an earlier write ended inside a
/// line, that line is ended first, so that the next one stays readable.
fn write_whole(output: &mut impl Write, text: &[u8], is_torn: &mut bool) -> (usize, Option<io::Error>) {
    if *is_torn && let Err(error) = output.write_all(b"\n") {
        return (0, Some(error));
    }
    *is_torn = false;
    let mut done = 0;
    while done < text.len() {
        match output.write(&text[done..]) {
            Ok(0) => return (done, Some(io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                done += written;
                *is_torn = text[done - 1] != b'\n';
            }
            // Tried again, because a signal says nothing about the output.
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return (done, Some(error)),
        }
    }
    (done, output.flush().err())
}

fn open(log: &'static str, sink: &Sink) -> Result<Output, Error> {
    match sink {
        Sink::Stdout => Ok(Output::Stdout),
        Sink::Stderr => Ok(Output::Stderr),
        Sink::File(path) => match append_to(path) {
            Ok(file) => Ok(Output::File(file, path.clone())),
            Err(source) => Err(Error::Open { log, path: path.clone(), source }),
        },
        // It connects with its first message, and again whenever the daemon has been started again.
        Sink::Syslog(syslog) => Ok(Output::Syslog(SyslogSender::new(syslog.to.clone()))),
        Sink::Off => Ok(Output::Off),
    }
}

fn append_to(path: &Path) -> io::Result<File> {
    let is_pipe = path.metadata().is_ok_and(|metadata| metadata.file_type().is_fifo());
    let mut options = OpenOptions::new();
    // For reading, too, because opening a named pipe only for writing blocks until a reader opens it.
    options.append(true).read(is_pipe).create(!is_pipe).mode(FILE_MODE).open(path)
}

/// The access log's name for operators.
const ACCESS_LOG: &str = "access log";
/// What Linux writes to a pipe in one piece (`PIPE_BUF`).
const PIPE_BYTES: usize = 4096;
/// Other users of the machine may not read a log, because it holds clients' addresses.
const FILE_MODE: u32 = 0o640;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::record::{AccessConfig, AccessEntry, StatusSampler, Style};

    #[test]
    fn lines_reach_the_file_whole_and_in_order() {
        let scratch = Scratch::new("order");
        let (log, metrics) = open_log(&Sink::File(scratch.file("access.log")));
        write_lines(&log, 0..5_000);
        assert_eq!(log.close(LONG), 0);
        assert_eq!(statuses_of(&scratch.file("access.log")), (0..5_000).collect::<Vec<_>>());
        assert_eq!((metrics.written.value(), metrics.dropped.value()), (5_000, 0));
    }

    #[test]
    fn a_rotated_file_is_let_go() {
        let scratch = Scratch::new("rotate");
        let (log, _) = open_log(&Sink::File(scratch.file("access.log")));
        write_lines(&log, 0..3);
        assert!(log.flush(LONG));
        fs::rename(scratch.file("access.log"), scratch.file("access.log.1")).expect("renamed");
        log.reopen().expect("a new file");
        write_lines(&log, 3..5);
        assert_eq!(log.close(LONG), 0);
        assert_eq!(statuses_of(&scratch.file("access.log.1")), [0, 1, 2]);
        assert_eq!(statuses_of(&scratch.file("access.log")), [3, 4]);
    }

    #[test]
    fn a_sink_that_cannot_be_opened_leaves_the_old_one() {
        let scratch = Scratch::new("switch");
        let (log, _) = open_log(&Sink::File(scratch.file("access.log")));
        let error =
            log.open_other(&Sink::File(scratch.file("absent/access.log"))).expect_err("no such directory");
        assert!(error.to_string().contains("absent/access.log"), "{error}");
        log.reopen().expect("the old one is still known");
        write_lines(&log, 0..2);
        assert_eq!(log.close(LONG), 0);
        assert_eq!(statuses_of(&scratch.file("access.log")), [0, 1]);
    }

    #[test]
    fn a_reader_that_stalls_stalls_no_worker() {
        let metrics = AccessLog::default();
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let output = Output::File(File::from(OwnedFd::from(writer)), PathBuf::new());
        let log =
            LineLog::start((ACCESS_LOG, "access-log"), output, &Sink::Stdout, &metrics).expect("a thread");
        let buffer = log.buffer();
        let mut offered = 0;
        while metrics.dropped.value() == 0 {
            buffer.write(
                &everything(),
                &Style::default(),
                &AccessEntry { path: &[b'a'; 500], ..AccessEntry::default() },
            );
            offered += 1;
        }
        drop(buffer);
        let read = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("UTF-8");
            text
        });
        assert_eq!(log.close(LONG), 0);
        let text = read.join().expect("a reader");
        let whole =
            text.lines().filter(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()).count();
        assert_eq!(whole as u64, metrics.written.value());
        assert_eq!(metrics.written.value() + metrics.dropped.value(), offered);
    }

    #[test]
    fn lines_that_are_handed_over_at_once_are_kept_in_order_until_there_is_no_room() {
        let metrics = AccessLog::default();
        let (mut reader, writer) = io::pipe().expect("a pipe");
        let output = Output::File(File::from(OwnedFd::from(writer)), PathBuf::new());
        let log = LineLog::start(("process log", "process-log"), output, &Sink::Stderr, &metrics)
            .expect("a thread");
        let long = format!("{}\n", "a".repeat(999)).repeat(3 * CHUNK_BYTES_MAX / 1000);
        log.write(long.as_bytes());
        let mut offered = 0;
        while metrics.dropped.value() == 0 {
            log.write(format!("{offered:0500}\n").as_bytes());
            offered += 1;
        }
        assert!(!log.flush(Duration::from_millis(1)), "nobody reads it");
        let read = thread::spawn(move || {
            let mut text = String::new();
            reader.read_to_string(&mut text).expect("UTF-8");
            text
        });
        assert!(log.flush(LONG));
        log.write(b"after\n");
        assert_eq!(log.close(LONG), 0);
        let text = read.join().expect("a reader");
        let kept: String = (0..offered - 1).map(|number| format!("{number:0500}\n")).collect();
        assert!(text == format!("{long}{kept}after\n"), "{} bytes", text.len());
        let lines = text.lines().count() as u64;
        assert_eq!((metrics.written.value(), metrics.dropped.value()), (lines, 1));
    }

    #[test]
    fn lines_that_a_pipe_takes_in_one_go_are_written_so() {
        #[derive(Default)]
        struct Pieces(Vec<Vec<u8>>);
        impl Write for Pieces {
            fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
                self.0.push(piece.to_vec());
                Ok(piece.len())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let text =
            [[b'a'; 2_000], [b'b'; 2_000], [b'c'; 2_000]].map(|line| [&line[..], b"\n"].concat()).concat();
        let mut written = WholeLines(Pieces::default());
        assert!(write_whole(&mut written, &text, &mut false).1.is_none());
        assert_eq!(written.0.0, [&text[..4_002], &text[4_002..]]);
    }

    #[test]
    fn a_writer_that_is_stuck_is_left_behind() {
        let metrics = AccessLog::default();
        let (reader, writer) = io::pipe().expect("a pipe");
        let output = Output::File(File::from(OwnedFd::from(writer)), PathBuf::new());
        let log =
            LineLog::start((ACCESS_LOG, "access-log"), output, &Sink::Stdout, &metrics).expect("a thread");
        write_lines(&log, 0..5_000);
        assert!(!log.flush(Duration::from_millis(1)));
        let lost = log.close(Duration::from_millis(1));
        assert!(lost > 0);
        assert_eq!(metrics.dropped.value(), lost);
        drop(reader);
    }

    #[test]
    fn a_full_disk_costs_counted_lines() {
        let (log, metrics) = open_log(&Sink::File("/dev/full".into()));
        write_lines(&log, 0..10);
        assert_eq!(log.close(LONG), 0, "nothing waits any more");
        assert_eq!((metrics.written.value(), metrics.dropped.value()), (0, 10));
    }

    #[test]
    fn lines_that_went_out_whole_count_as_written_if_the_rest_is_lost() {
        let metrics = AccessLog::default();
        // It takes a part of a chunk, as a disk that becomes full does.
        let (writer, mut reader) = UnixStream::pair().expect("a pair");
        writer.set_nonblocking(true).expect("it can be told");
        let output = Output::File(File::from(OwnedFd::from(writer)), PathBuf::new());
        let log =
            LineLog::start((ACCESS_LOG, "access-log"), output, &Sink::Stdout, &metrics).expect("a thread");
        write_lines(&log, 0..5_000);
        assert_eq!(log.close(LONG), 0, "nothing waits any more");
        let mut text = String::new();
        reader.read_to_string(&mut text).expect("UTF-8");
        let is_whole = |line: &&str| serde_json::from_str::<serde_json::Value>(line).is_ok();
        let whole = text.lines().filter(is_whole).count() as u64;
        assert!(whole > 0 && metrics.dropped.value() > 0, "{whole}");
        assert_eq!((metrics.written.value(), metrics.dropped.value()), (whole, 5_000 - whole));
    }

    #[test]
    fn a_torn_line_spoils_only_itself() {
        let (mut is_torn, mut written) = (false, Vec::new());
        let mut room_for_five = [0; 5];
        let (done, error) = write_whole(&mut room_for_five.as_mut_slice(), b"one\ntwo\n", &mut is_torn);
        assert!(is_torn && done == 5 && error.is_some());
        assert!(write_whole(&mut written, b"three\n", &mut is_torn).1.is_none(), "a Vec takes it");
        assert_eq!((&room_for_five, written.as_slice()), (b"one\nt", b"\nthree\n".as_slice()));
        assert!(!is_torn);
    }

    #[test]
    fn a_named_pipe_without_a_reader_opens() {
        let scratch = Scratch::new("fifo");
        let made = std::process::Command::new("mkfifo").arg(scratch.file("pipe")).status();
        assert!(made.expect("mkfifo runs").success());
        let (log, metrics) = open_log(&Sink::File(scratch.file("pipe")));
        write_lines(&log, 0..1);
        assert_eq!(log.close(LONG), 0);
        assert_eq!(metrics.written.value(), 1);
    }

    fn open_log(sink: &Sink) -> (LineLog, AccessLog) {
        let metrics = AccessLog::default();
        (LineLog::open(sink, &metrics).expect("a log"), metrics)
    }

    /// Writes one line for each status. The buffer is dropped here, which hands them over even if the lock is taken.
    fn write_lines(log: &LineLog, statuses: std::ops::Range<u16>) {
        let buffer = log.buffer();
        for status in statuses {
            buffer.write(&everything(), &Style::default(), &AccessEntry { status, ..AccessEntry::default() });
        }
    }

    fn everything() -> StatusSampler {
        StatusSampler::new(&AccessConfig { to: Sink::Stdout, headers: Vec::new(), ..AccessConfig::default() })
    }

    fn statuses_of(path: &Path) -> Vec<u64> {
        let text = fs::read_to_string(path).expect("a log file");
        let status = |line| serde_json::from_str::<serde_json::Value>(line).expect("JSON")["status"].as_u64();
        text.lines().map(|line| status(line).expect("a number")).collect()
    }

    /// A directory for one test, removed when it ends.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(test: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("sluicegate-log-{test}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a directory");
            Scratch(path)
        }

        fn file(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            fs::remove_dir_all(&self.0).ok();
        }
    }

    const LONG: Duration = Duration::from_secs(30);
}
