//! Which gateway a command asks, and as whom.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{env, fs};

use anyhow::{Context, bail};

use super::admin_client::{AdminAddress, AdminClient, TOKEN_VARIABLE, TlsOptions};
use config::Errors;
use control::admin;
use net::trust::{ClientPair, Trust};

/// The listener to ask, and what is shown to it. Clap shows these comments as the help text.
#[derive(Debug, Default, clap::Args)]
#[command(next_help_heading = "Connection")]
pub(super) struct AdminTarget {
    /// The admin listener, as http://127.0.0.1:9900, https://10.0.0.7:9900 or unix:/run/sluicegate/admin.sock; default:
    /// that of --config
    #[arg(long = "url", value_name = "URL", global = true, value_parser = place)]
    pub(super) place: Option<AdminAddress>,
    /// The file of the bearer token; default: the variable SLUICEGATE_TOKEN, then, without --url, `token` of [admin] in
    /// --config
    #[arg(long, global = true, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// The client certificate, with its chain, in PEM
    #[arg(long, global = true, value_name = "FILE", requires = "private_key")]
    cert: Option<PathBuf>,
    /// Its private key
    #[arg(long = "key", global = true, value_name = "FILE", requires = "cert")]
    private_key: Option<PathBuf>,
    /// The CAs that verify the listener's certificate; default: the system's and, for the listener of gateway.toml, the
    /// certificates that it names
    #[arg(long, global = true, value_name = "FILE")]
    ca: Option<PathBuf>,
}

fn place(text: &str) -> Result<AdminAddress, &'static str> {
    if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
        return Ok(AdminAddress::Unix(path.into()));
    }
    let (authority, is_tls) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
        (Some(authority), _) => (authority, false),
        (None, Some(authority)) => (authority, true),
        (None, None) => return Err("write it as http://HOST:PORT, https://HOST:PORT or unix:/PATH"),
    };
    let authority = authority.strip_suffix('/').unwrap_or(authority);
    let (host, port) = authority.rsplit_once(':').ok_or("write its port: http://127.0.0.1:9900")?;
    match !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok() {
        true if is_tls => {
            Ok(AdminAddress::Tls(TlsOptions { authority: authority.to_owned(), ..TlsOptions::default() }))
        }
        true => Ok(AdminAddress::Tcp(authority.to_owned())),
        false => Err("write it as http://HOST:PORT, https://HOST:PORT or unix:/PATH"),
    }
}

impl AdminTarget {
    /// What asks it, so long for one answer, with the token that `own` takes from gateway.toml where none is given. What
    /// changes something takes none with a name, because the audit would name somebody else.
    ///
    /// # Errors
    /// If the file or the token cannot be read, or arguments do not fit together.
    pub(super) fn client(
        &self,
        file: &Path,
        within: Duration,
        own: impl Fn(&admin::Config) -> Option<&str>,
    ) -> anyhow::Result<AdminClient> {
        if let Some(place) = &self.place {
            return Ok(AdminClient::new(self.shown_to(place.clone())?, self.token()?, within));
        }
        let loaded = config::load(file).map_err(Errors::without_warnings).with_context(|| {
            format!(
                "without a valid configuration file, name the gateway with --url, and its token with {TOKEN_VARIABLE}"
            )
        })?;
        let admin = loaded.config.admin.context(
            "gateway.toml turns the admin listener off (`admin = false`): turn it on, or name a gateway with --url",
        )?;
        self.of(&admin, own(&admin), within)
    }

    /// What asks the listener of a configuration, with this token where none is given.
    pub(super) fn of(
        &self,
        admin: &admin::Config,
        own: Option<&str>,
        within: Duration,
    ) -> anyhow::Result<AdminClient> {
        // Not with a certificate, because who shows one is its bearer, and not that of the file's token.
        let own = own.filter(|_| self.cert.is_none()).map(str::to_owned);
        Ok(AdminClient::new(self.shown_to(AdminAddress::of(admin))?, self.token()?.or(own), within))
    }

    fn token(&self) -> anyhow::Result<Option<String>> {
        let Some(path) = &self.token_file else {
            return Ok(env::var(TOKEN_VARIABLE).ok().filter(|token| !token.is_empty()));
        };
        let text = fs::read_to_string(path).with_context(|| format!("{} cannot be read", path.display()))?;
        match text.trim() {
            "" => bail!("{} is empty: write the token into it", path.display()),
            token => Ok(Some(token.to_owned())),
        }
    }

    fn shown_to(&self, place: AdminAddress) -> anyhow::Result<AdminAddress> {
        let shown =
            self.cert.clone().zip(self.private_key.clone()).map(|(cert, key)| ClientPair { cert, key });
        match place {
            AdminAddress::Tls(TlsOptions { authority, trust, own }) => {
                // Verified with `--ca`, too, because that says whom to trust.
                let verify = trust.verify || self.ca.is_some();
                let trust = Trust { ca: self.ca.clone(), shown, verify, ..trust };
                Ok(AdminAddress::Tls(TlsOptions { authority, trust, own }))
            }
            _ if shown.is_some() || self.ca.is_some() => {
                bail!("--cert, --key and --ca need a listener with TLS: write --url https://HOST:PORT")
            }
            other => Ok(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_of_admin_listeners() {
        let tcp = |text: &str| Ok(AdminAddress::Tcp(text.to_owned()));
        assert_eq!(place("http://127.0.0.1:9900"), tcp("127.0.0.1:9900"));
        assert_eq!(place("http://[::1]:9900/"), tcp("[::1]:9900"));
        assert_eq!(place("http://gw.internal:80"), tcp("gw.internal:80"));
        let secure = TlsOptions { authority: "gw:1".to_owned(), ..TlsOptions::default() };
        assert!(secure.trust.verify);
        assert_eq!(place("https://gw:1"), Ok(AdminAddress::Tls(secure)));
        assert_eq!(place("unix:/run/a.sock"), Ok(AdminAddress::Unix("/run/a.sock".into())));
        for wrong in ["", "unix:", "127.0.0.1:9900", "http://a", "http://:1", "http://a:x", "http://a/b:1"] {
            assert!(place(wrong).is_err(), "{wrong}");
        }
    }
}
