//! The configuration of the database: where it is, and whether this node is the only one that has it. It opens nothing.

use std::fmt;
use std::path::PathBuf;

use super::connection::servers::is_readable;

/// Where policies, tiers, overrides and keys are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    pub url: Url,
    /// The password as it stands, in the place of one in the URL, where it would be percent-encoded.
    pub password: Option<Password>,
    /// Whether writes are allowed although the file of SQLite is no other node's and Redis is shared: the operator says
    /// that there is one node.
    pub single_node: bool,
    /// Of PostgreSQL: the file that the last good state is kept in, for a start without the database.
    pub copy: PathBuf,
    /// How many rows of usage this node writes for each minute; 0: none, and none is counted.
    pub usage_rows: usize,
}

impl Config {
    /// A database with the default of everything else.
    pub fn new(url: Url) -> Config {
        Config {
            url,
            password: None,
            single_node: false,
            copy: PathBuf::from(COPY_UNWRITTEN),
            usage_rows: USAGE_ROWS_UNWRITTEN,
        }
    }
}

/// A database. `Debug` and `Display` show no user and no password.
#[derive(Clone, PartialEq, Eq)]
pub enum Url {
    Sqlite(PathBuf),
    /// A server, as libpq writes it: `postgres://user:password@host:port/name?sslmode=verify-full`. Valid as
    /// [`Url::postgres`] has checked it.
    Postgres(String),
}

/// A password that `Debug` does not show.
#[derive(Clone, PartialEq, Eq, derive_more::Debug)]
#[debug("Password(..)")]
pub struct Password(pub String);

/// Why a URL of PostgreSQL cannot be used. It quotes nothing of the URL but names of parameters.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UrlError {
    #[error("is neither a file of SQLite nor a server of PostgreSQL")]
    Scheme,
    /// Its parts cannot be told from each other, or one has no value that is known.
    #[error("is not a valid URL of PostgreSQL")]
    Unreadable,
    /// A parameter that would be ignored.
    #[error("has the parameter `{0}`, which is not known")]
    Parameter(String),
    /// Hosts and ports are not as many, or too many.
    #[error("has lists of hosts and ports of different lengths, or more than {SERVERS_MAX} hosts")]
    Servers,
    /// Sessions of a kind that is not known.
    #[error("has a `target_session_attrs` that is not known")]
    Session,
    /// It is not known how the connection is encrypted.
    #[error("has an `sslmode` that is not known")]
    SslMode,
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
        // Looked at here, because the library only warns of parameters that it does not know, and shows their values
        // in that.
        let (_, parameters) = text.split_once('?').unwrap_or((text, ""));
        for (name, value) in pairs(parameters) {
            if name == "password" {
                return Err(UrlError::Password);
            }
            if name == SESSION && !SESSIONS.contains(&value) {
                return Err(UrlError::Session);
            }
            if name == "sslmode" && !SSL_MODES.contains(&&*value.to_ascii_lowercase()) {
                return Err(UrlError::SslMode);
            }
            if !PARAMETERS.contains(&name) {
                let shown: String = name.chars().filter(char::is_ascii_graphic).take(NAME_SHOWN).collect();
                return Err(UrlError::Parameter(shown));
            }
        }
        let each = servers(text).ok_or(UrlError::Servers)?;
        if !each.iter().all(|server| is_readable(server)) {
            return Err(UrlError::Unreadable);
        }
        Ok(Url::Postgres(text.to_owned()))
    }

    /// The password, if the URL has one.
    pub fn password(&self) -> Option<&str> {
        let Url::Postgres(url) = self else { return None };
        password(url).map(|range| &url[range])
    }
}

/// The URL of each server that a URL names, as libpq reads lists: `a:5432,b` as its hosts, or `host=/a,/b` and `port=1,2`. `None` if
/// the lists do not fit.
pub(super) fn servers(text: &str) -> Option<Vec<String>> {
    let (scheme, rest) = text.split_once("://")?;
    let (rest, parameters) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    let (user, hosts) = authority.rfind('@').map_or(("", authority), |at| authority.split_at(at + 1));
    let hosts: Vec<&str> = hosts.split(',').collect();
    let listed = |wanted: &str| {
        let found = pairs(parameters).find(|(name, _)| *name == wanted);
        found.map(|(_, value)| value.split(',').collect::<Vec<_>>()).unwrap_or_default()
    };
    let (sockets, ports) = (listed("host"), listed("port"));
    let count = hosts.len().max(sockets.len()).max(1);
    // Hosts once and not twice, and a port for all or one for each.
    let fits = (hosts.len() == 1 || sockets.len() <= 1) && (ports.len() <= 1 || ports.len() == count);
    if !fits || count > SERVERS_MAX {
        return None;
    }
    let of = |list: &[&str], index: usize| list.get(index).or(list.first()).copied().unwrap_or("").to_owned();
    let server = |index| {
        let kept = pairs(parameters).filter(|(name, _)| *name != SESSION).map(|(name, value)| {
            let value = match name {
                "host" => of(&sockets, index),
                "port" => of(&ports, index),
                _ => value.to_owned(),
            };
            format!("{name}={value}")
        });
        let parameters = kept.collect::<Vec<_>>().join("&");
        let mark = if parameters.is_empty() { "" } else { "?" };
        format!("{scheme}://{user}{}{path}{mark}{parameters}", of(&hosts, index))
    };
    Some((0..count).map(server).collect())
}

