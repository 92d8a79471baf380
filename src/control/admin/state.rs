//! What the pages show, as values and functions that `app` fills in, so that `admin` depends on no module of its
//! floor.

use std::pin::Pin;
use std::sync::Arc;

use serde_json::Value;

use super::access::AccessRules;
use super::control::ControlPlane;
use super::counts::LimitCounts;
use super::explain::ExplainRequest;
use super::live::LiveFeed;
use super::readiness::Readiness;
use metrics::Metrics;
use observe::record::decisions::SampleMemory;

/// A text that may have to wait for Redis.
pub type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// Answers a question, which may take a while.
pub type Asked<Q, A> = Box<dyn Fn(Q) -> Pin<Box<dyn Future<Output = A> + Send>> + Send + Sync>;

/// Answers questions by a copy of `known` for each.
pub fn asked<K, Q, A, F>(known: K, answer: impl Fn(K, Q) -> F + Send + Sync + 'static) -> Asked<Q, A>
where
    K: Clone + Send + Sync + 'static,
    F: Future<Output = A> + Send + 'static,
{
    Box::new(move |question| Box::pin(answer(known.clone(), question)))
}

/// Maps a policy's name and values, and the tenant that the key's consumer acts for, to the page of that key.
pub type KeyReader = Box<dyn Fn(&str, &[String], Option<&str>) -> Option<Text> + Send + Sync>;

pub type PolicyReader = Box<dyn Fn(&str) -> Option<Value> + Send + Sync>;

/// The nodes that share limits, and the Redis through which they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FleetNodes {
    pub count: u32,
    pub shards: usize,
    /// How many of these are not asked now, because they do not answer or refuse.
    pub shards_away: usize,
}

/// What the admin listener shows, and its rules for clients.
#[derive(derive_more::Debug)]
#[debug("AdminState({readiness:?})")]
pub struct AdminState {
    pub metrics: Arc<Metrics>,
    pub readiness: Readiness,
    /// The effective configuration as text, secrets masked: `/config`.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// The keys of a policy in force, by name, secrets masked: `/v1/policies/{id}`.
    pub policy: PolicyReader,
    /// The explanation of a request as JSON: `/v1/explain`. It spends nothing.
    pub explain: Asked<ExplainRequest, String>,
    /// Every upstream in force, and the state of its servers, as JSON: `/v1/upstreams`.
    pub upstreams: Box<dyn Fn() -> String + Send + Sync>,
    /// The page of one key as JSON, by the policy's name and a value for each of its dimensions:
    /// `/v1/keys/{policy}/{value}…`. `None` if there is no such policy, or it has other dimensions.
    pub key: KeyReader,
    /// What all who watch are shown each second: `/v1/live`.
    pub live: LiveFeed,
    /// The counts of limits: `/v1/limits:check` and its like.
    pub counts: LimitCounts,
    /// The nodes that share limits; `None`: this gateway counts alone.
    pub nodes: Box<dyn Fn() -> Option<FleetNodes> + Send + Sync>,
    /// The last samples of decisions, which `/v1/decisions` shows.
    pub decisions: Arc<SampleMemory>,
    /// How a key's name is shown now, whenever it was made, because `[privacy]` may have become stricter since.
    pub shown_key: Box<dyn Fn(&str) -> String + Send + Sync>,
    /// The database, if there is one.
    pub control: Option<ControlPlane>,
    pub access: AccessRules,
}
