//! Who answers, for those that may know it: `X-Gateway-Node`, and `node` in a refusal's body.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::client;
use super::config::NodeShown;
use super::snapshot::Snapshot;
use crate::service::conn::Conn;

/// This gateway's name, if the other end of a connection may know it.
pub fn shown<'s>(snapshot: &'s Snapshot, conn: &Conn) -> Option<&'s HeaderValue> {
    let is_shown = match snapshot.node.shown {
        NodeShown::Always => true,
        NodeShown::Trusted => client::is_hop(&snapshot.client_ip, conn.peer.ip),
        NodeShown::Never => false,
    };
    is_shown.then_some(&snapshot.node.value)
}

/// Names this gateway on an answer, in the place of one behind it, which has told its name to us alone.
pub fn tell(snapshot: &Snapshot, conn: &Conn, headers: &mut HeaderMap) {
    match shown(snapshot, conn) {
        Some(name) => drop(headers.insert(X_GATEWAY_NODE, name.clone())),
        None => drop(headers.remove(X_GATEWAY_NODE)),
    }
}

const X_GATEWAY_NODE: HeaderName = HeaderName::from_static("x-gateway-node");
