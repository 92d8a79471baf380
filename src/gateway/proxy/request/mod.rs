//! The request: its validation, its client, who sent it, and its body on the way upstream.

pub(super) mod authenticate;
pub(super) mod body_copy;
pub mod client;
pub(super) mod gather;
pub mod gathered;
pub mod request_body;
pub mod unread;
pub mod upgrade;
pub mod validate;
