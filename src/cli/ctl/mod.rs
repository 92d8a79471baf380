//! `sluicegate ctl`: what the admin API does by HTTP, by command: limits, policies, tiers, API keys, counts, the audit.
//!
//! Each kind of row is a file that turns arguments into a `Call` and says which columns a list has. `send.rs` asks the
//! gateway and prints: tables for people, JSON for programs.

mod audit;
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
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, bail};

use super::admin_client::{AdminClient, Place, Secure};
use crate::config;
use crate::trust::{Shown, Trust};
use call::Call;

/// What to do, and where. Clap shows these comments as the help text.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The admin listener, as http://127.0.0.1:9900, https://10.0.0.7:9900 or unix:/run/sluicegate/admin.sock; without it that of --config
    #[arg(long, global = true, value_parser = place)]
    url: Option<Place>,
    /// The file of the bearer token; without it the variable SLUICEGATE_TOKEN, or `token` of [admin] in --config
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The certificate to show as who one is: PEM, with its chain
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long = "key", global = true, value_name = "FILE", requires = "cert")]
    private_key: Option<PathBuf>,
    /// The authorities that the listener's certificate is verified by; without it the system's, and of the listener of
    /// gateway.toml the certificates that it names
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Print the answer as JSON
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Limits of single consumers and tenants, for a while
    #[command(subcommand)]
    Override(overrides::Command),
    /// The limit of one consumer for one policy, for good
    #[command(subcommand)]
    Limit(limits::Command),
    /// Policies that go before those of gateway.toml
    #[command(subcommand)]
    Policy(policies::Command),
    /// Limits of tiers, and the tiers of consumers
    #[command(subcommand)]
    Tier(tiers::Command),
    /// API keys
    #[command(subcommand)]
    Key(keys::Command),
    /// What a consumer or a tenant has spent
    Usage(usage::Usage),
    /// Which keys use most of each policy
    HotKeys(hot_keys::HotKeys),
    /// Let a consumer or a tenant begin anew: nothing is spent
    Reset(usage::Reset),
    /// Give units of a policy back
    Grant(usage::Grant),
    /// Say whether somebody may spend units of a policy
    Check(usage::Check),
    /// What a gateway decided last about requests, the newest first
    Decisions(decisions::Arguments),
    /// Who changed what, the newest first
    Audit(audit::Arguments),
}

fn place(text: &str) -> Result<Place, &'static str> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(Place::Unix(path.into()));
    }
    let (authority, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(authority), _) => (authority, false),
        (None, Some(authority)) => (authority, true),
        (None, None) => return Err("write it as http://HOST:PORT, https://HOST:PORT or unix:/PATH"),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = authority.rsplit_once(':').ok_or("write its port, as in http://127.0.0.1:9900")?;
    match !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() {
        true if is_tls => Ok(Place::Tls(Secure { authority: authority.to_owned(), ..Secure::default() })),
        true => Ok(Place::Tcp(authority.to_owned())),
        false => Err("write it as http://HOST:PORT, https://HOST:PORT or unix:/PATH"),
    }
}

/// Does what was asked, and prints the answer.
///
/// # Errors
/// If no gateway answers, or it refuses.
pub fn run(arguments: &Arguments, file: &Path, out: &mut dyn Write) -> anyhow::Result<()> {
    let call = arguments.what.call()?;
    let client = client(arguments, file)?;
    send::send(&client, call, arguments.json, out)
}

impl Arguments {
    /// The place with the certificates that were named.
    fn shown_to(&self, place: Place) -> anyhow::Result<Place> {
        let shown = self.cert.clone().zip(self.private_key.clone()).map(|(cert, key)| Shown { cert, key });
        match place {
            Place::Tls(Secure { authority, trust, own }) => {
                let verify = trust.verify || self.ca.is_some();
                let trust = Trust { ca: self.ca.clone(), shown, verify, ..trust };
                Ok(Place::Tls(Secure { authority, trust, own }))
            }
            _ if shown.is_some() || self.ca.is_some() => {
                bail!("--cert, --key and --ca are for a listener with TLS: write --url https://HOST:PORT")
            }
            other => Ok(other),
        }
    }
}

impl What {
    fn call(&self) -> anyhow::Result<Call> {
        match self {
            What::Override(command) => command.call(),
            What::Policy(command) => command.call(),
            What::Tier(command) => command.call(),
            What::Key(command) => command.call(),
            What::Limit(command) => Ok(command.call()),
            What::Usage(arguments) => Ok(arguments.call()),
            What::Reset(arguments) => Ok(arguments.call()),
            What::HotKeys(arguments) => Ok(arguments.call()),
            What::Grant(arguments) => Ok(arguments.call()),
            What::Check(arguments) => Ok(arguments.call()),
            What::Decisions(arguments) => Ok(arguments.call()),
            What::Audit(arguments) => Ok(arguments.call()),
        }
    }
}

/// Whom to ask, and as whom. A token by name is never taken from gateway.toml: the audit would name somebody else.
fn client(arguments: &Arguments, file: &Path) -> anyhow::Result<AdminClient> {
    let given = match &arguments.token_file {
        Some(path) => {
            let text = fs::read_to_string(path);
            let text = text.with_context(|| format!("{} cannot be read", path.display()))?;
            Some(text.trim().to_owned())
        }
        None => env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()),
    };
    if let Some(place) = &arguments.url {
        return Ok(AdminClient::new(arguments.shown_to(place.clone())?, given, WITHIN));
    }
    let loaded = match config::load(file) {
        Ok(loaded) => loaded,
        Err(errors) => bail!("{errors}\n\n--url names a gateway without a file"),
    };
    let admin = loaded.config.admin.context("gateway.toml turns the admin listener off: `admin = false`")?;
    let place = arguments.shown_to(Place::of(&admin))?;
    // Who shows a certificate is its bearer, and not that of the file's token.
    let token = given.or(admin.token.filter(|_| arguments.cert.is_none()));
    Ok(AdminClient::new(place, token, WITHIN))
}

/// The token to send.
const TOKEN_VARIABLE: &str = "SLUICEGATE_TOKEN";
/// For one request. A change waits for the database for five seconds at most, and two more to be in force.
const WITHIN: Duration = Duration::from_secs(15);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_admin_listeners() {
        let tcp = |text: &str| Ok(Place::Tcp(text.to_owned()));
        assert_eq!(place("http://127.0.0.1:9900"), tcp("127.0.0.1:9900"));
        assert_eq!(place("http://[::1]:9900/"), tcp("[::1]:9900"));
        assert_eq!(place("http://gw.internal:80"), tcp("gw.internal:80"));
        let secure = Secure { authority: "gw:1".to_owned(), ..Secure::default() };
        assert!(secure.trust.verify);
        assert_eq!(place("https://gw:1"), Ok(Place::Tls(secure)));
        assert_eq!(place("unix:/run/a.sock"), Ok(Place::Unix("/run/a.sock".into())));
        for wrong in ["", "unix:", "127.0.0.1:9900", "http://a", "http://:1", "http://a:x", "http://a/b:1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
