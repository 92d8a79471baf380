//! The data plane: from accept to the last byte. Its workers share nothing but what is built before a request comes.

pub mod body;
pub mod client;
pub mod config;
pub mod connection;
pub mod decide;
pub mod exchange;
pub mod farewell;
pub mod forward;
pub mod framing;
pub mod guard;
pub mod headers;
pub mod held;
mod http2;
pub mod io;
pub mod judge;
pub mod listener;
pub mod overload;
pub mod pipeline;
mod porch;
pub mod reason;
pub mod reply;
pub mod snapshot;
pub mod tunnel;
pub mod unread;
pub mod upgrade;
mod watch;
pub mod worker;
