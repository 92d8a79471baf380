//! `sluicegate ctl policy`.

use std::path::PathBuf;

use anyhow::Context;
use http::Method;
use serde_json::Value;

use super::call::{Call, ChangeOptions, Column, View};
use super::send::content;

#[derive(Debug, clap::Subcommand)]
pub(super) enum Command {
    /// List the policies of the database by name
    List,
    /// Show a policy
    Show { name: String },
    /// Write a policy; it replaces the one of the same name in gateway.toml
    Put {
        name: String,
        /// Its keys in TOML, alone or under [policy.NAME], or in JSON; "-" is standard input
        file: PathBuf,
        #[command(flatten)]
        careful: ChangeOptions,
    },
    /// Delete a policy; gateway.toml applies again
    Delete {
        name: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

impl Command {
    pub(super) fn call(&self) -> anyhow::Result<Call> {
        Ok(match self {
            Command::List => Call::get(&["v1", "policies"], View::List("policies of the database", COLUMNS)),
            Command::Show { name } => Call::get(&["v1", "policies", name], View::Row),
            Command::Put { name, file, careful } => {
                let document = document(name, &content(file)?)
                    .with_context(|| format!("{} is not a valid policy", file.display()))?;
                let mut call = Call::change(Method::PUT, &["v1", "policies", name], careful, View::Row);
                call.body = Some(document);
                call
            }
            Command::Delete { name, careful } => Call::delete(&["v1", "policies", name], careful),
        })
    }
}

/// The keys of a policy as the API takes them.
fn document(name: &str, text: &str) -> anyhow::Result<Value> {
    if text.trim_start().starts_with('{') {
        return Ok(serde_json::from_str(text)?);
    }
    let mut table: toml::Table = text.parse()?;
    match table.remove("policy") {
        None => Ok(serde_json::to_value(table)?),
        Some(toml::Value::Table(mut policies)) if table.is_empty() && policies.len() == 1 => {
            let own = policies.remove(name).with_context(|| format!("it has no [policy.{name}]"))?;
            Ok(serde_json::to_value(own)?)
        }
        Some(_) => anyhow::bail!("it must have [policy.{name}] and nothing else"),
    }
}

const COLUMNS: &[Column] =
    &[("POLICY", "id"), ("VERSION", "version"), ("CHANGED", "updated-at"), ("BY", "updated-by")];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn policies_are_read_as_they_stand_in_gateway_toml() {
        let keys = json!({ "by": ["consumer"], "limit": "5/s", "shadow": true });
        for text in [
            "by = [\"consumer\"]\nlimit = \"5/s\"\nshadow = true\n",
            "[policy.a]\nby = [\"consumer\"]\nlimit = \"5/s\"\nshadow = true\n",
            " {\"by\": [\"consumer\"], \"limit\": \"5/s\", \"shadow\": true}",
        ] {
            assert_eq!(document("a", text).expect("it is one"), keys, "{text}");
        }
        for text in
            ["[policy.b]\nlimit = \"5/s\"", "[policy.a]\n[policy.b]\n", "x = 1\n[policy.a]\n", "{", "limit ="]
        {
            assert!(document("a", text).is_err(), "{text}");
        }
    }
}
