//! Pages of lists: how many rows and after which one a client asks for, and what it is answered.

use serde::Serialize;
use utoipa::{IntoParams, ToSchema};

use super::query::Query;
use crate::database;

/// Which rows of a list.
#[derive(Clone, Debug, PartialEq, Eq, IntoParams)]
#[into_params(parameter_in = Query)]
pub(in crate::admin) struct Wanted {
    /// The most rows of a page.
    #[param(minimum = 1, maximum = 500, default = 100, required = false)]
    pub limit: u32,
    /// `next` of the page before.
    #[param(required = false, min_length = 1, max_length = 600, pattern = r"^[^\x00-\x1f\x7f-\x9f]*$")]
    pub after: Option<String>,
}

/// Some rows of a list, in the order of their cursors.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub(in crate::admin) struct Page<T> {
    /// The rows.
    pub items: Vec<T>,
    /// What `after` must be for the next page; missing on the last one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

impl Wanted {
    pub(in crate::admin) fn read(query: &mut Query) -> Wanted {
        let limit = query.integer("limit", 1..=LIMIT_MAX.into());
        Wanted {
            limit: limit.and_then(|limit| u32::try_from(limit).ok()).unwrap_or(LIMIT),
            after: query.text("after", CURSOR_CHARS_MAX),
        }
    }

    /// The rows to read for this page: one more than it has, to see whether there is another page.
    pub(in crate::admin) fn rows(&self) -> database::Page {
        database::Page { after: self.after.clone(), limit: self.limit + 1 }
    }

    /// The page of the rows that were read.
    pub(in crate::admin) fn page<R>(&self, mut rows: Vec<R>, cursor: impl Fn(&R) -> String) -> Page<R> {
        let limit = self.limit as usize;
        let has_more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| has_more).map(cursor);
        Page { items: rows, next }
    }
}

impl<T> Page<T> {
    /// The same page, each row as it is shown.
    pub(in crate::admin) fn map<U>(self, shown: impl Fn(T) -> U) -> Page<U> {
        Page { items: self.items.into_iter().map(shown).collect(), next: self.next }
    }
}

impl<T> Default for Page<T> {
    fn default() -> Page<T> {
        Page { items: Vec::new(), next: None }
    }
}

/// Rows of a page if nothing is said.
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
            let mut query = Query::parse("limit=3");
            let wanted = Wanted { after: after.clone(), ..Wanted::read(&mut query) };
            let first: usize = wanted.after.as_deref().map_or(0, |after| after.parse().expect("a number"));
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
        let none = Wanted { limit: 3, after: None }.page(vec![1, 2, 3], usize::to_string);
        assert_eq!(none.next, None, "a full page may be the last one");
    }
}
