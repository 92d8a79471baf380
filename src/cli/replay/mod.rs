//! `sluicegate replay`: what a configuration would have done with the requests of an access log, as a table, as JSON or as
//! a page of charts.

mod html;
pub(super) mod text;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::bail;

use super::check::{EXIT_CONFIG, EXIT_LEFT_OUT};
use super::tips::whole;
use policy::matching::host::is_authority;
use replay::format::Format;
use replay::report::LogReport;
use replay::{self, Options, Spread};

/// What to play. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    logs: Logs,
    /// Another configuration, usually the one in force, to compare with
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,
    /// How many nodes the requests are spread over
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = whole::<u32>(1..=NODES_MAX))]
    nodes: u32,
    /// How to spread them: in turns, or by the client's address
    #[arg(long, value_enum, default_value_t = Spreading::Turns)]
    spread: Spreading,
    /// How many clients and routes to list
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = whole::<u16>(0..=1_000))]
    top: u16,
    /// Print JSON
    #[arg(long, conflicts_with = "html")]
    json: bool,
    /// Print a page with charts, in one file
    #[arg(long)]
    html: bool,
}

/// Which logs, and how to read them.
#[derive(Debug, clap::Args)]
pub struct Logs {
    /// An access log, plain or compressed with gzip or zstd; - is standard input. Several are read as one
    #[arg(long = "log", value_name = "FILE", required = true)]
    paths: Vec<PathBuf>,
    /// The format of the logs; default: detected from their first lines
    #[arg(long, value_enum)]
    format: Option<Kind>,
    /// The host of requests whose lines name none, as in the common format
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<String>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// The gateway's own, JSON
    Sluicegate,
    /// The Common Log Format of Apache, also as Combined
    #[value(alias = "combined", alias = "nginx", alias = "apache")]
    Common,
    /// Envoy's default
    Envoy,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Spreading {
    Turns,
    Address,
}

impl Logs {
    /// One node that plays these logs.
    ///
    /// # Errors
    /// If standard input is one of them more than once.
    pub fn options(&self) -> Result<Options, &'static str> {
        if self.paths.iter().filter(|path| *path == Path::new("-")).count() > 1 {
            return Err("standard input can be read once: --log - is given several times");
        }
        let format = self.format.map(|kind| match kind {
            Kind::Sluicegate => Format::Own,
            Kind::Common => Format::Common,
            Kind::Envoy => Format::Envoy,
        });
        let (logs, host) = (self.paths.clone(), self.host.clone());
        Ok(Options { logs, format, host, nodes: 1, spread: Spread::Turns, top: 0 })
    }
}

fn host(text: &str) -> Result<String, &'static str> {
    is_authority(text).then(|| text.to_owned()).ok_or("write a host, for example api.example.com")
}

/// Whether a line of a log could be read. If none could, or a log is left out, it says so.
pub fn is_readable(logs: &[LogReport], errors: &mut dyn Write) -> io::Result<bool> {
    let is_readable = !logs.iter().all(LogReport::is_unreadable);
    for log in logs.iter().filter(|log| log.is_unreadable()) {
        if !is_readable {
            write!(errors, "{}", text::read(log))?;
        } else if log.lines > 0 {
            writeln!(
                errors,
                "sluicegate: no line of {} can be read as an access log line: the file is skipped; if it is \
                 a log, replay it alone with --format",
                base::words::plain(&log.name)
            )?;
        }
    }
    if !is_readable {
        let why = match logs.iter().find(|log| log.lines > 0).map(|log| log.format) {
            None => "the log has no lines",
            Some(None) => "no line can be read as an access log line; name their format with --format",
            Some(Some(_)) => "no line has the format that --format names: name another, or leave it out",
        };
        writeln!(errors, "sluicegate: {why}")?;
    }
    Ok(is_readable)
}

/// The exit code for logs that were read: 0, or [`EXIT_LEFT_OUT`] if one of them was not read to its end.
pub fn exit_code(logs: &[LogReport], errors: &mut dyn Write) -> io::Result<u8> {
    let ended_early = logs.iter().any(|log| log.ended_early.is_some());
    if ended_early {
        writeln!(errors, "sluicegate: a log could not be read to its end: the report covers what was read")?;
    }
    let left_out = logs.iter().any(|log| log.lines > 0 && log.is_unreadable());
    Ok(if ended_early || left_out { EXIT_LEFT_OUT } else { 0 })
}

/// Prints the report on `out` and returns the exit code: 0, 1 if nothing can be read, [`EXIT_LEFT_OUT`] if a log ended
/// early or has no line that can be read, or [`EXIT_CONFIG`].
pub fn run(
    arguments: &Arguments,
    candidate: &Path,
    out: &mut dyn Write,
    errors: &mut dyn Write,
) -> anyhow::Result<u8> {
    let candidate = config::load(candidate);
    let against = arguments.against.as_deref().map(config::load).transpose();
    let (candidate, against) = match (candidate, against) {
        (Ok(candidate), Ok(against)) => (candidate, against),
        (candidate, against) => {
            for found in [candidate.err(), against.err()].into_iter().flatten() {
                writeln!(errors, "{found}")?;
            }
            return Ok(EXIT_CONFIG);
        }
    };
    let options = match arguments.logs.options() {
        Ok(options) => options,
        Err(why) => bail!(why),
    };
    let options = Options {
        nodes: arguments.nodes,
        spread: match arguments.spread {
            Spreading::Turns => Spread::Turns,
            Spreading::Address => Spread::Address,
        },
        top: usize::from(arguments.top),
        ..options
    };
    let report = replay::replay(&options, candidate, against)?;
    if !is_readable(&report.logs, errors)? {
        return Ok(1);
    }
    if arguments.json {
        serde_json::to_writer_pretty(&mut *out, &report)?;
        writeln!(out)?;
    } else if arguments.html {
        out.write_all(html::page(&report).as_bytes())?;
    } else {
        out.write_all(text::shown(&report).as_bytes())?;
    }
    Ok(exit_code(&report.logs, errors)?)
}

/// Nodes that are played at most.
const NODES_MAX: u64 = 1_000;
