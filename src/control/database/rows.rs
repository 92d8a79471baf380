//! Tables whose rows the nodes follow: the columns of each, and the statements that all of them share.

use std::num::NonZeroU64;

use serde::Serialize;
use serde_json::{Map, Value as Json};

use super::connection::sql::{SqlQuery, SqlRow, number};
use super::error::Error;
use super::handle::Database;
use super::page::PageRange;
use super::time::Time;
use super::write::{Actor, ChangeEntry, Expect, RowKind, WriteTransaction};

/// A row of a table that the nodes follow: it has the version of its last change.
pub trait TableRow: Serialize + Sized {
    const KIND: RowKind;
    const TABLE: &'static str;
    /// The columns that tell rows apart, and by which they are listed.
    const KEY: &'static [&'static str];
    const COLUMNS: &'static str;

    fn read(row: &SqlRow) -> Result<Self, Error>;

    /// Adds the values of all columns, in their order.
    fn bind(&self, query: SqlQuery) -> SqlQuery;

    fn version(&self) -> i64;

    /// Its key as one text, which is how `changes`, the audit log and pages have it.
    fn key(&self) -> String;

    /// The values of the key's columns.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the text is no key.
    fn key_values(key: &str) -> Result<Vec<String>, Error> {
        Ok(vec![key.to_owned()])
    }

    /// What the audit log and the other nodes are told of a change.
    fn entry(old: Option<&Self>, new: Option<&Self>) -> ChangeEntry {
        let key = new.or(old).map(Self::key).unwrap_or_default();
        ChangeEntry::of(Self::KIND, &key, old, new)
    }
}

/// A value of a column, or of several.
pub trait Column: Sized {
    fn read(row: &SqlRow, name: &str) -> Result<Self, Error>;

    fn bind(&self, query: SqlQuery) -> SqlQuery;
}

/// The columns of a row, which are its fields in this order. A field of several columns says which they are.
macro_rules! columns {
    ($first:ident $(, $field:ident $(as $names:literal)?)*) => {
        const COLUMNS: &'static str = concat!(stringify!($first) $(, ", ", columns!(@ $field $($names)?))*);

        fn read(row: &$crate::database::connection::sql::SqlRow) -> Result<Self, Error> {
            Ok(Self {
                $first: $crate::database::rows::Column::read(row, stringify!($first))?,
                $($field: $crate::database::rows::Column::read(row, stringify!($field))?),*
            })
        }

        fn bind(&self, query: $crate::database::connection::sql::SqlQuery) -> $crate::database::connection::sql::SqlQuery {
            let query = $crate::database::rows::Column::bind(&self.$first, query);
            $(let query = $crate::database::rows::Column::bind(&self.$field, query);)*
            query
        }

        fn version(&self) -> i64 {
            self.version
        }
    };
    (@ $field:ident) => { stringify!($field) };
    (@ $field:ident $names:literal) => { $names };
}
pub(super) use columns;

macro_rules! plain {
    ($($value:ty),*) => {$(
        impl Column for $value {
            fn read(row: &SqlRow, name: &str) -> Result<Self, Error> {
                row.get(name)
            }

            fn bind(&self, query: SqlQuery) -> SqlQuery {
                query.with(<$value>::clone(self))
            }
        }
    )*};
}
plain!(String, Option<String>, bool, i64, f64, Time, Option<Time>, Json);

impl Column for NonZeroU64 {
    fn read(row: &SqlRow, name: &str) -> Result<NonZeroU64, Error> {
        let number = u64::try_from(row.get::<i64>(name)?).ok().and_then(NonZeroU64::new);
        number.ok_or_else(|| row.wrong("a tier's limit or window is below 1"))
    }

    fn bind(&self, query: SqlQuery) -> SqlQuery {
        query.with(number(self.get()))
    }
}

impl Column for Option<u64> {
    fn read(row: &SqlRow, name: &str) -> Result<Option<u64>, Error> {
        Ok(row.get::<Option<i64>>(name)?.and_then(|number| u64::try_from(number).ok()))
    }

    fn bind(&self, query: SqlQuery) -> SqlQuery {
        query.with(self.map(number))
    }
}

impl Column for Map<String, Json> {
    fn read(row: &SqlRow, name: &str) -> Result<Map<String, Json>, Error> {
        match row.get(name)? {
            Json::Object(fields) => Ok(fields),
            _ => Err(row.wrong("the claims of an API key are not an object")),
        }
    }

    fn bind(&self, query: SqlQuery) -> SqlQuery {
        query.with(Json::Object(self.clone()))
    }
}

pub(super) fn select<R: TableRow>() -> SqlQuery {
    SqlQuery::new(format!("SELECT {} FROM {}", R::COLUMNS, R::TABLE))
}

