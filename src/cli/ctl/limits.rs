//! `sluicegate ctl limit`: the limit of one consumer for one policy, for good.

use http::Method;
use serde_json::json;

use super::call::{Call, ChangeOptions, View, whole_number};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// Show the consumer's own limit for a policy
    #[command(alias = "get")]
    Show { consumer: String, policy: String },
    /// Set the limit, until it is deleted
    #[command(alias = "set")]
    Put {
        consumer: String,
        policy: String,
        /// Units of the policy's first window
        #[arg(value_parser = whole_number)]
        limit: u64,
        /// The reason, for the audit log
        #[arg(long)]
        reason: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Delete the limit; the policy's applies again
    Delete {
        consumer: String,
        policy: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

impl Command {
    pub(super) fn call(&self) -> Call {
        match self {
            Command::Show { consumer, policy } => Call::get(&["v1", "limits", consumer, policy], View::Row),
            Command::Put { consumer, policy, limit, reason, careful } => {
                let path = ["v1", "limits", consumer, policy];
                Call::change(Method::PUT, &path, careful, View::Row)
                    .body([("limit", Some(json!(limit))), ("reason", Some(json!(reason)))])
            }
            Command::Delete { consumer, policy, careful } => {
                let path = ["v1", "limits", consumer, policy];
                Call::delete(&path, careful)
            }
        }
    }
}
