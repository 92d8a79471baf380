//! Subjects of policies, their dimensions, and the keys that limits count under.

pub mod holder;
pub mod http_subject;
pub mod key;
pub mod named_subject;
pub mod named_value;
pub mod naming;
pub mod subject;
