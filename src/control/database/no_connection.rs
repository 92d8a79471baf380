//! Stands for connections in a binary that was built without the feature `control`: `config` refuses `[database]`, so none
//! is opened.
#![expect(dead_code, reason = "it is there for what would be called if a database were open")]

pub(super) mod connections {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::time::Duration;

    use super::sql::{SqlQuery, SqlRow};
    use crate::database::error::Error;

    pub(in crate::database) struct ConnectionPool {
        pub(in crate::database) place: Arc<str>,
        pub(in crate::database) options: DatabaseOptions,
    }

    pub(in crate::database) enum DatabaseOptions {
        Sqlite(Infallible),
        Postgres(Infallible),
    }

    pub(in crate::database) enum Session {}

    impl ConnectionPool {
        pub(in crate::database) async fn session(&self, _: Duration) -> Result<Session, Error> {
            Err(self.unreachable(super::ABSENT))
        }
    }

    impl Session {
        pub(in crate::database) async fn execute(&mut self, _: SqlQuery) -> Result<u64, Error> {
            match *self {}
        }

        pub(in crate::database) async fn all(&mut self, _: SqlQuery) -> Result<Vec<SqlRow>, Error> {
            match *self {}
        }

        pub(in crate::database) fn has_listeners(&self) -> bool {
            match *self {}
        }

        pub(in crate::database) fn extend(&mut self, _: Duration) {
            match *self {}
        }

        pub(in crate::database) fn release(self) {
            match self {}
        }
    }
}

pub(super) mod hints {
    use std::time::Duration;

    use crate::database::handle::Database;
    use crate::database::hint::LatestHint;

    pub enum DatabaseHints {}

    impl Database {
        pub fn listen(&self, _: Duration) -> Option<DatabaseHints> {
            None
        }
    }

    impl DatabaseHints {
        pub async fn next(&mut self) -> LatestHint {
            match *self {}
        }
    }
}

pub(super) mod open {
    use std::time::Duration;

    use crate::database::config::Config;
    use crate::database::error::Error;
    use crate::database::handle::Database;

    impl Database {
        /// Opens nothing, because the feature is not built in.
        ///
        /// # Errors
        /// Always.
        pub async fn open(config: &Config) -> Result<Database, Error> {
            Err(Error::Refused { place: config.url.to_string().into(), reason: super::ABSENT.to_owned() })
        }

        /// Opens nothing, because the feature is not built in.
        ///
        /// # Errors
        /// Always.
        pub async fn open_read_only(config: &Config) -> Result<Database, Error> {
            Database::open(config).await
        }

        pub async fn close(&self, _: Duration) {}
    }
}

pub(super) mod servers {
    pub(in crate::database) fn is_readable(_: &str) -> bool {
        true
    }
}

pub(super) mod sql {
    use crate::database::error::Error;
    pub(in crate::database) use crate::database::query::{SqlQuery, number};

    pub enum SqlRow {}

    impl SqlRow {
        pub(in crate::database) fn get<T>(&self, _: &str) -> Result<T, Error> {
            match *self {}
        }

        pub(in crate::database) fn wrong(&self, _: &str) -> Error {
            match *self {}
        }
    }
}

const ABSENT: &str = "this binary was built without the feature `control`";
