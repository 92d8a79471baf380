//! Statements of either database. Both know `$1`, `RETURNING` and `ON CONFLICT`, so that a statement has one text.
//!
//! The texts are this program's own; what comes from outside is always a value.
#![cfg_attr(not(feature = "control"), expect(dead_code, reason = "nothing runs them"))]

use std::fmt::Write;

use serde_json::Value as Json;

use super::error::Error;
use super::time::Time;

#[derive(Clone, Debug)]
pub struct SqlQuery {
    pub(super) text: String,
    pub(super) values: Vec<SqlValue>,
}

/// A value of a statement. A NULL has a type, too, because PostgreSQL wants to know it.
#[derive(Clone, Debug)]
pub(super) enum SqlValue {
    Text(Option<String>),
    Integer(Option<i64>),
    Real(f64),
    Flag(bool),
    Time(Option<Time>),
    Json(Option<Json>),
}

/// A count as a database keeps it.
pub(super) fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl SqlQuery {
    pub(super) fn new(text: impl Into<String>) -> SqlQuery {
        SqlQuery { text: text.into(), values: Vec::new() }
    }

    /// The value of the next `$n`.
    pub(super) fn with(mut self, value: impl Into<SqlValue>) -> SqlQuery {
        self.values.push(value.into());
        self
    }

    /// Appends `text` and the number of one more value.
    pub(super) fn and(mut self, text: &str, value: impl Into<SqlValue>) -> SqlQuery {
        self.values.push(value.into());
        // The result is ignored, because writing into a string cannot fail.
        let _ = write!(self.text, " {text} ${}", self.values.len());
        self
    }

    pub(super) fn then(mut self, text: &str) -> SqlQuery {
        self.text.push(' ');
        self.text.push_str(text);
        self
    }

    /// Refuses what no database would take: PostgreSQL has no NUL in texts, and SQLite would cut there.
    ///
    /// # Errors
    /// [`Error::Invalid`].
    pub(super) fn check(&self) -> Result<(), Error> {
        let has_nul = |value: &SqlValue| match value {
            SqlValue::Text(Some(text)) => text.contains('\0'),
            SqlValue::Json(Some(json)) => json_has_nul(json),
            _ => false,
        };
        match self.values.iter().any(has_nul) {
            true => {
                Err(Error::Invalid("a text has the character U+0000, which no database keeps".to_owned()))
            }
            false => Ok(()),
        }
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