pub(super) fn insert<R: TableRow>(row: &R) -> SqlQuery {
    let values = (1..=R::COLUMNS.split(", ").count()).map(|number| format!("${number}")).collect::<Vec<_>>();
    let values = values.join(", ");
    row.bind(SqlQuery::new(format!("INSERT INTO {} ({}) VALUES ({values})", R::TABLE, R::COLUMNS)))
}

/// Rows whose key is so (`=`, `>`, `<`) to this one.
fn of_key<R: TableRow>(query: SqlQuery, is: &str, key: &str) -> Result<SqlQuery, Error> {
    let query = query.then(&format!("WHERE ({}) {is} (", R::KEY.join(", ")));
    let values = R::key_values(key)?.into_iter().enumerate();
    Ok(values
        .fold(query, |query, (place, value)| query.and(if place == 0 { "" } else { "," }, value))
        .then(")"))
}

/// So many rows by their key, those after one.
pub(super) fn listed<R: TableRow>(
    (after, is_descending): (Option<&str>, bool),
    rows: i64,
    filter: impl FnOnce(SqlQuery) -> SqlQuery,
) -> Result<SqlQuery, Error> {
    let (is_after, order) = if is_descending { ("<", " DESC") } else { (">", "") };
    let from = match after {
        Some(after) => of_key::<R>(select::<R>(), is_after, after)?,
        None => select::<R>().then("WHERE true"),
    };
    let by = R::KEY.join(&format!("{order}, "));
    Ok(filter(from).then(&format!("ORDER BY {by}{order}")).and("LIMIT", rows))
}

impl Database {
    /// The row of a key.
    pub async fn row<R: TableRow>(&self, key: &str) -> Result<Option<R>, Error> {
        let found = self.read_all(of_key::<R>(select::<R>(), "=", key)?, R::read).await?;
        Ok(found.into_iter().next())
    }

    /// Lists rows by their key.
    ///
    /// # Errors
    /// [`Error::Invalid`] if `after` of the page is no key; if the database cannot be read.
    pub async fn rows<R: TableRow>(&self, page: &PageRange) -> Result<Vec<R>, Error> {
        self.rows_where((page, false), |query| query).await
    }

    pub(super) async fn rows_where<R: TableRow>(
        &self,
        (page, is_descending): (&PageRange, bool),
        filter: impl FnOnce(SqlQuery) -> SqlQuery,
    ) -> Result<Vec<R>, Error> {
        self.read_all(listed::<R>((page.after.as_deref(), is_descending), page.rows(), filter)?, R::read)
            .await
    }

    /// Makes a row, in the place of the one of this key if there is one.
    pub(super) async fn put<R: TableRow>(
        &self,
        by: &Actor,
        key: &str,
        expect: Expect,
        make: impl FnOnce(&WriteTransaction<'_>, Option<&R>) -> R,
    ) -> Result<R, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let old: Option<R> = write.row(key).await?;
        if let Err(error) = expect.check(old.as_ref().map(R::version)) {
            return Err(write.refuse(error).await);
        }
        let new = make(&write, old.as_ref());
        let others = R::COLUMNS.split(", ").filter(|column| !R::KEY.contains(column));
        let others = others.map(|column| format!("{column} = excluded.{column}")).collect::<Vec<_>>();
        let upsert = format!("ON CONFLICT ({}) DO UPDATE SET {}", R::KEY.join(", "), others.join(", "));
        write.session.execute(insert(&new).then(&upsert)).await?;
        write.commit(R::entry(old.as_ref(), Some(&new)), new).await
    }

    /// Deletes a row; returns what it was.
    ///
    /// # Errors
    /// [`Error::NotFound`]; [`Error::Conflict`] if it is not what `expect` says.
    pub async fn delete<R: TableRow>(&self, by: &Actor, key: &str, expect: Expect) -> Result<R, Error> {
        let mut write = WriteTransaction::begin(self, by).await?;
        let delete = of_key::<R>(SqlQuery::new(format!("DELETE FROM {}", R::TABLE)), "=", key)?;
        let Some(row) = write.session.one(delete.then(&format!("RETURNING {}", R::COLUMNS))).await? else {
            return Err(write.refuse(Error::NotFound).await);
        };
        let old = R::read(&row)?;
        if let Err(error) = expect.check(Some(old.version())) {
            return Err(write.refuse(error).await);
        }
        write.commit(R::entry(Some(&old), None), old).await
    }
}

impl WriteTransaction<'_> {
    /// The row of a key, as the transaction finds it.
    pub(super) async fn row<R: TableRow>(&mut self, key: &str) -> Result<Option<R>, Error> {
        let found = self.session.one(of_key::<R>(select::<R>(), "=", key)?).await?;
        found.as_ref().map(R::read).transpose()
    }
}
