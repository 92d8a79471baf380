//! Requests: from a request's head to the last byte of its answer. Connections and framing are `server`'s.
//!
//! Start at [`pipeline`], which has every step of a request in order. A header becomes a limiter key in
//! `policy::key`; [`limits`] asks the limiter and turns a denial into a 429.

mod answer_fields;
pub mod answer_reader;
mod attempt;
mod authenticate;
mod body_copy;
pub mod client;
pub mod compress;
pub mod compressed;
pub mod config;
pub mod context;
pub mod decisions;
mod early_hints;
pub mod error_pages;
mod events;
mod exemplars;
pub mod facts;
pub mod forward;
mod gather;
pub mod gathered;
pub mod grpc;
pub mod headers;
pub mod limit_fields;
pub mod limits;
mod mirror;
pub mod pipeline;
pub mod reply;
pub mod request_body;
pub mod reservation;
pub mod response_body;
mod service;
pub mod services;
mod shed;
pub mod snapshot;
mod sticky;
pub mod unread;
pub mod upgrade;
mod upstream_limits;
pub mod validate;
