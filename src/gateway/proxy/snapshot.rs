//! The configuration in force as requests use it: one immutable value, built whole and replaced whole. A request loads it
//! once and keeps it to its end. `app::publisher` builds it.

use std::rc::Rc;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::config::{ClientIp, LimitHeaders, NodeIdentity};
use super::request::request_body::RequestBody;
use super::response::error_pages::ErrorPages;
use crate::service::config::ListenerConfig;
use base::ids::IdVec;
use base::random::EvenNumbers;
use limiter::Check;
use observe::record;
use observe::trace::Tracer;
use policy::destination::ChoiceId;
use policy::{AuthMethodId, UpstreamId};

/// The routing and policy tables and everything that they refer to, shared by all workers.
#[derive(Debug)]
pub struct Snapshot {
    /// Counts the reloads since start.
    pub generation: u64,
    pub table: policy::RouteTable,
    pub upstreams: IdVec<UpstreamId, Arc<upstream::LiveUpstream>>,
    /// Counts the changes of their servers.
    pub moves: Arc<upstream::ServerChanges>,
    pub auth: IdVec<AuthMethodId, Arc<auth::Method>>,
    /// Query parameters that carry credentials: the access log does not show their values.
    pub secret_parameters: Box<[Box<str>]>,
    /// The listeners as configured; connections keep the one that they came under. For `explain`.
    pub listeners: Vec<ListenerConfig>,
    /// How a client's address is found.
    pub client_ip: ClientIp,
    pub node: NodeIdentity,
    /// Names of the tiers that have a table of their own.
    pub tiers: Box<[Box<str>]>,
    /// How keys are named for people.
    pub naming: policy::KeyNaming,
    pub limit_headers: LimitHeaders,
    /// Own bodies for errors; their files are read again when they change. `None`: there are none.
    pub error_pages: Option<Arc<ArcSwap<ErrorPages>>>,
    /// Which requests are written to the access log.
    pub sampler: record::StatusSampler,
    pub draws: record::decisions::DecisionSampling,
    /// The optional parts of an access log line.
    pub shown: record::LoggedParts,
    /// How access log lines are written.
    pub style: record::Style,
    /// Decides about the traces of requests; `None`: they are not traced.
    pub tracer: Option<Tracer>,
    /// The metric series that requests of this snapshot count in.
    pub series: Series,
}

/// The metric series of each part of a snapshot, by the same indices, so that counting needs no look-up by name.
#[derive(Debug)]
pub struct Series {
    pub routes: Vec<Arc<metrics::RouteSeries>>,
    /// For requests that match no route.
    pub no_route: Arc<metrics::RouteSeries>,
    pub policies: Vec<Arc<metrics::PolicySeries>>,
    pub windows: Vec<Box<[Arc<metrics::WindowSeries>]>>,
    pub latency: Arc<metrics::Latency>,
    pub upstreams: IdVec<UpstreamId, Arc<metrics::UpstreamSeries>>,
}

impl Series {
    /// Counts what each policy and each of its windows decided, and how candidates compare.
    pub fn decided(&self, worker: &metrics::WorkerToken, check: &Check<'_>) {
        let Check { charges, decision, event, .. } = check;
        for (charge, outcome) in charges.iter().zip(&decision.outcomes) {
            let window = &self.windows[charge.policy.index()][usize::from(charge.window)];
            window.said(worker, decision.tier, outcome.is_admitted());
        }
        for said in &event.counts {
            let series = &self.policies[said.policy.index()];
            series.decided(worker, said.decision);
            series.decided_by(worker, said.tier);
        }
        for (policy, comparison) in &event.comparisons {
            self.policies[policy.index()].compared(worker, *comparison);
        }
    }
}

/// A snapshot together with what belongs to one worker: its connections to upstreams and the credentials it has verified.
#[derive(Debug)]
pub struct WorkerView {
    /// The part that all workers share.
    pub snapshot: Arc<Snapshot>,
    /// How often servers of upstreams had changed when the pools were made.
    pub moves: u64,
    pub pools: IdVec<UpstreamId, Rc<upstream::Pool<RequestBody>>>,
    /// Turns of the table's choices among upstreams.
    pub turns: IdVec<ChoiceId, EvenNumbers>,
    /// Lately verified credentials, by authentication method.
    pub caches: IdVec<AuthMethodId, Rc<auth::cache::Cache>>,
}
