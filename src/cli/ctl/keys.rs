//! `sluicegate ctl key`.

use http::Method;
use serde_json::json;

use super::call::{Call, ChangeOptions, Column, View, duration_text};
use crate::hash_key::{by_name, claim};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the keys of the database by digest
    List {
        /// Only keys of this consumer
        #[arg(long)]
        consumer: Option<String>,
    },
    /// Show a key
    Show { digest: String },
    /// Create a key; it is shown only once
    Add {
        consumer: String,
        #[arg(long)]
        tenant: Option<String>,
        #[arg(long)]
        tier: Option<String>,
        /// A claim, as "name=value"; can be repeated
        #[arg(long = "claim", value_parser = claim)]
        claims: Vec<(String, String)>,
        /// How long it is valid, such as 90d; default: until it is disabled
        #[arg(long = "for", value_name = "DURATION", value_parser = duration_text)]
        duration: Option<String>,
        /// Print what would be done, without doing it
        #[arg(long)]
        dry_run: bool,
    },
    /// Disable a key
    Disable {
        digest: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Enable a disabled key
    Enable {
        digest: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Delete a key
    Delete {
        digest: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

impl Command {
    pub(super) fn call(&self) -> anyhow::Result<Call> {
        let switch = |digest: &str, careful: &ChangeOptions, disabled: bool| {
            Call::change(Method::PATCH, &["v1", "api-keys", digest], careful, View::Row)
                .body([("disabled", Some(json!(disabled)))])
        };
        Ok(match self {
            Command::List { consumer } => Call::get(&["v1", "api-keys"], View::List(LISTED, COLUMNS))
                .with("consumer", consumer.as_ref()),
            Command::Show { digest } => Call::get(&["v1", "api-keys", digest], View::Row),
            Command::Add { consumer, tenant, tier, claims, duration, dry_run } => {
                let careful = ChangeOptions::only_dry(*dry_run);
                Call::change(Method::POST, &["v1", "api-keys"], &careful, View::Row).body([
                    ("consumer", Some(json!(consumer))),
                    ("tenant", tenant.as_ref().map(|tenant| json!(tenant))),
                    ("tier", tier.as_ref().map(|tier| json!(tier))),
                    ("claims", Some(json!(by_name(claims)))),
                    ("duration", duration.as_ref().map(|duration| json!(duration))),
                ])
            }
            Command::Disable { digest, careful } => switch(digest, careful, true),
            Command::Enable { digest, careful } => switch(digest, careful, false),
            Command::Delete { digest, careful } => Call::delete(&["v1", "api-keys", digest], careful),
        })
    }
}

const LISTED: &str = "API keys of the database; those of files are not listed";
const COLUMNS: &[Column] = &[
    ("DIGEST", "digest"),
    ("CONSUMER", "consumer"),
    ("TENANT", "tenant"),
    ("TIER", "tier"),
    ("DISABLED", "disabled"),
    ("UNTIL", "expires-at"),
];
