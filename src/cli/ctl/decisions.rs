//! `sluicegate ctl decisions`: what a gateway decided last.

use super::call::{Call, Column, View};
use crate::tips::whole;

#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only the request with this id (x-request-id)
    #[arg(conflicts_with_all = ["consumer", "tenant", "policy"])]
    request_id: Option<String>,
    /// Only requests of this consumer
    #[arg(long)]
    consumer: Option<String>,
    /// Only requests of this tenant
    #[arg(long)]
    tenant: Option<String>,
    /// Only decisions by this policy
    #[arg(long)]
    policy: Option<String>,
    /// Only refusals
    #[arg(long, conflicts_with = "request_id")]
    refused: bool,
    /// The maximum number of decisions to show
    #[arg(long, value_name = "DECISIONS", default_value_t = 50, value_parser = whole::<u32>(..))]
    limit: u32,
}

impl Arguments {
    pub(super) fn call(&self) -> Call {
        if let Some(id) = &self.request_id {
            return Call::get(&["v1", "decisions", id], View::Inner("decisions", "windows", COLUMNS));
        }
        Call::get(&["v1", "decisions"], View::Inner("decisions", "windows", COLUMNS))
            .with("consumer", self.consumer.as_ref())
            .with("tenant", self.tenant.as_ref())
            .with("policy", self.policy.as_ref())
            .with("refused", self.refused.then_some("true"))
            .with("limit", Some(self.limit))
    }
}

const COLUMNS: &[Column] = &[
    ("TIME", "time"),
    ("REQUEST", "request-id"),
    ("NODE", "node"),
    ("ADMITTED", "admitted"),
    ("WINDOW", "window"),
    ("ALLOWED", "allowed"),
    ("SHADOW", "shadow"),
    ("KEY", "key"),
    ("LEFT", "remaining"),
    ("LIMIT", "limit"),
    ("DECIDED BY", "tier"),
    ("PASSES AT", "passes-at"),
];
