//! The response: own and upstream's, its headers, and its body on the way to the client.

pub(super) mod answer_fields;
pub mod answer_reader;
pub(super) mod body_decoder;
pub mod compress;
pub mod compressed_body;
pub(super) mod early_hints;
pub mod error_pages;
pub mod grpc;
pub mod limit_fields;
pub mod reply;
pub mod response_body;
pub(super) mod upstream_limits;
