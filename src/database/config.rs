//! The configuration of the database: where it is, and whether this node is the only one that has it. It opens nothing.

use std::fmt;
use std::path::PathBuf;

use sqlx::postgres::PgConnectOptions;

/// Where policies, tiers, overrides and keys are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Which database.
    pub url: Url,
    /// The password as it stands, in the place of one in the URL, where it would be percent-encoded.
    pub password: Option<Password>,
    /// Whether writes are allowed although the file of SQLite is no other node's and Redis is shared: the operator says
    /// that there is one node.
    pub single_node: bool,
    /// Of PostgreSQL: the file that the last good state is kept in, for a start without the database.
    pub copy: PathBuf,
}

impl Config {
    /// A database with the default of everything else.
    pub fn new(url: Url) -> Config {
        Config { url, password: None, single_node: false, copy: PathBuf::from(COPY_UNWRITTEN) }
    }
}

/// A database. `Debug` and `Display` show no user and no password.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    /// A file of this machine.
    Sqlite(PathBuf),
    /// A server, as libpq writes it: `postgres://user:password@host:port/name?sslmode=verify-full`. Valid as
    /// [`Url::postgres`] has checked it.
    Postgres(String),
}

/// A password that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub String);

impl fmt::Debug for Password {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Password(..)")
    }
}

/// Why a URL of PostgreSQL cannot be used. It quotes nothing of the URL but names of parameters.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    /// It begins otherwise.
    #[error("is neither a file of SQLite nor a server of PostgreSQL")]
    Scheme,
    /// Its parts cannot be told from each other, or one has no value that is known.
    #[error("is not a valid URL of PostgreSQL")]
    Unreadable,
    /// A parameter that would be ignored.
    #[error("has the parameter `{0}`, which is not known")]
    Parameter(String),
    /// The password is a parameter, where tools and logs do not look for one.
    #[error("has its password in a parameter")]
    Password,
}

impl Url {
    /// A URL of PostgreSQL.
    ///
    /// # Errors
    /// If it is none, cannot be read, or has a parameter that is not in [`PARAMETERS`].
    pub fn postgres(text: &str) -> Result<Url, UrlError> {
        if !SCHEMES.iter().any(|scheme| text.starts_with(scheme)) {
            return Err(UrlError::Scheme);
        }
        // The library only warns of parameters that it does not know, and shows their values in that.
        let (_, parameters) = text.split_once('?').unwrap_or((text, ""));
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, _) = parameter.split_once('=').unwrap_or((parameter, ""));
            if name == "password" {
                return Err(UrlError::Password);
            }
            if !PARAMETERS.contains(&name) {
                let shown: String = name.chars().filter(char::is_ascii_graphic).take(NAME_SHOWN).collect();
                return Err(UrlError::Parameter(shown));
            }
        }
        match text.parse::<PgConnectOptions>() {
            Ok(_) => Ok(Url::Postgres(text.to_owned())),
            Err(_) => Err(UrlError::Unreadable),
        }
    }

    /// The password, if the URL has one.
    pub fn password(&self) -> Option<&str> {
        let Url::Postgres(url) = self else { return None };
        password(url).map(|range| &url[range])
    }

    /// Puts `mask` in the place of the password.
    pub fn hide_password(&mut self, mask: &str) {
        if let Url::Postgres(url) = self
            && let Some(range) = password(url)
        {
            url.replace_range(range, mask);
        }
    }
}

/// Between the first colon of the user's part and the `@` that ends it, which comes before the path.
fn password(url: &str) -> Option<std::ops::Range<usize>> {
    let start = url.find("://")? + "://".len();
    let end = url[start..].find(['/', '?', '#']).map_or(url.len(), |at| start + at);
    let at = start + url[start..end].rfind('@')?;
    let colon = start + url[start..at].find(':')?;
    Some(colon + 1..at)
}

impl fmt::Display for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Url::Sqlite(path) => write!(formatter, "sqlite:{}", path.display()),
            Url::Postgres(url) => {
                // The user's part ends at the last `@` before the parameters. In doubt too much is hidden.
                let rest = url.split_once("://").map_or("", |(_, rest)| rest);
                let (rest, _) = rest.split_once('?').unwrap_or((rest, ""));
                let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
                write!(formatter, "postgres://{place}")
            }
        }
    }
}

impl fmt::Debug for Url {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{self}")
    }
}

/// Where the last good state is kept if nothing is written.
pub const COPY_UNWRITTEN: &str = "/var/lib/sluicegate/control.json";

/// How a URL of PostgreSQL begins.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The parameters of a URL, as libpq calls them.
pub const PARAMETERS: [&str; 9] =
    ["application_name", "dbname", "host", "port", "sslcert", "sslkey", "sslmode", "sslrootcert", "user"];

/// Characters of an unknown parameter's name that are shown.
const NAME_SHOWN: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_password_is_shown() {
        for (text, shown) in [
            ("postgres://gw:hunter2@db:5432/limits", "postgres://db:5432/limits"),
            ("postgresql://gw:hunter2@db/limits?sslmode=require", "postgres://db/limits"),
            ("postgres://gw@db", "postgres://db"),
            ("postgres:///limits?host=/run/postgresql&user=gw", "postgres:///limits"),
        ] {
            let mut url = Url::postgres(text).expect("it is a URL");
            assert_eq!((format!("{url}"), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(url.password(), text.contains("hunter2").then_some("hunter2"));
            url.hide_password("****");
            let Url::Postgres(masked) = &url else { panic!("it stays one of PostgreSQL") };
            assert_eq!(masked, &text.replace("hunter2", "****"));
        }
    }

    #[test]
    fn what_the_library_would_pass_over_is_refused() {
        for (text, error) in [
            ("postgres://db/x?ssl=on", UrlError::Parameter("ssl".to_owned())),
            ("postgres://db/x?user=a&password=hunter2", UrlError::Password),
            ("postgres://db/x?sslmode=maybe", UrlError::Unreadable),
            ("postgres://db:port/x", UrlError::Unreadable),
            ("mysql://db/x", UrlError::Scheme),
        ] {
            assert_eq!(Url::postgres(text), Err(error), "{text}");
        }
    }
}
