//! Everything that a configuration says, as values in which nothing can be wrong.

use std::path::PathBuf;
use std::time::Duration;

use crate::proxy::config::{ClientIp, LimitHeaders};
use crate::record;
use crate::service::config::{Listener, Overload};

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
    /// When work is given up to save memory.
    pub overload: Overload,
    /// Ways to authenticate.
    pub auth: Vec<crate::auth::Config>,
    /// Upstreams, those that routes wrote as URLs included.
    pub upstreams: Vec<crate::upstream::Config>,
    /// Memory of the local table, bytes.
    pub limits_memory: usize,
    /// Rate-limit fields on responses.
    pub limit_headers: LimitHeaders,
    /// Tiers and their windows, in the order written.
    pub tiers: Vec<(String, Vec<crate::limit::Quota>)>,
    /// Policies, those that shorthands expanded to included.
    pub policies: Vec<crate::policy::definition::Policy>,
    /// Routes.
    pub routes: Vec<crate::policy::definition::Route>,
    /// The admin listener; `None`: off.
    pub admin: Option<crate::admin::Config>,
    /// The Redis that the nodes of a fleet share; `None`: each limits on its own.
    pub redis: Option<crate::global::Config>,
    /// How it stops.
    pub shutdown: Shutdown,
    /// The process's own log: a level, or directives as `tracing` reads them.
    pub log_level: String,
    /// The access log.
    pub access_log: record::AccessConfig,
}

impl Config {
    /// The settings of the process without what it serves: no listener, route, policy, upstream or way to authenticate.
    pub fn without_parts(&self) -> Config {
        Config {
            listeners: Vec::new(),
            auth: Vec::new(),
            upstreams: Vec::new(),
            tiers: Vec::new(),
            policies: Vec::new(),
            routes: Vec::new(),
            ..self.clone()
        }
    }
}

/// How the gateway stops.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// How long /readyz says 503 before accepting stops.
    pub ready_delay: Duration,
    /// How long requests in flight may take after that.
    pub drain: Duration,
}
