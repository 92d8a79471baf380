//! What the rest of the process hands the admin listener, as values and functions: it knows none of their parts.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use super::access::Access;
use super::explain::ExplainRequest;
use super::readiness::Readiness;
use crate::metrics::Metrics;

/// A text that may have to be waited for.
pub type Text = Pin<Box<dyn Future<Output = String> + Send>>;

/// From a policy's name and values to what is shown of that key.
pub type KeyReader = Box<dyn Fn(&str, &[String]) -> Option<Text> + Send + Sync>;

/// What the admin listener shows, and its rules for clients.
pub struct State {
    /// Shown at `/metrics`.
    pub metrics: Arc<Metrics>,
    /// Shown at `/readyz`.
    pub readiness: Readiness,
    /// The effective configuration as text, secrets masked: `/config`.
    pub config: Box<dyn Fn() -> String + Send + Sync>,
    /// What would become of a request, as JSON, without spending anything: `/v1/explain`.
    pub explain: Box<dyn Fn(&ExplainRequest) -> Text + Send + Sync>,
    /// One key of a policy, by the policy's name and a value for each of its dimensions, as JSON; `None` if there is no
    /// such policy, or it has other dimensions: `/v1/keys/{policy}/{value}…`.
    pub key: KeyReader,
    /// The rules for clients.
    pub access: Access,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("State").field("readiness", &self.readiness).finish_non_exhaustive()
    }
}
