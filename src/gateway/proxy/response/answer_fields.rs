//! The fields of every answer, whoever gives it: `X-Request-Id` and `X-Gateway-Node`, for those that may know them, and what
//! the listener says.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::proxy::config::FieldAudience;
use crate::proxy::context::RequestContext;
use crate::proxy::headers::X_REQUEST_ID;
use crate::proxy::request::client;
use crate::proxy::snapshot::Snapshot;
use crate::service::conn::Conn;

/// Adds them to an answer of the gateway's own or of an upstream. What its route says comes later, and may change them; who
/// answers is said last.
pub fn add(context: &RequestContext, headers: &mut HeaderMap) {
    let (snapshot, conn) = (&context.view.snapshot, &context.conn);
    if is_told(snapshot.node.ids_shown, snapshot, conn) {
        tell_id(context.facts.request_id.clone(), conn, headers);
    } else if snapshot.node.ids_shown == FieldAudience::Trusted {
        // Removed, because an upstream was told the id, and may say it again.
        headers.remove(X_REQUEST_ID);
    }
    conn.config.response_headers.apply(headers);
}

/// Says a request's id on its answer. It is not indexed as a rule, because each id is said once: in HPACK's table it
/// would push out what repeats.
pub fn tell_id(mut id: HeaderValue, conn: &Conn, headers: &mut HeaderMap) {
    id.set_sensitive(!keeps_names(conn));
    headers.insert(X_REQUEST_ID, id);
}

/// A request's id as its client may know it: empty if it may not.
pub fn told_id(snapshot: &Snapshot, conn: &Conn, id: &HeaderValue) -> HeaderValue {
    match is_told(snapshot.node.ids_shown, snapshot, conn) {
        true => id.clone(),
        false => HeaderValue::from_static(""),
    }
}

/// This gateway's name, if the other end of a connection may know it.
pub fn node<'s>(snapshot: &'s Snapshot, conn: &Conn) -> Option<&'s HeaderValue> {
    is_told(snapshot.node.shown, snapshot, conn).then_some(&snapshot.node.value)
}

/// Names this gateway on an answer, in the place of one behind it, which has told its name to us alone.
pub fn tell_node(snapshot: &Snapshot, conn: &Conn, headers: &mut HeaderMap) {
    match node(snapshot, conn) {
        Some(name) => drop(headers.insert(X_GATEWAY_NODE, name.clone())),
        None => drop(headers.remove(X_GATEWAY_NODE)),
    }
}

/// Whether the HTTP/2 encoder may put fields that change with every answer into its table (RFC 7541 section 7.1.3), so that
/// later answers refer to their names. One answer in [`NAMES_KEPT_EVERY`] does, because later entries push them out again.
pub fn keeps_names(conn: &Conn) -> bool {
    conn.activity.exchanges_ended.get().is_multiple_of(NAMES_KEPT_EVERY)
}

fn is_told(shown: FieldAudience, snapshot: &Snapshot, conn: &Conn) -> bool {
    match shown {
        FieldAudience::Always => true,
        FieldAudience::Trusted => client::is_hop(&snapshot.client_ip, conn.peer.ip),
        FieldAudience::Never => false,
    }
}

const NAMES_KEPT_EVERY: u64 = 64;
const X_GATEWAY_NODE: HeaderName = HeaderName::from_static("x-gateway-node");
