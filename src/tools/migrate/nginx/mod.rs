//! nginx.conf, of nginx as it is given away: servers, locations, upstreams, limits.

mod access;
mod lexer;
mod limits;
mod listeners;
mod locations;
mod maps;
mod ports;
mod prefix;
mod real_ip;
mod redirects;
mod scope;
mod server;
mod servers;
#[cfg(test)]
mod tests;
mod unread_directives;
mod upstreams;
mod values;

use std::path::Path;

use super::draft::Draft;
use super::file::Error;
use super::notes::SourceLine;
use lexer::{Directive, Reader};
use real_ip::RealIp;
use scope::Scope;

/// What differs in every configuration.
pub(super) const EVERYWHERE: &[&str] = &[
    "A slash at the end of a path makes no difference.",
    "All listeners serve all routes.",
    "Headers of `add_header` are set on responses of every status; write `response-headers` at a listener for paths \
     without a location (404).",
    "Limits answer 429 with Retry-After. IPv6 clients are counted by /64 (`ipv6-prefix` of [client-ip]).",
    "X-Forwarded-* and X-Real-IP of clients are removed; the gateway writes X-Forwarded-For, -Proto and -Host.",
    "A failed request is retried at most once. WebSocket passes only where `upgrade = true` is set.",
    "Location, Refresh and error pages of upstreams pass unchanged.",
];

/// Everything that the parts of the reader share.
struct Reading<'d> {
    draft: &'d mut Draft,
    /// The directory of the main file.
    directory: &'d Path,
    /// The block `http`, which zones and groups of servers stand in.
    http: &'d [Directive],
    /// Places of the server that is read which an expression keeps clients out of.
    closings: Vec<Closing>,
    /// Servers that ask for certificates which their listener does not ask for.
    uncertified: Vec<&'d Directive>,
    /// Where the gateway has the addresses of clients from, of the server that is read.
    real_ip: Option<RealIp>,
}

/// A place that is closed, as what keeps clients out of it cannot be said.
struct Closing {
    place: SourceLine,
    /// What all of its paths begin with.
    begin: String,
    /// Whether a route of its own says what it does there, so that only longer paths are closed.
    has_route: bool,
}

/// Reads a text into the draft, and what it includes if `includes` says so.
pub(super) fn read(path: &Path, text: &str, includes: bool, draft: &mut Draft) -> Result<(), Error> {
    let directory = path.parent().unwrap_or(Path::new("")).to_owned();
    let whole = Reader::new(&directory, includes, &mut draft.notes).text(path, text)?;
    fill(&directory, &whole, draft);
    draft.list_paths(path, false, false);
    Ok(())
}

fn fill(directory: &Path, whole: &[Directive], draft: &mut Draft) {
    let block = whole.iter().find(|directive| directive.name == "http");
    // The whole file otherwise, because a file of conf.d has servers and no `http` around them.
    let (main, http) = match block {
        Some(block) => (whole, block.taken().block()),
        None => ([].as_slice(), whole),
    };
    if let Some(workers) = main.iter().find(|directive| directive.name == "worker_processes") {
        draft.workers = workers.taken().arg(0).parse().ok();
    }
    let scope = Scope::new(main).within(http);
    let (closings, uncertified, real_ip) = (Vec::new(), Vec::new(), None);
    let mut reading = Reading { draft, directory, http, closings, uncertified, real_ip };
    reading.trust(&scope);
    reading.servers(&scope);
    unread_directives::list(whole, reading.draft);
}
