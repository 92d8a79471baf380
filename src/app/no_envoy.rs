//! Stands for the gRPC listener in a binary that was built without the feature `rls`: `config` refuses it, so there is none.

use std::sync::Arc;

use tokio::task::JoinHandle;

use super::counts::Counts;
use super::sockets::listening::ListenerParts;
use control::admin::Readiness;
use metrics::WorkerToken;
use observe::record::decisions::SampleMemory;
use rls::Config;

pub(super) enum Rls {}

impl Rls {
    pub(super) fn new(
        _: Option<&Config>,
        _: &Counts,
        _: &Readiness,
        _: Vec<WorkerToken>,
        _: &Arc<SampleMemory>,
    ) -> Option<Rls> {
        None
    }

    pub(super) fn config(&self) -> &Config {
        match *self {}
    }

    pub(super) fn begin(self, _: ListenerParts) -> anyhow::Result<JoinHandle<()>> {
        match self {}
    }
}
