//! `sluicegate ctl tier`.

use anyhow::{anyhow, bail};
use http::Method;
use serde_json::json;

use super::call::{Call, ChangeOptions, Column, View, whole_number};

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the limits of all tiers by policy
    List,
    /// Show a tier's limit for a policy
    Show {
        tier: String,
        #[arg(value_name = "POLICY")]
        resource: String,
    },
    /// Set a tier's limit for a policy
    Put {
        tier: String,
        /// The policy, or * for those with `limit = "tier"`
        #[arg(value_name = "POLICY")]
        resource: String,
        /// Units per window; without --window, a limit as in gateway.toml: 10_000/month
        #[arg(long)]
        limit: String,
        /// The length of the window in seconds
        #[arg(long, value_name = "SECONDS", value_parser = whole_number)]
        window: Option<u64>,
        /// The burst as a multiple of the limit, beside --window; default: 1.2
        #[arg(long, value_name = "FACTOR")]
        burst: Option<f64>,
        /// token-bucket, sliding-window, fixed-window, sliding-log or leaky-bucket; default: the policy's
        #[arg(long)]
        algorithm: Option<String>,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Delete a tier's limit for a policy; gateway.toml applies again
    Delete {
        tier: String,
        #[arg(value_name = "POLICY")]
        resource: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Show the tier that is assigned to a consumer
    Of { consumer: String },
    /// Assign a tier to a consumer, whatever its credential says
    Assign {
        consumer: String,
        tier: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Remove the assigned tier
    Unassign {
        consumer: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

impl Command {
    pub(super) fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Command::List => Call::get(&["v1", "tiers"], View::List("limits of tiers", COLUMNS)),
            Command::Show { tier, resource } => Call::get(&["v1", "tiers", tier, resource], View::Row),
            Command::Put { tier, resource, limit, window, burst, algorithm, careful } => {
                let path = ["v1", "tiers", tier, resource];
                if burst.is_some() && window.is_none() {
                    bail!(
                        "--burst is a part of --limit, such as \"100/m burst 20\", or stands beside --window"
                    );
                }
                let units = window.map(|_| whole_number(limit)).transpose();
                let units = units
                    .map_err(|hint| anyhow!("--limit beside --window: {hint}, or leave --window out"))?;
                Call::change(Method::PUT, &path, careful, View::Row).body([
                    ("limit", window.is_none().then(|| json!(limit))),
                    ("limit-value", units.map(|units| json!(units))),
                    ("window-seconds", window.map(|window| json!(window))),
                    ("burst-multiplier", burst.map(|burst| json!(burst))),
                    ("algorithm", algorithm.as_ref().map(|word| json!(word))),
                ])
            }
            Command::Delete { tier, resource, careful } => {
                Call::delete(&["v1", "tiers", tier, resource], careful)
            }
            Command::Of { consumer } => Call::get(&["v1", "consumers", consumer, "tier"], View::Row),
            Command::Assign { consumer, tier, careful } => {
                let path = ["v1", "consumers", consumer, "tier"];
                Call::change(Method::PUT, &path, careful, View::Row).body([("tier", Some(json!(tier)))])
            }
            Command::Unassign { consumer, careful } => {
                let path = ["v1", "consumers", consumer, "tier"];
                Call::change(Method::DELETE, &path, careful, View::Done("unassigned"))
            }
        })
    }
}

const COLUMNS: &[Column] = &[
    ("TIER", "tier"),
    ("POLICY", "resource"),
    ("LIMIT", "limit-value"),
    ("WINDOW (S)", "window-seconds"),
    ("BURST", "burst-multiplier"),
    ("ALGORITHM", "algorithm"),
    ("CHANGED", "updated-at"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_do_not_fit_together_are_named() {
        let put = |limit: &str, window, burst| {
            let (tier, resource, limit) = ("pro".to_owned(), "calls".to_owned(), limit.to_owned());
            let careful = ChangeOptions::default();
            Command::Put { tier, resource, limit, window, burst, algorithm: None, careful }.call()
        };
        let said = |limit, window, burst| put(limit, window, burst).expect_err("they do not fit").to_string();
        assert!(
            said("100/m", None, Some(2.0)).contains("such as \"100/m burst 20\", or stands beside --window")
        );
        assert!(said("100/m", Some(60), None).starts_with("--limit beside --window: write a whole number"));
        assert!(put("100", Some(60), Some(2.0)).is_ok() && put("100/m burst 20", None, None).is_ok());
    }
}
