//! What a request is judged by: one value, built whole, replaced whole. A request loads it once and keeps it.

use std::rc::Rc;
use std::sync::Arc;

use super::config::{ClientIp, LimitHeaders};
use super::request_body::RequestBody;
use crate::{auth, metrics, policy, record, upstream};

/// The routing and policy tables with all they point at; shared by all workers.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts the reloads since start.
    pub generation: u64,
    /// Routes and policies.
    pub table: policy::Table,
    /// Upstreams, in the order the table's routes index them.
    pub upstreams: Vec<Arc<upstream::Upstream>>,
    /// Ways to authenticate, in the order the table's routes index them.
    pub auth: Vec<Arc<auth::Method>>,
    /// Query parameters that carry credentials: the access log does not show their values.
    pub secret_parameters: Box<[Box<str>]>,
    /// Whose word about a client's address is taken.
    pub client_ip: ClientIp,
    /// Which rate-limit fields answers carry.
    pub limit_headers: LimitHeaders,
    /// Which requests the access log keeps.
    pub sampler: record::Sampler,
    /// What a line of the log shows by choice.
    pub shown: record::Shown,
    /// Figures, by the same indices.
    pub figures: Figures,
}

/// Where each part of a snapshot is counted.
#[derive(Debug)]
pub struct Figures {
    /// By route.
    pub routes: Vec<Arc<metrics::Route>>,
    /// Requests that no route takes.
    pub no_route: Arc<metrics::Route>,
    /// By policy.
    pub policies: Vec<Arc<metrics::Policy>>,
    /// By upstream.
    pub upstreams: Vec<Arc<metrics::Upstream>>,
}

/// A snapshot as one worker sees it: with its own connections to the upstreams.
#[derive(Debug)]
pub struct View {
    /// What all workers share.
    pub snapshot: Arc<Snapshot>,
    /// By upstream.
    pub pools: Vec<Rc<upstream::Pool<RequestBody>>>,
    /// What it has verified lately, by way to authenticate.
    pub caches: Vec<Rc<auth::cache::Cache>>,
}
