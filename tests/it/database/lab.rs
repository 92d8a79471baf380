//! A database of a test's own, of either kind.

use std::net::{IpAddr, Ipv4Addr};

use control::database::config::{Config, Url};
use control::database::{Actor, Database, IdempotentRequest, NewOverride, NewReset, OverrideKind, PageRange};

use crate::support::postgres::Postgres;
use crate::support::{Directory, stdout_of};

/// Makes a test for each database of every function named: `async fn name(lab: Lab)`.
macro_rules! both {
    ($($name:ident)*) => {
        mod sqlite {
            $(#[test] fn $name() { crate::database::lab::Lab::sqlite().run(super::$name) })*
        }
        mod postgres {
            $(#[test] fn $name() { crate::database::lab::Lab::postgres().run(super::$name) })*
        }
    };
}
pub(crate) use both;

/// Where the database is.
pub struct Lab {
    pub config: Config,
    kind: Kind,
}

enum Kind {
    Sqlite(Directory),
    Postgres { server: &'static Postgres, name: String },
}

impl Lab {
    pub fn sqlite() -> Lab {
        let directory = Directory::new();
        let url = Url::Sqlite(directory.join("state.db"));
        Lab { config: config(url), kind: Kind::Sqlite(directory) }
    }

    pub fn postgres() -> Lab {
        let server = Postgres::shared();
        let name = server.database();
        let url = Url::postgres(&server.url(&name)).expect("it is a URL");
        Lab { config: config(url), kind: Kind::Postgres { server, name } }
    }

    /// Runs a test on a runtime of one thread: what blocks it blocks the test.
    pub fn run(self, test: impl AsyncFnOnce(Lab)) {
        runtime().block_on(test(self));
    }

    pub async fn open(&self) -> Database {
        Database::open(&self.config).await.expect("it opens")
    }

    /// Runs a statement by the database's own program, past the gateway; what it prints, and its errors.
    pub fn try_sql(&self, statement: &str) -> Result<String, String> {
        match &self.kind {
            Kind::Sqlite(directory) => {
                let file = directory.join("state.db").display().to_string();
                let output =
                    crate::support::run("sqlite3", &["-bail", "-cmd", ".timeout 5000", &file, statement]);
                let errors = crate::support::text(&output.stderr);
                if errors.is_empty() {
                    Ok(crate::support::text(&output.stdout).trim().to_owned())
                } else {
                    Err(errors)
                }
            }
            Kind::Postgres { server, name } => {
                let (said, failed) = server.psql(name, statement);
                if failed.is_empty() { Ok(said.trim().to_owned()) } else { Err(failed) }
            }
        }
    }

    /// The same, if it must work.
    #[track_caller]
    pub fn sql(&self, statement: &str) -> String {
        self.try_sql(statement).unwrap_or_else(|error| panic!("{statement}: {error}"))
    }

    /// A moment in SQL, relative to now.
    pub fn moment(&self, seconds: i64) -> String {
        match self.kind {
            Kind::Sqlite(_) => format!("((unixepoch() + ({seconds})) * 1000000)"),
            Kind::Postgres { .. } => format!("(now() + interval '{seconds} seconds')"),
        }
    }

    pub fn is_postgres(&self) -> bool {
        matches!(self.kind, Kind::Postgres { .. })
    }
}

pub fn config(url: Url) -> Config {
    Config::new(url)
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("threads can be had")
}

/// Somebody who changes things.
pub fn alice() -> Actor {
    Actor {
        who: "alice".to_owned(),
        from: Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7))),
        request_id: "r-1".to_owned(),
        once: None,
    }
}

/// The same under an idempotency key.
pub fn alice_once(key: &str, request: &str) -> Actor {
    Actor { once: Some(IdempotentRequest { key: key.to_owned(), request: request.to_owned() }), ..alice() }
}

/// A reset of a consumer.
pub fn reset_of(user: &str) -> NewReset {
    NewReset {
        id: NewReset::id(),
        user_id: Some(user.to_owned()),
        tenant_id: None,
        policy: None,
        units: None,
        reason: "a test".to_owned(),
    }
}

/// An override of a consumer.
pub fn of_user(user: &str, limit: u64) -> NewOverride {
    NewOverride {
        user_id: Some(user.to_owned()),
        tenant_id: None,
        policy: None,
        subject: None,
        kind: OverrideKind::Absolute(limit),
        reason: "a launch".to_owned(),
        expires_at: None,
    }
}

/// The first page, as long as pages are.
pub fn all() -> PageRange {
    PageRange::first(1_000)
}

/// What sqlite3 prints for a statement on a file. It waits for connections that are still being closed.
pub fn sqlite(file: &std::path::Path, statement: &str) -> String {
    let file = file.display().to_string();
    stdout_of("sqlite3", &["-bail", "-cmd", ".timeout 5000", &file, statement]).trim().to_owned()
}
