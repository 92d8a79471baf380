//! What a line shows of a query and of header fields, as plain facts: which of them is `shown.rs`'s.

use http::HeaderName;

/// How much of a query is shown, also of the one in a `Referer`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueryDetail {
    Keep,
    Drop,
    /// The names of parameters, with `*` for each value.
    #[default]
    Names,
}

/// A header field that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedField {
    pub(super) name: HeaderName,
    /// The bytes of a line up to the value.
    pub(super) key: Box<[u8]>,
    /// Whether it has a key of its own in the line; the others are together under `headers`.
    pub(super) is_own: bool,
    /// Whether its value is a URL, whose query is masked.
    pub(super) is_url: bool,
}

/// The most fields that lines may show.
pub const FIELDS_MAX: usize = 8;
/// The longest name of a shown field.
pub const FIELD_NAME_BYTES_MAX: usize = 64;
/// Bytes of a value that a line shows.
pub(super) const FIELD_BYTES_MAX: usize = 512;
