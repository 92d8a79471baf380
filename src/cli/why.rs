//! `sluicegate why`: what may keep a consumer out, as the gateway of a configuration and its fleet know it.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::admin_client::{encoded, target};
use super::admin_target::AdminTarget;
use base::words::plain_lines;
use control::admin;

/// Whom it is about. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The consumer, as authenticated
    #[arg(value_parser = clap::builder::NonEmptyStringValueParser::new())]
    consumer: String,
    /// Only this policy
    #[arg(long)]
    policy: Option<String>,
    /// The tenant that it acts for; default: that of its last refusal
    #[arg(long)]
    tenant: Option<String>,
    /// The tier of its credential, used if none is assigned to it
    #[arg(long)]
    tier: Option<String>,
    #[command(flatten)]
    whom: AdminTarget,
}

/// Prints a line for each fact.
///
/// # Errors
/// If no gateway answers, or it refuses.
pub fn run(arguments: &Arguments, file: &Path, out: &mut dyn Write, _: &mut dyn Write) -> anyhow::Result<u8> {
    let client = arguments.whom.client(file, PATIENCE, admin::Config::own_token)?;
    let shown = client.read(&arguments.target())?;
    out.write_all(plain_lines(shown["text"].as_str().unwrap_or_default()).as_bytes())?;
    Ok(0)
}

impl Arguments {
    fn target(&self) -> String {
        let given = [("policy", &self.policy), ("tenant", &self.tenant), ("tier", &self.tier)];
        let given = given.into_iter().filter_map(|(name, value)| Some((name, value.as_ref()?)));
        target(&format!("/v1/why/{}", encoded(&self.consumer)), given)
    }
}

/// So long, because Redis and a database are asked, each within seconds.
const PATIENCE: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_may_have_any_characters() {
        let arguments = Arguments {
            consumer: "a/b".to_owned(),
            policy: Some("x&y".to_owned()),
            tenant: None,
            tier: Some("pro".to_owned()),
            whom: AdminTarget::default(),
        };
        assert_eq!(arguments.target(), "/v1/why/a%2Fb?policy=x%26y&tier=pro");
    }
}
