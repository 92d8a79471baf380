//! `sluicegate ctl usage`, and what changes it: `reset` and `grant`.

use http::Method;
use serde_json::json;

use super::call::{Call, ChangeOptions, Column, View, whole_number};
use crate::tips::whole;

#[derive(Debug, clap::Args)]
pub(super) struct Usage {
    /// Whether the name is a consumer's or a tenant's
    #[arg(value_parser = KINDS)]
    kind: String,
    name: String,
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// The tenant that the consumer acts for
    #[arg(long)]
    tenant: Option<String>,
    /// Show decisions minute by minute, over the last N minutes; without a number, a day
    #[arg(long, value_name = "MINUTES", num_args = 0..=1, default_missing_value = "1440",
        value_parser = whole::<u64>(1..=1440))]
    minutes: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(super) struct Reset {
    /// Whether the name is a consumer's or a tenant's
    #[arg(value_parser = KINDS)]
    kind: String,
    name: String,
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// The reason, for the audit log
    #[arg(long)]
    reason: String,
    /// Print what would be done, without doing it
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, clap::Args)]
pub(super) struct Grant {
    /// Whether the name is a consumer's or a tenant's
    #[arg(value_parser = KINDS)]
    kind: String,
    name: String,
    /// The policy, which must count by this dimension alone
    #[arg(long)]
    policy: String,
    /// How many units to refund
    #[arg(long, value_parser = whole_number)]
    units: u64,
    /// The reason, for the audit log
    #[arg(long)]
    reason: String,
    /// Print what would be done, without doing it
    #[arg(long)]
    dry_run: bool,
}

/// Whether somebody may spend units of a policy.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// The policy
    policy: String,
    /// The value of the dimension that it counts by; several values are joined by ":"
    key: String,
    /// Units; default: the policy's default cost
    #[arg(long, value_parser = whole_number)]
    cost: Option<u64>,
    /// Spend the units if the limits allow it
    #[arg(long)]
    spend: bool,
}

impl Usage {
    pub(super) fn call(&self) -> Call {
        let view = match self.minutes {
            None => View::Inner("policy in force counts by it", "windows", COLUMNS),
            Some(_) => View::Inner("minutes", "minutes", MINUTE_COLUMNS),
        };
        Call::get(&["v1", "usage", &self.kind, &self.name], view)
            .with("minutes", self.minutes)
            .with("policy", self.policy.as_ref())
            .with("tenant", self.tenant.as_ref())
    }
}

impl Reset {
    pub(super) fn call(&self) -> Call {
        let path = ["v1", "usage", &self.kind, &self.name, "reset"];
        Call::change(Method::POST, &path, &ChangeOptions::only_dry(self.dry_run), View::Row).body([
            ("policy", self.policy.as_ref().map(|policy| json!(policy))),
            ("reason", Some(json!(self.reason))),
        ])
    }
}

impl Grant {
    pub(super) fn call(&self) -> Call {
        let path = ["v1", "usage", &self.kind, &self.name, "grant"];
        Call::change(Method::POST, &path, &ChangeOptions::only_dry(self.dry_run), View::Row).body([
            ("policy", Some(json!(self.policy))),
            ("units", Some(json!(self.units))),
            ("reason", Some(json!(self.reason))),
        ])
    }
}

impl Check {
    pub(super) fn call(&self) -> Call {
        Call::change(Method::POST, &["v1", "limits:check"], &ChangeOptions::default(), View::Verdict).body([
            ("policy", Some(json!(self.policy))),
            ("key", Some(json!(self.key))),
            ("cost", self.cost.map(|cost| json!(cost))),
            ("dry", Some(json!(!self.spend))),
        ])
    }
}

const KINDS: [&str; 2] = ["consumer", "tenant"];
const MINUTE_COLUMNS: &[Column] = &[
    ("POLICY", "policy"),
    ("MINUTE", "at"),
    ("ADMITTED", "admitted"),
    ("DENIED", "denied"),
    ("UNITS", "units"),
];
const COLUMNS: &[Column] = &[
    ("POLICY", "policy"),
    ("WINDOW", "window"),
    ("LIMIT", "limit"),
    ("USED", "used"),
    ("LEASED", "leased"),
    ("LEFT", "remaining"),
    ("FULL AGAIN", "reset-at"),
    ("FROM", "from"),
];
