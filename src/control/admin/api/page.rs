//! Pages of lists: how many rows and after which one a client asks for, and what it is answered.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schema::BoundedText;
use crate::database;

/// Which rows of a list.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub(in crate::admin) struct PageQuery {
    /// The most rows of a page.
    #[schemars(range(min = 1, max = LIMIT_MAX))]
    #[serde(default = "limit")]
    pub limit: u32,
    /// `next` of the page before.
    pub after: Option<BoundedText<CURSOR_CHARS_MAX>>,
}

fn limit() -> u32 {
    LIMIT
}

/// Some rows of a list, in the order of their cursors.
#[derive(Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Page_{T}")]
pub(in crate::admin) struct ListPage<T> {
    /// The rows.
    pub items: Vec<T>,
    /// What `after` must be for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
    /// True if there are no rows because this gateway has no database; otherwise missing.
    #[serde(rename = "without-database", skip_serializing_if = "Option::is_none")]
    pub without_database: Option<bool>,
}

impl PageQuery {
    /// The rows to read for this page: one more than it has, so that it is seen whether there is another page.
    pub(in crate::admin) fn rows(&self) -> database::PageRange {
        database::PageRange { after: self.after.as_ref().map(|after| after.0.clone()), limit: self.limit + 1 }
    }

    /// The page of the rows that were read.
    pub(in crate::admin) fn page<R>(&self, mut rows: Vec<R>, cursor: impl Fn(&R) -> String) -> ListPage<R> {
        let limit = self.limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(cursor);
        ListPage { items: rows, next, without_database: None }
    }
}

impl<T> ListPage<T> {
    /// The same page, each row as it is shown.
    pub(in crate::admin) fn map<U>(self, shown: impl Fn(T) -> U) -> ListPage<U> {
        let ListPage { items, next, without_database } = self;
        ListPage { items: items.into_iter().map(shown).collect(), next, without_database }
    }

    /// The page of a gateway that has no database.
    pub(in crate::admin) fn without_database() -> ListPage<T> {
        ListPage { items: Vec::new(), next: None, without_database: Some(true) }
    }
}

const LIMIT: u32 = 100;
/// Rows of a page at most; below [`database::ROWS_MAX`], because one more is read.
const LIMIT_MAX: u32 = 500;
/// A cursor is one id, or two with a sign between them.
const CURSOR_CHARS_MAX: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_each_other_to_the_last_row() {
        let all: Vec<usize> = (1..=7).collect();
        let mut seen = Vec::new();
        let mut after = None;
        let mut pages = 0;
        loop {
            let wanted = PageQuery { limit: 3, after: after.clone().map(BoundedText) };
            let first: usize = wanted.after.as_ref().map_or(0, |after| after.0.parse().expect("a number"));
            let rows = all[first..].iter().take(wanted.rows().limit as usize).copied().collect();
            let page = wanted.page(rows, usize::to_string);
            seen.extend(page.items);
            pages += 1;
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!((seen, pages), (all, 3));
        const { assert!(LIMIT_MAX < database::ROWS_MAX) };
        let none = PageQuery { limit: 3, after: None }.page(vec![1, 2, 3], usize::to_string);
        assert_eq!(none.next, None, "a full page may be the last one");
    }
}
