//! Listening sockets: opened, inherited, closed, and the certificates behind them.

pub(super) mod bind_error;
pub(super) mod certificates;
pub mod descriptors;
pub(super) mod inherited_sockets;
pub(super) mod listeners;
pub(super) mod listening;
pub(super) mod listening_tls;
pub(super) mod neighbour;
