//! What to play and how, and what is known of a log whatever is played.

use std::path::PathBuf;

use super::format::Format;
use super::request::Request;

#[derive(Clone, Debug)]
pub struct Options {
    /// The logs; `-` is standard input.
    pub logs: Vec<PathBuf>,
    /// Their format; `None`: that of their first lines.
    pub format: Option<Format>,
    /// The host of requests whose lines name none.
    pub host: Option<String>,
    /// How many nodes the requests are spread over.
    pub nodes: u32,
    pub spread: Spread,
    pub top: usize,
}

/// How requests are spread over nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    Turns,
    /// By the client's address: a client keeps its node.
    Address,
}

/// The requests of a log as they are, whatever is played.
#[derive(Clone, Copy, Debug, Default)]
pub struct Span {
    pub requests: u64,
    /// When the first and the last one began, nanoseconds since 1970.
    pub first_ns: Option<u64>,
    pub last_ns: u64,
    pub refused: u64,
    pub no_host: u64,
}

impl Span {
    pub fn add(&mut self, request: &Request) {
        let began_ns = request.began_ns;
        self.requests += 1;
        self.first_ns = Some(self.first_ns.map_or(began_ns, |first_ns| first_ns.min(began_ns)));
        self.last_ns = self.last_ns.max(began_ns);
        self.refused += u64::from(request.status == 429);
        self.no_host += u64::from(request.host.is_empty());
    }

    /// From the first to the last, nanoseconds.
    pub fn ns(&self) -> u64 {
        self.first_ns.map_or(0, |first_ns| self.last_ns - first_ns)
    }
}
