//! The request: its validation, its client, who sent it, and its body on the way upstream.

pub(super) mod authenticate;
pub(super) mod body_copy;
pub mod buffered_body;
pub mod client;
pub(super) mod gather;
pub mod request_body;
pub mod unread_bodies;
pub mod upgrade;
pub mod validate;
