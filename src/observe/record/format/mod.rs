//! The forms of a line: JSON under names of this gateway's own or of the Elastic Common Schema, or a text by a template, of
//! which the Common and the Combined Log Format are two. `formatter.rs` chooses, `json.rs` and `template.rs` write, into
//! memory that is there already.

mod bounds;
pub(super) mod date;
mod escape;
pub(super) mod formatter;
mod json;
mod names;
mod target;
mod template;
mod value;

pub use target::{PATH_BYTES_MAX, shown_query};
pub use template::{Error, LogTemplate};
pub use value::push_address;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// JSON under the names of this gateway.
    #[default]
    Json,
    /// JSON under the names of the Elastic Common Schema.
    Ecs,
    Common,
    /// The Combined Log Format, as nginx writes it.
    Combined,
    /// A text of the operator's own.
    Template(LogTemplate),
}
