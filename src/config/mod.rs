//! gateway.toml: read, checked as a whole, turned into each module's own configuration.

use std::path::PathBuf;
use std::time::Duration;

use crate::policy::definition;
use crate::proxy::config::{ClientIp, LimitHeaders, Listener};
use crate::{admin, record, upstream};

/// A whole configuration in which nothing can be wrong any more.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The files it was read from, the main one first.
    pub files: Vec<PathBuf>,
    /// Data-plane threads. `None`: one a core.
    pub workers: Option<usize>,
    /// Listeners, by name.
    pub listeners: Vec<Listener>,
    /// Whose word about a client's address is taken.
    pub client_ip: ClientIp,
    /// Upstreams, those that routes wrote as URLs included.
    pub upstreams: Vec<upstream::Config>,
    /// Memory of the local table, bytes.
    pub limits_memory: usize,
    /// Rate-limit fields on responses.
    pub limit_headers: LimitHeaders,
    /// Policies, those that shorthands expanded to included.
    pub policies: Vec<definition::Policy>,
    /// Routes.
    pub routes: Vec<definition::Route>,
    /// The admin listener; `None`: off.
    pub admin: Option<admin::Config>,
    /// How it stops.
    pub shutdown: Shutdown,
    /// The process's own log: a level, or directives as `tracing` reads them.
    pub log_level: String,
    /// The access log.
    pub access_log: record::AccessConfig,
}

/// How the gateway stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long /readyz says 503 before accepting stops.
    pub ready_delay: Duration,
    /// How long requests in flight may take after that.
    pub drain: Duration,
}
