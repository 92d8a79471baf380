//! Statements and rows of either database. Both know `$1`, `RETURNING` and `ON CONFLICT`, so that a statement has one
//! text.
//!
//! The texts are this program's own; what comes from outside is always a value.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::Value as Json;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query as Prepared;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{AssertSqlSafe, Decode, Postgres, Row as _, Sqlite, Type};

use crate::database::error::Error;
use crate::database::time::Time;

#[derive(Clone, Debug)]
pub struct SqlQuery {
    text: String,
    values: Vec<SqlValue>,
}

/// A value of a statement. A NULL has a type, too, because PostgreSQL wants to know it.
#[derive(Clone, Debug)]
pub(in crate::database) enum SqlValue {
    Text(Option<String>),
    Integer(Option<i64>),
    Real(f64),
    Flag(bool),
    Time(Option<Time>),
    Json(Option<Json>),
}

/// A count as a database keeps it.
pub(in crate::database) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

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
    pub(in crate::database) fn new(text: impl Into<String>) -> SqlQuery {
        SqlQuery { text: text.into(), values: Vec::new() }
    }

    /// The value of the next `$n`.
    pub(in crate::database) fn with(mut self, value: impl Into<SqlValue>) -> SqlQuery {
        self.values.push(value.into());
        self
    }

    /// Appends `text` and the number of one more value.
    pub(in crate::database) fn and(mut self, text: &str, value: impl Into<SqlValue>) -> SqlQuery {
        self.values.push(value.into());
        // The result is ignored, because writing into a string cannot fail.
        let _ = write!(self.text, " {text} ${}", self.values.len());
        self
    }

    pub(in crate::database) fn then(mut self, text: &str) -> SqlQuery {
        self.text.push(' ');
        self.text.push_str(text);
        self
    }

    /// Why no database would take it: PostgreSQL has no NUL in texts, and SQLite would cut there.
    pub(in crate::database) fn fault(&self) -> Option<Error> {
        let has_nul = |value: &SqlValue| match value {
            SqlValue::Text(Some(text)) => text.contains('\0'),
            SqlValue::Json(Some(json)) => json_has_nul(json),
            _ => false,
        };
        self.values
            .iter()
            .any(has_nul)
            .then(|| Error::Invalid("a text has the character U+0000, which no database keeps".to_owned()))
    }

    pub(in crate::database) fn sqlite(&self) -> Prepared<'_, Sqlite, SqliteArguments> {
        bound!(self)
    }

    pub(in crate::database) fn postgres(&self) -> Prepared<'_, Postgres, PgArguments> {
        bound!(self)
    }
}

fn json_has_nul(json: &Json) -> bool {
    match json {
        Json::String(text) => text.contains('\0'),
        Json::Array(items) => items.iter().any(json_has_nul),
        Json::Object(fields) => fields.iter().any(|(name, value)| name.contains('\0') || json_has_nul(value)),
        Json::Null | Json::Bool(_) | Json::Number(_) => false,
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

macro_rules! values {
    ($($from:ty => |$value:ident| $made:expr;)*) => {$(
        impl From<$from> for SqlValue {
            fn from($value: $from) -> SqlValue {
                $made
            }
        }
    )*};
}

values! {
    &str => |text| SqlValue::Text(Some(text.to_owned()));
    String => |text| SqlValue::Text(Some(text));
    Option<String> => |text| SqlValue::Text(text);
    i64 => |number| SqlValue::Integer(Some(number));
    Option<i64> => |number| SqlValue::Integer(number);
    f64 => |number| SqlValue::Real(number);
    bool => |flag| SqlValue::Flag(flag);
    Time => |time| SqlValue::Time(Some(time));
    Option<Time> => |time| SqlValue::Time(time);
    Json => |json| SqlValue::Json(Some(json));
    Option<Json> => |json| SqlValue::Json(json);
}
