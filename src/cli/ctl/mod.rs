//! `sluicegate ctl`: what the admin API does by HTTP, by command: limits, policies, tiers, API keys, counts, the audit.
//!
//! Each kind of row is a file that turns arguments into a `Call` and says which columns a list has. `send.rs` asks the
//! gateway and prints: tables for people, JSON for programs.

mod audit;
mod blocks;
mod call;
mod decisions;
mod hot_keys;
mod keys;
mod limits;
mod overrides;
mod policies;
mod send;
pub(super) mod table;
mod tiers;
mod usage;

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::admin_target::AdminTarget;
use blocks::{BlockCommand, UnlimitedCommand};
use call::Call;

/// What to do, and where. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    #[command(flatten)]
    whom: AdminTarget,
    /// Print the response as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: Resource,
}

#[derive(Debug, clap::Subcommand)]
enum Resource {
    /// Limits of single consumers and tenants
    #[command(subcommand)]
    Override(overrides::Command),
    /// Block consumers, tenants, addresses or other values
    #[command(subcommand)]
    Block(BlockCommand),
    /// Exempt consumers, tenants, addresses or other values from all limits
    #[command(subcommand)]
    Unlimited(UnlimitedCommand),
    /// The permanent limit of one consumer for one policy
    #[command(subcommand)]
    Limit(limits::Command),
    /// Policies that take precedence over those of gateway.toml
    #[command(subcommand)]
    Policy(policies::Command),
    /// Limits of tiers, and the tiers of consumers
    #[command(subcommand)]
    Tier(tiers::Command),
    /// API keys
    #[command(subcommand)]
    Key(keys::Command),
    /// Usage of a consumer or a tenant
    Usage(usage::Usage),
    /// The busiest keys of each policy
    HotKeys(hot_keys::HotKeys),
    /// Reset the usage of a consumer or a tenant
    Reset(usage::Reset),
    /// Refund units of a policy
    Grant(usage::Grant),
    /// Check whether a client may spend units of a policy
    Check(usage::Check),
    /// A gateway's last decisions on requests, the newest first
    Decisions(decisions::Arguments),
    /// Who changed what, the newest first
    Audit(audit::Arguments),
}

/// Does what was asked, and prints the answer.
///
/// # Errors
/// If no gateway answers, or it refuses.
pub fn run(arguments: &Arguments, file: &Path, out: &mut dyn Write, _: &mut dyn Write) -> anyhow::Result<u8> {
    let call = arguments.what.call()?;
    let client = arguments.whom.client(file, WITHIN, |admin| admin.token.as_deref())?;
    match &arguments.what {
        Resource::Block(command) => command.confirm(&client)?,
        Resource::Unlimited(command) => command.confirm(&client)?,
        Resource::Override(overrides::Command::Delete { id, .. }) => {
            blocks::expect(&client, id, &["absolute", "multiplicative"])?;
        }
        _ => {}
    }
    send::send(&client, call, arguments.json, out)?;
    Ok(0)
}

impl Resource {
    fn call(&self) -> anyhow::Result<Call> {
        match self {
            Resource::Override(command) => command.call(),
            Resource::Block(command) => Ok(command.call()),
            Resource::Unlimited(command) => Ok(command.call()),
            Resource::Policy(command) => command.call(),
            Resource::Tier(command) => command.call(),
            Resource::Key(command) => command.call(),
            Resource::Limit(command) => Ok(command.call()),
            Resource::Usage(arguments) => Ok(arguments.call()),
            Resource::Reset(arguments) => Ok(arguments.call()),
            Resource::HotKeys(arguments) => Ok(arguments.call()),
            Resource::Grant(arguments) => Ok(arguments.call()),
            Resource::Check(arguments) => Ok(arguments.call()),
            Resource::Decisions(arguments) => Ok(arguments.call()),
            Resource::Audit(arguments) => Ok(arguments.call()),
        }
    }
}

/// For one request: so long, because a change waits for the database for five seconds at most, and two more to be in
/// force.
const WITHIN: Duration = Duration::from_secs(15);
