//! `sluicegate ctl override`.

use http::Method;
use serde_json::{Value, json};

use super::call::{Call, ChangeOptions, Column, View, duration_text, factor, whole_number};
use crate::tips::whole;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Add an override for a consumer or a tenant
    Add(Add),
    /// List the overrides in force, the oldest first
    List {
        /// Only overrides of this consumer
        #[arg(long, value_name = "CONSUMER")]
        user: Option<String>,
        /// Only overrides of this tenant
        #[arg(long)]
        tenant: Option<String>,
        /// Only overrides for this policy alone
        #[arg(long)]
        policy: Option<String>,
        /// Include expired overrides, which are kept for a day
        #[arg(long)]
        expired: bool,
        /// The maximum number of rows to show; default: all
        #[arg(long, value_name = "ROWS", value_parser = whole::<u32>(..))]
        limit: Option<u32>,
    },
    /// Show an override
    Show { id: String },
    /// End an override now
    Delete {
        id: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).multiple(true).args(["user", "tenant"])))]
#[command(group(clap::ArgGroup::new("change").required(true).args(["value", "times"])))]
pub(super) struct Add {
    /// The consumer
    #[arg(long, value_name = "CONSUMER")]
    user: Option<String>,
    /// The tenant; with --user: only while the consumer acts for it
    #[arg(long)]
    tenant: Option<String>,
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// The limit of a policy's first window; its other windows change in proportion; 0 refuses every request
    #[arg(long, alias = "limit", value_parser = whole_number)]
    value: Option<u64>,
    /// The factor for limits and bursts
    #[arg(long, value_name = "FACTOR", value_parser = factor)]
    times: Option<f64>,
    /// How long, such as 10m or 1h30m; default: without end
    #[arg(long = "for", value_name = "DURATION", value_parser = duration_text)]
    duration: Option<String>,
    /// The reason, for the audit log
    #[arg(long)]
    reason: String,
    /// Print what would be done, without doing it
    #[arg(long)]
    dry_run: bool,
}

impl Command {
    pub(super) fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Command::Add(add) => add.call(),
            Command::List { user, tenant, policy, expired, limit } => {
                Call::get(&PATH, View::List("overrides", COLUMNS))
                    .with("user-id", user.as_ref())
                    .with("tenant-id", tenant.as_ref())
                    .with("policy", policy.as_ref())
                    .with("expired", expired.then_some(true))
                    .with("limit", *limit)
            }
            Command::Show { id } => Call::get(&["v1", "overrides", id], View::Row),
            Command::Delete { id, careful } => Call::delete(&["v1", "overrides", id], careful),
        })
    }
}

impl Add {
    fn call(&self) -> Call {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let (kind, value) = match self.times {
            Some(factor) => ("multiplicative", json!(factor)),
            None => ("absolute", json!(self.value)),
        };
        Call::change(Method::POST, &PATH, &ChangeOptions::only_dry(self.dry_run), View::Row).body([
            ("user-id", text(&self.user)),
            ("tenant-id", text(&self.tenant)),
            ("policy", text(&self.policy)),
            ("override-type", Some(kind.into())),
            ("value", Some(value)),
            ("duration", text(&self.duration)),
            ("reason", Some(self.reason.clone().into())),
        ])
    }
}

const PATH: [&str; 2] = ["v1", "overrides"];

const COLUMNS: &[Column] = &[
    ("ID", "id"),
    ("CONSUMER", "user-id"),
    ("TENANT", "tenant-id"),
    ("SUBJECT", "subject"),
    ("POLICY", "policy"),
    ("TYPE", "override-type"),
    ("VALUE", "value"),
    ("UNTIL", "expires-at"),
    ("BY", "created-by"),
    ("REASON", "reason"),
];
