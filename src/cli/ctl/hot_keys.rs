//! `sluicegate ctl hot-keys`: which keys use most of each policy.

use super::call::{Call, Column, View};
use crate::tips::whole;

#[derive(Debug, clap::Args)]
pub(super) struct HotKeys {
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// Over this number of last minutes
    #[arg(long, value_name = "MINUTES", default_value_t = 1, value_parser = whole::<u64>(1..=60))]
    minutes: u64,
    /// The maximum number of keys to show per policy
    #[arg(long, value_name = "KEYS", default_value_t = 5, value_parser = whole::<u64>(1..=20))]
    limit: u64,
}

impl HotKeys {
    pub(super) fn call(&self) -> Call {
        Call::get(&["v1", "hot-keys"], View::List("counted keys", COLUMNS))
            .with("policy", self.policy.as_ref())
            .with("minutes", Some(self.minutes))
            .with("limit", Some(self.limit))
    }
}

const COLUMNS: &[Column] = &[
    ("POLICY", "policy"),
    ("KEY", "key"),
    ("SHARD", "shard"),
    ("REQUESTS/S", "requests-per-second"),
    ("DENIED/S", "denied-per-second"),
    ("OF POLICY", "of-policy"),
    ("HOT", "hot"),
];
