//! `sluicegate ctl tier`.

use anyhow::{anyhow, bail};
use config::limits::limit_text;
use http::Method;
use policy::counting::shorthand;
use policy::definition::BY_CALENDAR;
use serde_json::{Map, Value, json};

use super::call::{Call, ChangeOptions, Column, View, factor, whole_number};
use super::table;

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
        #[arg(long, value_name = "FACTOR", value_parser = factor)]
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
            Command::List => Call::get(&["v1", "tiers"], View::Tiers),
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

/// The rows of a page, each with its limit as gateway.toml has it.
pub(super) fn list(page: &Map<String, Value>) -> String {
    let mut page = page.clone();
    for row in page.get_mut("items").and_then(Value::as_array_mut).into_iter().flatten() {
        row["limit"] = limit_of(row).into();
    }
    table::list("limits of tiers", COLUMNS, &page)
}

/// `10_000/month`; `None` if it is not a row of this version.
fn limit_of(row: &Value) -> Option<String> {
    let (units, seconds) = (row["limit-value"].as_u64()?, row["window-seconds"].as_u64()?);
    let unit = row["algorithm"].as_str().and_then(|word| word.strip_prefix(BY_CALENDAR));
    let period = unit.map_or_else(|| shorthand::show_period(seconds), str::to_owned);
    Some(format!("{}/{period}", limit_text::show_units(units)))
}

const COLUMNS: &[Column] = &[
    ("TIER", "tier"),
    ("POLICY", "resource"),
    ("LIMIT", "limit"),
    ("BURST", "burst-multiplier"),
    ("ALGORITHM", "algorithm"),
    ("CHANGED", "updated-at"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_listed_as_gateway_toml_has_it() {
        let row = |units: u64, seconds: u64, algorithm: Option<&str>| {
            json!({
                "tier": "pro", "resource": "*", "limit-value": units, "window-seconds": seconds,
                "burst-multiplier": 1.2, "algorithm": algorithm, "updated-at": "now",
            })
        };
        let rows = [
            row(10_000, 2_678_400, Some("calendar-month")),
            row(1_000_000, 86_400, None),
            row(600, 60, Some("fixed-window")),
            row(5, 90, None),
        ];
        let page = json!({ "items": rows });
        let Value::Object(page) = page else { return };
        let listed = list(&page);
        for limit in ["10_000/month", "1_000_000/d", "600/m", "5/90s"] {
            assert!(listed.contains(&format!("pro   *       {limit} ")), "{listed}");
        }
    }

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
