//! Finds a few values in JSON while it passes, piece by piece as it comes: numbers in an upstream's answer, also in the
//! events of a `text/event-stream`, and fields at the beginning of a request's body.
//!
//! Nothing of a body is kept but one name or value at a time, of [`TOKEN_BYTES_MAX`] bytes. It is no validator: it
//! follows strings, brackets and commas closely enough to find what a real reader finds in JSON that is valid. In what is
//! broken it finds what came before the break. It does no I/O and allocates nothing while it reads.

mod events;
mod fields;
mod number;
mod numbers;
mod path;
mod scanner;

pub use fields::{JsonField, JsonFields};
pub use number::units;
pub use numbers::{AnswerForm, Numbers};
pub use path::{JsonPath, NAME_BYTES_MAX, NAMES_MAX, PathError, translated};
pub use scanner::{DEPTH_MAX, JsonValue, Scanner, TOKEN_BYTES_MAX};
