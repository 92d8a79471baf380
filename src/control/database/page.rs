//! Pages of a list: where one begins and how long it is.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// The key of the last row of the page before; `None`: the first page.
    pub after: Option<String>,
    /// Rows of the page, at most [`ROWS_MAX`].
    pub limit: u32,
}

impl PageRange {
    /// The first page, of this many rows.
    pub fn first(limit: u32) -> PageRange {
        PageRange { after: None, limit }
    }

    pub(super) fn rows(&self) -> i64 {
        i64::from(self.limit.min(ROWS_MAX))
    }
}

/// The most rows of a page.
pub const ROWS_MAX: u32 = 1_000;
