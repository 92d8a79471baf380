//! Requests: from a request's head to the last byte of its answer. Connections and framing are `server`'s.
//!
//! Start at [`pipeline`], which has every step of a request in order. A header becomes a limiter key in
//! `policy::keys::key`; [`limits`] asks the limiter and turns a denial into a 429.

mod attempt;
pub mod config;
pub mod context;
pub mod events;
mod exemplars;
pub mod facts;
pub mod forward;
pub mod headers;
pub mod limits;
mod load_shedding;
mod mirror;
pub mod pipeline;
pub mod request;
pub mod reservation;
pub mod response;
mod service;
pub mod services;
pub mod snapshot;
mod sticky;