/// Whether only servers will do that can be written.
pub fn needs_writable(text: &str) -> bool {
    let (_, parameters) = text.split_once('?').unwrap_or((text, ""));
    pairs(parameters).any(|pair| pair == (SESSION, "read-write"))
}

fn pairs(parameters: &str) -> impl Iterator<Item = (&str, &str)> {
    let all = parameters.split('&').filter(|parameter| !parameter.is_empty());
    all.map(|parameter| parameter.split_once('=').unwrap_or((parameter, "")))
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
                // Up to the last `@` before the parameters, so that in doubt too much is hidden.
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

/// Rows of usage for each minute if nothing is written.
pub const USAGE_ROWS_UNWRITTEN: usize = 1_000;
pub const USAGE_ROWS_MAX: u64 = 20_000;

/// How a URL of PostgreSQL begins.
const SCHEMES: [&str; 2] = ["postgres://", "postgresql://"];

/// The parameters of a URL, as libpq calls them.
pub const PARAMETERS: [&str; 10] = [
    "application_name",
    "dbname",
    "host",
    "port",
    "sslcert",
    "sslkey",
    "sslmode",
    "sslrootcert",
    SESSION,
    "user",
];

/// The parameter that says which of several servers will do, and its values.
const SESSION: &str = "target_session_attrs";
const SESSIONS: [&str; 2] = ["any", "read-write"];
/// How a connection is encrypted, as libpq has it.
pub const SSL_MODES: [&str; 6] = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
const SERVERS_MAX: usize = 8;

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
            let url = Url::postgres(text).expect("it is a URL");
            assert_eq!((format!("{url}"), format!("{url:?}")), (shown.to_owned(), shown.to_owned()));
            assert_eq!(url.password(), text.contains("hunter2").then_some("hunter2"));
        }
    }

    #[test]
    fn a_url_of_several_servers_is_one_for_each() {
        for (text, each) in [
            ("postgres://db/x", vec!["postgres://db/x"]),
            ("postgres:///x?host=/run&port=5433", vec!["postgres:///x?host=/run&port=5433"]),
            (
                "postgres://gw:p,w@a:1,b,[::1]:3/x?target_session_attrs=read-write&sslmode=require",
                vec![
                    "postgres://gw:p,w@a:1/x?sslmode=require",
                    "postgres://gw:p,w@b/x?sslmode=require",
                    "postgres://gw:p,w@[::1]:3/x?sslmode=require",
                ],
            ),
            (
                "postgresql:///x?host=/a,/b&port=1,2&user=gw",
                vec!["postgresql:///x?host=/a&port=1&user=gw", "postgresql:///x?host=/b&port=2&user=gw"],
            ),
            ("postgres://a,b?port=7", vec!["postgres://a?port=7", "postgres://b?port=7"]),
        ] {
            assert!(Url::postgres(text).is_ok(), "{text}");
            assert_eq!(
                servers(text).as_deref(),
                Some(&each.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()[..])
            );
        }
        assert!(needs_writable("postgres://a,b/x?user=gw&target_session_attrs=read-write"));
        assert!(!needs_writable("postgres://a,b/x?target_session_attrs=any"));
        let shown = format!("{}", Url::postgres("postgres://gw:hunter2@a,b:2/x").expect("it is a URL"));
        assert_eq!(shown, "postgres://a,b:2/x");
    }

    #[test]
    fn what_the_library_would_pass_over_is_refused() {
        for (text, error) in [
            ("postgres://db/x?ssl=on", UrlError::Parameter("ssl".to_owned())),
            ("postgres://db/x?user=a&password=hunter2", UrlError::Password),
            ("postgres://db/x?sslmode=verify-ful", UrlError::SslMode),
            ("postgres://db:port/x", UrlError::Unreadable),
            ("postgres://a,b:port/x", UrlError::Unreadable),
            ("postgres://a,b/x?port=1,2,3", UrlError::Servers),
            ("postgres://a,b/x?host=/c,/d", UrlError::Servers),
            ("postgres://a,b,c,d,e,f,g,h,i/x", UrlError::Servers),
            ("postgres://a,b/x?target_session_attrs=standby", UrlError::Session),
            ("mysql://db/x", UrlError::Scheme),
        ] {
            assert_eq!(Url::postgres(text), Err(error), "{text}");
        }
    }
}
