//! What the server of connections and the proxy of requests agree on: the facts of a connection, why a request is
//! refused, and what that is answered with.

pub mod problem;
pub mod reason;
pub mod refusal;
