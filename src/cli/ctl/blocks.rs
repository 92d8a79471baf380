//! `sluicegate ctl block` and `sluicegate ctl unlimited`: overrides that refuse somebody, or that no limit counts.

use std::io::{self, IsTerminal, Write};

use anyhow::bail;
use http::Method;
use serde_json::{Value, json};

use super::call::{Call, ChangeOptions, Column, View, duration_text};
use super::send;
use crate::admin_client::AdminClient;
use crate::tips::whole;

/// Clap's own range would take every status between the two.
fn block_status(text: &str) -> Result<u16, &'static str> {
    text.parse().ok().filter(|status| [403, 429].contains(status)).ok_or("write 403 or 429")
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum BlockCommand {
    /// Refuse a consumer, a tenant, an address or another value from now on
    Add {
        #[command(flatten)]
        whose: Whose,
        /// The status of the responses: 403, or 429 with Retry-After
        #[arg(long, default_value_t = 403, value_parser = block_status)]
        status: u16,
        /// Do not ask before your own address is blocked
        #[arg(long)]
        yes: bool,
    },
    #[command(flatten)]
    Other(RowCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum UnlimitedCommand {
    /// Exempt a consumer, a tenant, an address or another value from all limits
    Add {
        #[command(flatten)]
        whose: Whose,
        /// Exempt every client, if the range has all addresses
        #[arg(long)]
        yes: bool,
    },
    #[command(flatten)]
    Other(RowCommand),
}

#[derive(Debug, clap::Subcommand)]
pub(super) enum RowCommand {
    /// List the entries in force, the newest first
    List {
        /// Include expired ones, which are kept for a day
        #[arg(long)]
        expired: bool,
        /// The maximum number of rows to show; default: all
        #[arg(long, value_name = "ROWS", value_parser = whole::<u32>(..))]
        limit: Option<u32>,
    },
    /// Show an entry
    Show { id: String },
    /// End an entry now
    Delete {
        id: String,
        #[command(flatten)]
        careful: ChangeOptions,
    },
}

#[derive(Debug, clap::Args)]
#[command(group(clap::ArgGroup::new("whose").required(true).multiple(true).args(["user", "tenant", "ip", "subject"])))]
pub(super) struct Whose {
    /// The consumer
    #[arg(long, value_name = "CONSUMER", conflicts_with_all = ["ip", "subject"])]
    user: Option<String>,
    /// The tenant; with --user: only while the consumer acts for it
    #[arg(long, conflicts_with_all = ["ip", "subject"])]
    tenant: Option<String>,
    /// The address, or the range of addresses, such as 203.0.113.0/24
    #[arg(long, value_name = "ADDRESS", conflicts_with = "subject")]
    ip: Option<String>,
    /// A value of another dimension, such as header:x-device=a7
    #[arg(long, value_name = "DIMENSION=VALUE")]
    subject: Option<String>,
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

impl Whose {
    /// Whether it is a range of all addresses.
    fn is_everybody(&self) -> bool {
        let subject = self.subject.as_ref().and_then(|subject| subject.strip_prefix("ip="));
        self.ip.as_deref().or(subject).is_some_and(|range| range.ends_with("/0"))
    }

    fn call(&self, kind: &str, status: Option<u16>, is_dry: bool) -> Call {
        let text = |text: &Option<String>| text.clone().map(Value::from);
        let subject = self.ip.as_ref().map(|ip| format!("ip={ip}")).or_else(|| self.subject.clone());
        Call::change(Method::POST, &PATH, &ChangeOptions::only_dry(is_dry), View::Row).body([
            ("user-id", text(&self.user)),
            ("tenant-id", text(&self.tenant)),
            ("subject", text(&subject)),
            ("override-type", Some(kind.into())),
            ("value", status.map(|status| json!(status))),
            ("duration", text(&self.duration)),
            ("reason", Some(self.reason.clone().into())),
        ])
    }
}

impl RowCommand {
    fn call(&self, kind: &str, of: &'static str, columns: &'static [Column]) -> Call {
        match self {
            RowCommand::List { expired, limit } => Call::get(&PATH, View::List(of, columns))
                .with("override-type", Some(kind))
                .with("newest", Some(true))
                .with("expired", expired.then_some(true))
                .with("limit", *limit),
            RowCommand::Show { id } => Call::get(&["v1", "overrides", id], View::Row),
            RowCommand::Delete { id, careful } => Call::delete(&["v1", "overrides", id], careful),
        }
    }
}

impl BlockCommand {
    pub(super) fn call(&self) -> Call {
        match self {
            BlockCommand::Add { whose, status, .. } => whose.call("block", Some(*status), whose.dry_run),
            BlockCommand::Other(listed) => listed.call("block", "blocks", BLOCKS),
        }
    }

    /// Asks whether the caller's own address is to be blocked, if it is.
    ///
    /// # Errors
    /// If it is not, nobody can be asked, or the gateway refuses.
    pub(super) fn confirm(&self, client: &AdminClient) -> anyhow::Result<()> {
        if let BlockCommand::Other(RowCommand::Delete { id, .. }) = self {
            return expect(client, id, &["block"]);
        }
        let BlockCommand::Add { whose, status, yes: false } = self else { return Ok(()) };
        if whose.dry_run || whose.ip.is_none() && whose.subject.is_none() {
            return Ok(());
        }
        // Asked of the gateway, because only it knows from which address the caller comes.
        let answer = send::ask(client, &whose.call("block", Some(*status), true), None)?;
        let own = answer.get("new").and_then(|new| new["own-address"].as_str());
        let Some(own) = own else { return Ok(()) };
        if !io::stdin().is_terminal() {
            bail!("this blocks your own address {own}: add --yes to block it");
        }
        let mut line = String::new();
        write!(io::stderr(), "this blocks your own address {own}; type \"yes\" to block it: ")?;
        io::stdin().read_line(&mut line)?;
        if line.trim() == "yes" { Ok(()) } else { bail!("nothing is blocked") }
    }
}

impl UnlimitedCommand {
    /// Whether the command may be sent.
    ///
    /// # Errors
    /// If it exempts every client without `--yes`, the entry to end is no exemption, or the gateway refuses.
    pub(super) fn confirm(&self, client: &AdminClient) -> anyhow::Result<()> {
        match self {
            UnlimitedCommand::Other(RowCommand::Delete { id, .. }) => expect(client, id, &["unlimited"]),
            UnlimitedCommand::Add { whose, yes: false } if whose.is_everybody() && !whose.dry_run => {
                bail!("this exempts every client from all limits: add --yes to do so")
            }
            _ => Ok(()),
        }
    }

    pub(super) fn call(&self) -> Call {
        match self {
            UnlimitedCommand::Add { whose, .. } => whose.call("unlimited", None, whose.dry_run),
            UnlimitedCommand::Other(listed) => listed.call("unlimited", "exemptions", &BLOCKS[..UNLIMITED]),
        }
    }
}

/// Whether the override of this id is of one of these types, so that a wrong id ends nothing of another type.
///
/// # Errors
/// If it is of another, there is none, or the gateway refuses.
pub(super) fn expect(client: &AdminClient, id: &str, kinds: &[&str]) -> anyhow::Result<()> {
    let row = send::ask(client, &Call::get(&["v1", "overrides", id], View::Row), None)?;
    let kind = row.get("override-type").and_then(Value::as_str).unwrap_or_default();
    if kinds.contains(&kind) {
        return Ok(());
    }
    let command = if ["block", "unlimited"].contains(&kind) { kind } else { "override" };
    bail!("{id} is of another type: to end it, use `sluicegate ctl {command} delete {id}`")
}

const PATH: [&str; 2] = ["v1", "overrides"];
const BLOCKS: &[Column] = &[
    ("ID", "id"),
    ("CONSUMER", "user-id"),
    ("TENANT", "tenant-id"),
    ("SUBJECT", "subject"),
    ("UNTIL", "expires-at"),
    ("BY", "created-by"),
    ("REASON", "reason"),
    ("STATUS", "value"),
];
const UNLIMITED: usize = BLOCKS.len() - 1;
