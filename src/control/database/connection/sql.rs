//! Statements with their values bound, and rows, of either database.

use std::sync::Arc;

use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query as Prepared;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Decode, Postgres, Row as _, Sqlite, Type};

use crate::database::error::Error;
use crate::database::query::SqlValue;
pub(in crate::database) use crate::database::query::{SqlQuery, number};

/// A statement of the library with its values bound, for either database.
macro_rules! bound {
    ($query:expr) => {
        $query.values.iter().fold(
            sqlx::query(AssertSqlSafe($query.text.as_str())),
            |query, value| match value {
                SqlValue::Text(text) => query.bind(text),
                SqlValue::Integer(number) => query.bind(number),
                SqlValue::Real(number) => query.bind(number),
                SqlValue::Flag(flag) => query.bind(flag),
                SqlValue::Time(time) => query.bind(time),
                SqlValue::Json(json) => query.bind(json),
            },
        )
    };
}

impl SqlQuery {
    pub(in crate::database) fn sqlite(&self) -> Prepared<'_, Sqlite, SqliteArguments> {
        bound!(self)
    }

    pub(in crate::database) fn postgres(&self) -> Prepared<'_, Postgres, PgArguments> {
        bound!(self)
    }
}

pub enum SqlRow {
    Sqlite(SqliteRow, Arc<str>),
    Postgres(PgRow, Arc<str>),
}

impl SqlRow {
    pub(in crate::database) fn get<T>(&self, column: &str) -> Result<T, Error>
    where
        T: for<'r> Decode<'r, Sqlite> + Type<Sqlite> + for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        match self {
            SqlRow::Sqlite(row, place) => row.try_get(column).map_err(|error| Error::of(place, &error)),
            SqlRow::Postgres(row, place) => row.try_get(column).map_err(|error| Error::of(place, &error)),
        }
    }

    /// A row that cannot be what this program wrote.
    pub(in crate::database) fn wrong(&self, reason: &str) -> Error {
        let (SqlRow::Sqlite(_, place) | SqlRow::Postgres(_, place)) = self;
        Error::Tables { place: Arc::clone(place), reason: reason.to_owned() }
    }
}
