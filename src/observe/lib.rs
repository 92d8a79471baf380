//! What is seen of requests
//! the access log, samples of decisions, traces. It is told what happened and decides nothing.

pub mod record;
pub mod trace;
