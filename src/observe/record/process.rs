//! The process's own log as a way to standard error: whoever has a line leaves it here, and waits for no reader.
//!
//! What stands in a line is not decided here.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, Write};
use std::panic;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use super::{Error, LineLog, Sink};
use base::words;

/// Starts its writer, which also writes what panics say. Until then, lines are written by whoever has them.
///
/// # Errors
/// If the writer cannot be started.
pub fn start() -> Result<(), Error> {
    let log = LineLog::named("process log", "process-log", &Sink::Stderr, &metrics::PROCESS_LOG)?;
    if LOG.set(log).is_ok() {
        panic::set_hook(Box::new(|panic| {
            let thread = thread::current();
            let said = format!("thread '{}' {panic}", thread.name().unwrap_or("<unnamed>"));
            write(format!("{}\n", words::plain_lines(&said)).as_bytes());
            let trace = Backtrace::capture();
            if trace.status() == BacktraceStatus::Captured {
                write(format!("{trace}\n").as_bytes());
            }
            // It may end the process.
            if thread.name() == Some("main") {
                flush();
            }
        }));
    }
    Ok(())
}

/// Writes lines, with their line feeds.
pub fn write(lines: &[u8]) {
    match LOG.get() {
        Some(log) => log.write(lines),
        // Ignored, because a gateway whose standard error is closed goes on.
        None => drop(io::stderr().write_all(lines)),
    }
}

/// Says when lines begin to find no room, and when all find room again.
pub fn look() {
    if let Some(log) = LOG.get() {
        log.look();
    }
}

/// Waits a moment until everything is written: before the process ends, and before standard error becomes another.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(FLUSH_WAIT);
    }
}

static LOG: OnceLock<LineLog> = OnceLock::new();

/// Long for a writer that has a reader, and short for who waits for one that has none.
const FLUSH_WAIT: Duration = Duration::from_secs(2);
